# SPDX-License-Identifier: Apache-2.0
"""The key ranges stored with a topic, so that every producer of ours places a key alike.

On Headrace they are configs of the topic. Other Kafka brokers refuse configs that they do not know: there the
compacted topic `_headrace_partitioners` has one record per topic, and the newest wins. Pure.
Read next: ../tools/partitioner_store.py, ../arrow/write/topic_ranges.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client.errors import ClientError
from headrace.client.partitioning.partitioners import RangePartitioner
from headrace.errors import ConfigError, newer_format
from headrace.key_ranges import KeyRange, Outside, format_ranges, parse_ranges

RANGES_CONFIG = "headrace.partitioner.ranges"
OUTSIDE_CONFIG = "headrace.partitioner.outside"
STORE_TOPIC = "_headrace_partitioners"
FORMAT = 1


class NewerRangesError(ClientError):
    """A later release wrote them: they are neither used nor replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRanges:
    """The key ranges of one topic; `topic_id` tells a topic from a later one of the same name."""

    topic_id: str
    ranges: tuple[KeyRange, ...]
    outside: Outside = "error"

    def partitioner(self) -> RangePartitioner:
        return RangePartitioner(self.ranges, outside=self.outside)

    def to_configs(self) -> dict[str, str]:
        return {RANGES_CONFIG: format_ranges(self.ranges), OUTSIDE_CONFIG: self.outside}

    def to_json(self) -> bytes:
        document = {
            "format": FORMAT,
            "kind": "range",
            "topic_id": self.topic_id,
            "ranges": format_ranges(self.ranges),
            "outside": self.outside,
        }
        return json.dumps(document, sort_keys=True).encode()


def read_configs(topic: str, topic_id: str, configs: Mapping[str, str | None]) -> StoredRanges | None:
    """None when no ranges are set in the topic's configs."""
    text = configs.get(RANGES_CONFIG)
    if not text:
        return None
    try:
        return _stored(topic_id, text, configs.get(OUTSIDE_CONFIG))
    except (ConfigError, ClientError) as error:
        raise _not_understood(topic, f"its config {RANGES_CONFIG}", error) from error


def read_record(topic: str, value: bytes) -> StoredRanges:
    """Raises ClientError for what another program wrote to the store, NewerRangesError for a later one."""
    try:
        document: Any = json.loads(value)
        _refuse_newer(topic, document["format"])
        if document["format"] != FORMAT or document["kind"] != "range":
            raise ClientError(f"format {document['format']!r}, kind {document['kind']!r}")
        return _stored(str(document["topic_id"]), str(document["ranges"]), document["outside"])
    except NewerRangesError:
        raise
    except (ValueError, KeyError, TypeError, ConfigError, ClientError) as error:
        raise _not_understood(topic, STORE_TOPIC, error) from error


def _refuse_newer(topic: str, found: Any) -> None:
    if isinstance(found, int) and found > FORMAT:
        what = newer_format(f"the record of topic {topic!r} in {STORE_TOPIC}", found, FORMAT)
        raise NewerRangesError(what)


def _stored(topic_id: str, ranges: str, outside: Any) -> StoredRanges:
    if outside not in ("error", "nearest"):
        raise ClientError(f"outside {outside!r}")
    return StoredRanges(topic_id=topic_id, ranges=parse_ranges(ranges), outside=outside)


def _not_understood(topic: str, where: str, error: Exception) -> ClientError:
    return ClientError(
        f"the key ranges kept for topic {topic!r} in {where} are not understood ({error})",
        next_step=f"set them anew: headrace topics alter {topic} --ranges LOW..HIGH,…",
    )
