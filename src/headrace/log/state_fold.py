# SPDX-License-Identifier: Apache-2.0
"""Producer state and leader epochs as a fold of batches: the same for recovery, replay, truncation (R28)."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.log.epochs import EpochHistory
from headrace.log.producers.markers import read_marker
from headrace.log.producers.snapshot import SnapshotFiles
from headrace.log.producers.state import ProducerEntry, ProducerState
from headrace.log.segments.segment import Segment
from headrace.wire.batch import CONTROL_BIT, BatchHeader


class StateFold:
    def __init__(self, producers: ProducerState, epochs: EpochHistory) -> None:
        self._producers = producers
        self._epochs = epochs
        self._producers_from = 0

    def visit(self, fields: tuple[int, ...], batch: memoryview) -> None:
        """For segment_scan.scan: one batch further."""
        header = tuple.__new__(BatchHeader, fields)
        if header.leader_epoch > self._epochs.latest:
            self._epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0 and header.base_offset >= self._producers_from:
            marker = read_marker(batch) if header.attributes & CONTROL_BIT else None
            self._producers.update(header, header.base_offset, marker)

    def restore(
        self,
        segments: Iterable[Segment],
        snapshots: SnapshotFiles,
        end_offset: int,
        *,
        fold_epochs: bool = False,
    ) -> None:
        """The state at `end_offset`: the newest sound snapshot, and the batches of `segments` after it.

        `fold_epochs`: the epochs are not known and need the whole log.
        """
        snapshot = snapshots.newest(at_most=end_offset)
        self._producers_from = 0
        entries: list[ProducerEntry] = []
        if snapshot is not None:
            self._producers_from, entries = snapshot
        self._producers.restore(entries, self._producers_from)
        replay_from = 0 if fold_epochs else self._producers_from
        for segment in segments:
            segment.visit_batches(replay_from, self.visit)
