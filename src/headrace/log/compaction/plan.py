# SPDX-License-Identifier: Apache-2.0
"""What a compaction is to do and what it did: values that travel to the worker process and back.

`make_plan` decides whether one is due, as Kafka's LogCleanerManager does. The work itself: compaction.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headrace.log.log_config import LogConfig
from headrace.log.producers.state import ProducerState
from headrace.log.segments.segment import NEVER_MS, Segment
from headrace.log.segments.segment_list import SegmentList
from headrace.log.segments.transaction_index import AbortedTransaction
from headrace.log.transaction_indexes import TransactionIndexes
from headrace.world import Files

KEY_MAP_BYTES = 128 << 20
"""Kafka's log.cleaner.dedupe.buffer.size."""


class SourceSegment(NamedTuple):
    base_offset: int
    end_offset: int
    """Where the next segment begins."""
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    files: Files
    directory: Path
    generation: int
    """Of the log; a truncation in between makes the result worthless."""
    config: LogConfig
    now_ms: int
    segments: tuple[SourceSegment, ...]
    """All that may be cleaned, clean and dirty, without a gap."""
    first_dirty_offset: int
    """Below, no key has an older duplicate."""
    last_offsets: Mapping[int, int]
    """By producer id: where the last batch of each producer ends; it keeps the producer known."""
    marker_epochs: Mapping[int, int]
    """By producer id: the epoch of producers of whom only markers are known; the last keeps them fenced."""
    aborted: tuple[AbortedTransaction, ...]
    """With batches in `segments`; their markers may lie behind them."""
    snapshot_offsets: tuple[int, ...]
    """Of the producer snapshots, which may know transactions that are open at their offsets."""
    key_map_bytes: int = KEY_MAP_BYTES


class CleanedGroup(NamedTuple):
    """Neighbouring segments and the one that takes their place, written beside them as `.cleaned`."""

    source_base_offsets: tuple[int, ...]
    size: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    groups: tuple[CleanedGroup, ...]
    """Only those in which something changed."""
    first_dirty_offset: int
    next_horizon_ms: int
    """When the first retained tombstone may be removed; far in the future when there is none."""
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class CleanerState(NamedTuple):
    """What one log remembers between compactions."""

    first_dirty_offset: int = 0
    next_horizon_ms: int = NEVER_MS
    """When a tombstone may be removed, even if nothing new was written."""


def make_plan(
    files: Files,
    directory: Path,
    config: LogConfig,
    segments: SegmentList,
    producers: ProducerState,
    transactions: TransactionIndexes,
    snapshot_offsets: tuple[int, ...],
    state: CleanerState,
    *,
    generation: int,
    log_start_offset: int,
    limit_offset: int,
    now_ms: int,
) -> CompactionPlan | None:
    """None when nothing is due. `limit_offset`: nothing at or above it may be touched (R29)."""
    first_dirty = _first_dirty_offset(state, segments, log_start_offset)
    sources = _cleanable(segments, config, first_dirty, limit_offset, now_ms)
    if not sources or not _is_due(segments, sources, config, state, first_dirty, now_ms):
        return None
    return CompactionPlan(
        files=files,
        directory=directory,
        generation=generation,
        config=config,
        now_ms=now_ms,
        segments=sources,
        first_dirty_offset=first_dirty,
        last_offsets={entry.producer_id: entry.last_offset for entry in producers.active()},
        marker_epochs={entry.producer_id: entry.epoch for entry in producers.active() if not entry.history},
        snapshot_offsets=snapshot_offsets,
        aborted=tuple(transactions.overlapping(sources[0].base_offset, sources[-1].end_offset)),
    )


def _first_dirty_offset(state: CleanerState, segments: SegmentList, log_start_offset: int) -> int:
    """A checkpoint that does not fit the log means: nothing is known to be clean."""
    if not log_start_offset <= state.first_dirty_offset <= segments.active.base_offset:
        return log_start_offset
    return state.first_dirty_offset


def _cleanable(
    segments: SegmentList, config: LogConfig, first_dirty: int, limit_offset: int, now_ms: int
) -> tuple[SourceSegment, ...]:
    """Sealed segments below the limit whose dirty part is old enough."""
    sources = []
    for slot, segment in enumerate(segments.sealed):
        end_offset = segments.end_of(slot)
        if end_offset > limit_offset:
            break
        if end_offset > first_dirty and _too_young(segment, config, now_ms):
            break
        sources.append(SourceSegment(segment.base_offset, end_offset, segment.size))
    return tuple(sources)


def _too_young(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    if config.min_compaction_lag_ms <= 0:
        return False
    segment.ensure_timestamps()
    return segment.max_timestamp > now_ms - config.min_compaction_lag_ms


def _is_due(
    segments: SegmentList,
    sources: tuple[SourceSegment, ...],
    config: LogConfig,
    state: CleanerState,
    first_dirty: int,
    now_ms: int,
) -> bool:
    dirty = [source for source in sources if source.end_offset > first_dirty]
    if not dirty:
        return state.next_horizon_ms <= now_ms
    dirty_bytes, total_bytes = sum(s.size for s in dirty), sum(s.size for s in sources)
    if dirty_bytes > total_bytes * config.min_cleanable_dirty_ratio or state.next_horizon_ms <= now_ms:
        return True
    if config.max_compaction_lag_ms >= NEVER_MS:
        return False
    oldest = segments[segments.slot_of(dirty[0].base_offset)].read_first_timestamp()
    return 0 <= oldest < now_ms - config.max_compaction_lag_ms
