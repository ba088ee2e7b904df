# SPDX-License-Identifier: Apache-2.0
"""The transactions of a partition that have not ended: which producer, and where it began.

A fold of the log by itself, so that the transaction index of a segment can be rebuilt from the state at its
base offset alone. Read next: state.py, log/transaction_indexes.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.log.producers.markers import EndTransactionMarker
from headrace.log.segments.transaction_index import AbortedTransaction
from headrace.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader


class EndedTransaction(NamedTuple):
    first_offset: int
    marker_offset: int
    aborted: AbortedTransaction | None
    """None when it was committed."""


class OpenTransactions:
    __slots__ = ("_starts",)

    def __init__(self, starts: Iterable[tuple[int, int]] = ()) -> None:
        """`starts`: producer ids, each with the first offset of its transaction."""
        self._starts = dict(sorted(starts, key=lambda start: start[1]))
        """By producer id, in the order of the first offsets."""

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._starts

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def first_producer(self) -> int | None:
        """Whose transaction began first."""
        return next(iter(self._starts), None)

    @property
    def first_offset(self) -> int | None:
        """Of the one that began first."""
        return next(iter(self._starts.values()), None)

    def update(
        self, header: BatchHeader, base_offset: int, marker: EndTransactionMarker | None
    ) -> EndedTransaction | None:
        """The batch of a producer was written at `base_offset`; the transaction that it ends, if any."""
        attributes, producer_id = header.attributes, header.producer_id
        if not attributes & CONTROL_BIT:
            if attributes & TRANSACTIONAL_BIT and producer_id not in self._starts:
                self._starts[producer_id] = base_offset
            return None
        if marker is None:
            return None
        first_offset = self._starts.pop(producer_id, None)
        if first_offset is None:
            return None
        if marker.commits:
            return EndedTransaction(first_offset, base_offset, None)
        others = self.first_offset
        stable = base_offset + 1 if others is None else others
        aborted = AbortedTransaction(producer_id, first_offset, base_offset, stable)
        return EndedTransaction(first_offset, base_offset, aborted)
