# SPDX-License-Identifier: Apache-2.0
"""Retention and deletion: what goes, in which order, and what stays readable meanwhile (R29b)."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.testing.memory_files import MemoryFiles
from tests.harness.batches.log_tools import (
    DIRECTORY,
    NOW_MS,
    Producer,
    StillClock,
    batch,
    flush,
    open_log,
    read_all,
)

HOUR_MS = 3_600_000
BATCH_BYTES = len(batch(bytes(100))[0])


def log_of_hours(files: MemoryFiles, hours: int = 6, **settings: object) -> tuple[PartitionLog, StillClock]:
    """One segment of two records for each hour."""
    clock = StillClock()
    config = LogConfig(segment_bytes=2 * BATCH_BYTES, **settings)  # type: ignore[arg-type]
    log = open_log(files, config, clock=clock)
    for hour in range(hours):
        for minute in (0, 30):
            log.append(*batch(bytes(100), timestamp=NOW_MS + hour * HOUR_MS + minute * 60_000), 0)
    clock.now_ms = NOW_MS + hours * HOUR_MS
    return log, clock


def names(files: MemoryFiles, suffix: str) -> list[int]:
    return [int(name[:20]) for name in files.listdir(DIRECTORY) if name.endswith(suffix)]


def test_segments_whose_newest_record_is_too_old_go() -> None:
    files = MemoryFiles()
    log, clock = log_of_hours(files, retention_ms=3 * HOUR_MS)
    assert log.apply_retention(clock.now_ms, log.log_end_offset) == 3
    assert log.log_start_offset == 6
    assert [record.offset for record in read_all(log)] == list(range(6, 12))
    assert log.apply_retention(clock.now_ms, log.log_end_offset) == 0


def test_age_is_the_records_and_a_late_record_keeps_its_segment() -> None:
    files = MemoryFiles()
    clock = StillClock()
    log = open_log(files, LogConfig(retention_ms=1000, segment_bytes=2 * BATCH_BYTES), clock=clock)
    for timestamp in (NOW_MS + 5000, NOW_MS, NOW_MS, NOW_MS, NOW_MS):
        log.append(*batch(bytes(100), timestamp=timestamp), 0)
    clock.now_ms += 3000
    assert log.apply_retention(clock.now_ms, log.log_end_offset) == 0
    clock.now_ms += 4000
    assert log.apply_retention(clock.now_ms, log.log_end_offset) == 3


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    log, clock = log_of_hours(MemoryFiles(), retention_ms=1)
    assert log.apply_retention(clock.now_ms, high_watermark=5) == 2
    assert log.log_start_offset == 4


def test_expired_log_goes_whole_and_continues_at_its_end() -> None:
    files = MemoryFiles()
    log, clock = log_of_hours(files, retention_ms=1)
    assert log.apply_retention(clock.now_ms, log.log_end_offset) == 6
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (12, 12, 1)
    assert log.append(*batch(b"x", timestamp=clock.now_ms), 0) == 12
    assert names(files, ".log") == [12]


def test_retention_makes_room_on_a_disk_without_any() -> None:
    files = MemoryFiles()
    log, clock = log_of_hours(files, retention_ms=1)
    files.errors["create"] = OSError(errno.ENOSPC, "no space left on device")
    assert log.apply_retention(clock.now_ms, log.log_end_offset) == 5
    files.errors.clear()
    assert log.apply_retention(clock.now_ms, log.log_end_offset) == 1


@pytest.mark.parametrize(
    ("kept_bytes", "removed"), [(0, 5), (2 * BATCH_BYTES, 5), (5 * BATCH_BYTES, 3), (10**9, 0)]
)
def test_oldest_segments_go_while_the_rest_is_still_large_enough(kept_bytes: int, removed: int) -> None:
    log, clock = log_of_hours(MemoryFiles(), retention_ms=-1, retention_bytes=kept_bytes)
    assert log.apply_retention(clock.now_ms, log.log_end_offset) == removed
    assert log.size_bytes >= min(kept_bytes, 12 * BATCH_BYTES)


def test_compacted_topics_are_not_deleted_from() -> None:
    log, clock = log_of_hours(MemoryFiles(), retention_ms=1, cleanup_policy=frozenset({"compact"}))
    assert log.apply_retention(clock.now_ms, log.log_end_offset) == 0


def test_records_without_timestamps_never_expire_by_time() -> None:
    clock = StillClock()
    log = open_log(MemoryFiles(), LogConfig(retention_ms=1), clock=clock)
    log.append(*batch(b"x", timestamp=-1), 0)
    clock.now_ms += 10**12
    assert log.apply_retention(clock.now_ms, 1) == 0


def test_deleted_files_are_renamed_first_and_unlinked_after_the_delay() -> None:
    files = MemoryFiles()
    log, clock = log_of_hours(files, retention_ms=3 * HOUR_MS, file_delete_delay_ms=60_000)
    log.apply_retention(clock.now_ms, log.log_end_offset)
    assert names(files, ".log.deleted") == [0, 2, 4]
    assert names(files, ".timeindex.deleted") == [0, 2, 4]
    assert log.collect_deleted(clock.monotonic() + 59) is None
    remove = log.collect_deleted(clock.monotonic() + 60)
    assert remove is not None
    assert names(files, ".log.deleted") == [0, 2, 4], "the removal is for a thread to call"
    remove()
    assert names(files, ".deleted") == []
    assert log.collect_deleted(clock.monotonic() + 60) is None


def test_reader_of_a_deleted_segment_finishes() -> None:
    files = MemoryFiles()
    log, clock = log_of_hours(files, retention_ms=3 * HOUR_MS, file_delete_delay_ms=0)
    piece = log.read(0, 1000, 12)
    assert piece is not None
    before = piece.bytes()
    log.apply_retention(clock.now_ms, log.log_end_offset)
    remove = log.collect_deleted(clock.monotonic())
    assert remove is not None
    remove()
    assert piece.bytes() == before
    piece.release()
    assert piece.file.closed  # type: ignore[attr-defined]


def test_delete_records_moves_the_log_start_into_a_segment() -> None:
    files = MemoryFiles()
    log, _ = log_of_hours(files)
    log.delete_records_before(5)
    assert (log.log_start_offset, log.segment_count) == (5, 4)
    assert [record.offset for record in read_all(log)] == list(range(5, 12))
    log.delete_records_before(3)
    assert log.log_start_offset == 5
    log.delete_records_before(99)
    assert log.log_start_offset == log.log_end_offset == 12


def test_log_start_survives_a_restart_by_checkpoint() -> None:
    files = MemoryFiles()
    log, _ = log_of_hours(files)
    log.delete_records_before(5)
    flush(log)
    again = open_log(files, log.config, clean=False, recovery_point=12, log_start_offset=5)
    assert again.log_start_offset == 5
    assert [record.offset for record in read_all(again)] == list(range(5, 12))


def test_snapshots_of_deleted_segments_go_too() -> None:
    files = MemoryFiles()
    clock = StillClock()
    log = open_log(files, LogConfig(segment_bytes=300, retention_ms=1), clock=clock)
    producer = Producer(3)
    for _ in range(12):
        log.append(*producer.batch(bytes(60)), 0)
    clock.now_ms += 10
    log.apply_retention(clock.now_ms, 8)
    assert min(names(files, ".snapshot")) >= log.log_start_offset


def test_time_lookup_ignores_deleted_records() -> None:
    log, _ = log_of_hours(MemoryFiles())
    log.delete_records_before(5)
    assert log.offset_for_timestamp(0) == (NOW_MS + 2 * HOUR_MS + 30 * 60_000, 5)
    assert log.offset_for_timestamp(NOW_MS + 4 * HOUR_MS) == (NOW_MS + 4 * HOUR_MS, 8)
    assert log.offset_for_timestamp(NOW_MS + 9 * HOUR_MS) is None
    assert log.offset_of_max_timestamp() == (NOW_MS + 5 * HOUR_MS + 30 * 60_000, 11)


def test_largest_timestamp_is_that_of_a_record_that_is_left() -> None:
    log = open_log(MemoryFiles())
    for timestamp in (NOW_MS + 50, NOW_MS + 10, NOW_MS + 20, NOW_MS + 20):
        log.append(*batch(b"x", timestamp=timestamp), 0)
    assert log.offset_of_max_timestamp() == (NOW_MS + 50, 0)
    log.delete_records_before(1)
    assert log.offset_of_max_timestamp() == (NOW_MS + 20, 2)
    log.delete_records_before(4)
    assert log.offset_of_max_timestamp() is None


def test_a_producer_whose_every_record_expired_goes_on_where_it_was_after_a_restart() -> None:
    files = MemoryFiles()
    clock = StillClock()
    config = LogConfig(retention_ms=1000, segment_bytes=BATCH_BYTES * 2)
    log = open_log(files, config, clock=clock)
    producer = Producer(7)
    for _ in range(5):
        log.append(*producer.batch(bytes(100)), 0)
    clock.now_ms += 5000
    log.apply_retention(clock.now_ms, log.log_end_offset)
    flush(log)
    again = open_log(files, config, clock=clock, clean=False, recovery_point=5, log_start_offset=5)
    (entry,) = again.producers.active()
    assert entry.last_sequence == 4


def test_a_power_cut_after_a_deletion_keeps_producer_state() -> None:
    """What is known only from deleted segments is on disk before they go, with or without a flush."""
    for seed in range(30):
        files = MemoryFiles(Random(seed))
        files.make_directory(DIRECTORY.parent)
        for parent in (Path(), *DIRECTORY.parents):
            files.sync_directory(parent)
        log = open_log(files, LogConfig(segment_bytes=BATCH_BYTES * 2))
        producer = Producer(7)
        for _ in range(6):
            log.append(*producer.batch(bytes(100)), 0)
        flush(log)
        log.append(*producer.batch(bytes(100)), 0)  # rolls: its snapshot is not flushed
        log.delete_records_before(6)
        files.crash()
        again = open_log(files, LogConfig(), clean=False, recovery_point=6, log_start_offset=6)
        (entry,) = again.producers.active()
        assert entry.last_sequence >= 5


def test_segments_stay_while_a_full_disk_keeps_their_producers_from_being_saved() -> None:
    files = MemoryFiles()
    clock = StillClock()
    log = open_log(files, LogConfig(retention_ms=1000), clock=clock)
    log.append(*Producer(7).batch(bytes(100)), 0)
    clock.now_ms += 5000
    files.errors["create:.tmp"] = OSError(errno.ENOSPC, "no room")  # what a durable file begins as
    assert log.apply_retention(clock.now_ms, log.log_end_offset) == 0
    assert log.log_start_offset == 0
    files.errors.clear()
    assert log.apply_retention(clock.now_ms, log.log_end_offset) > 0
