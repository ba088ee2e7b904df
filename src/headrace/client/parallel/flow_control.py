# SPDX-License-Identifier: Apache-2.0
"""Which partitions to pause so that memory stays bounded. Pure: loads in, partitions out.

Pausing drops records that librdkafka has buffered, so it happens only when there is no progress; a paused
partition is resumed when it is down to half of its share.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from headrace.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one consumer. A single record larger than the limit is still accepted."""

    records: int = 1_000
    bytes: int = 64 * 1024 * 1024
    ahead: int = 10_000
    """Per partition: received records behind the committed prefix, finished or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Records and bytes of a partition in memory."""

    records: int
    bytes: int
    ahead: int


def partitions_to_pause(
    loads: Mapping[TopicPartition, Load], paused: AbstractSet[TopicPartition], limits: Limits, *, full: bool
) -> set[TopicPartition]:
    """All without room; else those that hold more than their share."""
    if full:
        return set(loads)
    return {
        partition
        for partition, load in loads.items()
        if (_holds_too_much(load, limits, len(loads)) if partition in paused else load.ahead >= limits.ahead)
    }


def _holds_too_much(load: Load, limits: Limits, sharers: int) -> bool:
    return (
        load.records * 2 * sharers > limits.records
        or load.bytes * 2 * sharers > limits.bytes
        or load.ahead * 2 > limits.ahead
    )
