# SPDX-License-Identifier: Apache-2.0
"""Base type of the records that a coordinator writes to its internal topic, and replays when it loads."""

from __future__ import annotations

from typing import NamedTuple


class BatchProducer(NamedTuple):
    """The producer whose transaction a batch belongs to."""

    producer_id: int
    epoch: int


class CoordinatorRecord:
    """Subtypes: group_records.py, consumer_group_records.py and transaction_records.py."""

    __slots__ = ()

    @property
    def producer(self) -> BatchProducer | None:
        """Whose transactional batch the record has to be written in; None: a plain one."""
        return None
