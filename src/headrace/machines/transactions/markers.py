# SPDX-License-Identifier: Apache-2.0
"""Which markers of a decided transaction are still to be written.

Markers are sent until each partition has one: the decision is in the log, and readers of the partitions wait
for it (R32). This is not in the log: after a load all are sent again, and a partition that has its marker
already accepts it once more. Read next: transactional_id.py, events.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.machines.transactions.events import MarkerOutcome
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

FIRST_BACKOFF_MS = 20
LONGEST_BACKOFF_MS = 1000

_FENCED = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced})


def outcome_of(error: ErrorCode) -> MarkerOutcome:
    """What a leader's answer to WriteTxnMarkers means.

    Also UNKNOWN_TOPIC_OR_PARTITION is retried: a leader may not know its partition yet. That a partition was
    deleted is seen in the cluster metadata.
    """
    if error is ErrorCode.none:
        return MarkerOutcome.WRITTEN
    return MarkerOutcome.FENCED if error in _FENCED else MarkerOutcome.RETRY


class MarkerSending:
    """The markers of one transaction."""

    __slots__ = ("_backoff_ms", "_failed", "fenced", "missing", "number", "since_ms")

    def __init__(self, number: int, partitions: Iterable[TopicPartition], since_ms: int) -> None:
        self.number = number
        self.missing = set(partitions)
        self.since_ms = since_ms
        """When the transaction was decided, or loaded, on the monotonic clock."""
        self.fenced = False
        self._failed: set[TopicPartition] = set()
        self._backoff_ms = FIRST_BACKOFF_MS

    def take(self, outcomes: Iterable[tuple[TopicPartition, MarkerOutcome]]) -> None:
        for partition, outcome in outcomes:
            if outcome is MarkerOutcome.FENCED:
                self.fenced = True
            elif outcome is not MarkerOutcome.RETRY:
                self.missing.discard(partition)
            elif partition in self.missing:
                self._failed.add(partition)

    @property
    def to_retry(self) -> bool:
        return bool(self._failed) and not self.fenced

    def next_backoff_ms(self) -> int:
        backoff_ms, self._backoff_ms = self._backoff_ms, min(2 * self._backoff_ms, LONGEST_BACKOFF_MS)
        return backoff_ms

    def take_elected(self, partition: TopicPartition) -> bool:
        """Whether its marker is to be sent now: it failed, and there is another leader to send it to."""
        if partition not in self._failed or self.fenced:
            return False
        self._failed.discard(partition)
        self._backoff_ms = FIRST_BACKOFF_MS
        return True

    def take_failed(self) -> frozenset[TopicPartition]:
        """Those to be sent again now."""
        failed, self._failed = frozenset(self._failed), set()
        return failed
