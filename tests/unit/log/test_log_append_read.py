# SPDX-License-Identifier: Apache-2.0
"""Appending and reading: offsets, rolls, slices, what a failed write leaves."""

from __future__ import annotations

import errno
import uuid
from dataclasses import replace

import pytest

from headrace.errors import DiskFullError, StorageError
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.segments.descriptors import DescriptorPool
from headrace.log.segments.segment import NEVER_MS
from headrace.testing.memory_files import MemoryFiles
from headrace.wire.batch import assign, read_header, split_batches
from headrace.world import File, read_file
from tests.harness.batches.log_tools import (
    DIRECTORY,
    NOW_MS,
    Producer,
    StillClock,
    batch,
    flush,
    open_log,
    read_all,
    read_batches,
)

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.mark.row("D1")
def test_offsets_count_from_zero_without_gaps(files: MemoryFiles) -> None:
    log = open_log(files)
    assert [log.append(*batch(*values), 0) for values in ([b"a"], [b"b", b"c"], [b"d"])] == [0, 1, 3]
    assert [(r.offset, r.value) for r in read_all(log)] == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    assert (log.log_start_offset, log.log_end_offset) == (0, 4)


@pytest.mark.row("D1")
def test_two_readers_have_independent_positions(files: MemoryFiles) -> None:
    log = open_log(files)
    for value in (b"a", b"b", b"c"):
        log.append(*batch(value), 0)
    first, second = log.read(0, 1 << 20, 3), log.read(2, 1 << 20, 3)
    assert first is not None
    assert second is not None
    assert first.next_offset == second.next_offset == 3
    assert first.size > second.size


@pytest.mark.row("D2")
def test_a_record_keeps_key_value_and_timestamp(files: MemoryFiles) -> None:
    log = open_log(files)
    log.append(*batch(b"value", key=b"k", timestamp=NOW_MS + 5), 0)
    (record,) = read_all(log)
    assert (record.key, record.value, record.timestamp) == (b"k", b"value", NOW_MS + 5)


def test_append_writes_offset_and_epoch_into_the_batch_and_nothing_else(files: MemoryFiles) -> None:
    log = open_log(files)
    log.append(*batch(b"x"), 3)
    view, batches = batch(b"y")
    before = bytes(view)
    log.append(view, batches, 4)
    ((header, data),) = read_batches(log, 1)
    assert (header.base_offset, header.leader_epoch) == (1, 4)
    assert data[16:] == before[16:]


def test_several_batches_are_one_append(files: MemoryFiles) -> None:
    log = open_log(files)
    both = bytearray(bytes(batch(b"a", b"b")[0]) + bytes(batch(b"c")[0]))
    view = memoryview(both)
    assert log.append(view, split_batches(view, 0, len(view), max_batch_bytes=None), 0) == 0
    assert [record.offset for record in read_all(log)] == [0, 1, 2]


def test_append_time_topics_are_stamped_with_the_logs_clock(files: MemoryFiles) -> None:
    clock = StillClock(NOW_MS + 77)
    log = open_log(files, LogConfig(append_time=True), clock=clock)
    log.append(*batch(b"a", timestamp=5), 0)
    ((header, _),) = read_batches(log)
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW_MS + 77)
    assert read_all(log)[0].timestamp == NOW_MS + 77
    assert log.offset_of_max_timestamp() == (NOW_MS + 77, 0)


def test_replica_append_keeps_offsets_and_epochs(files: MemoryFiles) -> None:
    leader, follower = open_log(files), open_log(files, directory=DIRECTORY.parent / "copy-0")
    for epoch in (1, 1, 4):
        leader.append(*batch(b"x", b"y"), epoch)
    for _, data in read_batches(leader):
        view = memoryview(bytearray(data))
        follower.append_as_replica(view, [(0, read_header(view))])
    assert read_batches(follower) == read_batches(leader)
    assert follower.epochs.entries == leader.epochs.entries
    with pytest.raises(StorageError, match="offset 4 comes after offset 6"):
        follower.append_as_replica(view, [(0, read_header(view))])


def test_replica_append_keeps_the_gaps_that_compaction_left(files: MemoryFiles) -> None:
    """What a follower fetches of a compacted topic in one piece."""
    producer = Producer(7)
    data = bytearray()
    for offset, values, timestamp in ((0, (b"x", b"y"), NOW_MS), (100, (b"z",), NOW_MS + 1)):
        view, ((start, header),) = producer.batch(*values, timestamp=timestamp)
        assign(view, start, offset, header.batch_length, 0)
        data += view
    fetched = memoryview(data)
    follower = open_log(files)
    batches = split_batches(fetched, 0, len(data), max_batch_bytes=None, producer=False)
    follower.append_as_replica(fetched, batches)
    assert follower.log_end_offset == 101
    assert [record.offset for record in read_all(follower)] == [0, 1, 100]
    assert follower.read(0, 1 << 20, 101, at_least_one=True).next_offset == 101
    assert follower.offset_of_max_timestamp() == (NOW_MS + 1, 100)
    assert follower.producers.check(read_header(view)) == 100


def test_log_rolls_when_a_segment_would_grow_too_large(files: MemoryFiles) -> None:
    log = open_log(files, SMALL)
    for _ in range(20):
        log.append(*batch(bytes(60)), 0)
    assert log.segment_count > 3
    names = [name for name in files.listdir(DIRECTORY) if name.endswith(".log")]
    assert max(len(read_file(files, DIRECTORY / name)) for name in names) <= SMALL.segment_bytes
    assert len(read_all(log)) == 20


def test_batch_larger_than_a_segment_gets_one_of_its_own(files: MemoryFiles) -> None:
    log = open_log(files, SMALL)
    for size in (10, 2000, 10):
        log.append(*batch(bytes(size)), 0)
    assert log.segment_count == 3
    assert [len(record.value or b"") for record in read_all(log)] == [10, 2000, 10]


def test_log_rolls_by_the_timestamps_of_batches_not_by_the_clock(files: MemoryFiles) -> None:
    clock = StillClock()
    log = open_log(files, LogConfig(segment_ms=1000), clock=clock)
    log.append(*batch(b"a", timestamp=NOW_MS), 0)
    clock.now_ms += 50_000
    log.append(*batch(b"b", timestamp=NOW_MS + 1000), 0)
    assert log.segment_count == 1
    log.append(*batch(b"c", timestamp=NOW_MS + 1001), 0)
    assert log.segment_count == 2


def test_jitter_spreads_rolls_but_never_past_segment_ms(files: MemoryFiles) -> None:
    times = set()
    for number in range(8):
        directory = DIRECTORY.with_name(f"topic-{number}")
        log = open_log(files, LogConfig(segment_ms=1000, segment_jitter_ms=900), directory=directory)
        log.append(*batch(b"a"), 0)
        times.add(log._segments.active.roll_after_ms - NOW_MS)
    assert len(times) > 4
    assert all(100 <= time <= 1000 for time in times)


def test_log_rolls_when_its_index_is_full(files: MemoryFiles) -> None:
    log = open_log(files, LogConfig(index_interval_bytes=0, segment_index_bytes=12 * 5))
    for _ in range(20):
        log.append(*batch(b"x"), 0)
    assert log.segment_count >= 4
    assert len(read_all(log)) == 20


def test_log_rolls_before_an_offset_no_longer_fits_the_index(files: MemoryFiles) -> None:
    log = open_log(files)
    log.append(*batch(b"a"), 0)
    log._segments.active.largest_offset = 2  # as if 2**31 records had been written
    for value in (b"b", b"c", b"d"):
        log.append(*batch(value), 0)
    assert log.segment_count == 2
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3]


def test_compacted_topics_roll_in_time_to_be_compacted(files: MemoryFiles) -> None:
    config = LogConfig(max_compaction_lag_ms=500, cleanup_policy=frozenset({"compact"}))
    log = open_log(files, config)
    log.append(*batch(b"a", timestamp=NOW_MS), 0)
    log.append(*batch(b"b", timestamp=NOW_MS + 501), 0)
    assert log.segment_count == 2
    log.reconfigure(replace(config, max_compaction_lag_ms=NEVER_MS))
    log.append(*batch(b"c", timestamp=NOW_MS + 5000), 0)
    assert log.segment_count == 2


class TestRead:
    def test_nothing_at_the_end_or_at_the_limit(self, files: MemoryFiles) -> None:
        log = open_log(files)
        log.append(*batch(b"a", b"b"), 0)
        assert log.read(2, 1000, 2) is None
        assert log.read(0, 1000, 0) is None

    def test_slice_ends_before_the_limit(self, files: MemoryFiles) -> None:
        log = open_log(files)
        for value in (b"a", b"b", b"c"):
            log.append(*batch(value), 0)
        assert [record.value for record in read_all(log)] == [b"a", b"b", b"c"]
        assert len(read_batches(log, limit=2)) == 2

    def test_first_batch_comes_even_if_it_is_larger_than_asked(self, files: MemoryFiles) -> None:
        log = open_log(files)
        log.append(*batch(bytes(500)), 0)
        log.append(*batch(b"b"), 0)
        piece = log.read(0, 10, 2)
        assert piece is not None
        assert (piece.size > 500, piece.next_offset) == (True, 1)
        assert log.read(0, 10, 2, at_least_one=False) is None

    def test_slices_hold_whole_batches_up_to_max_bytes(self, files: MemoryFiles) -> None:
        log = open_log(files, SMALL)
        for number in range(30):
            log.append(*batch(bytes(number)), 0)
        for max_bytes in range(80, 700, 13):
            offset = 0
            while (piece := log.read(offset, max_bytes, 30)) is not None:
                assert piece.size <= max_bytes or piece.next_offset == offset + 1
                data = memoryview(piece.bytes())
                split_batches(data, 0, len(data), max_batch_bytes=None)
                offset = piece.next_offset
                piece.release()
            assert offset == 30

    def test_offset_inside_a_batch_gives_the_whole_batch(self, files: MemoryFiles) -> None:
        log = open_log(files)
        log.append(*batch(b"a", b"b", b"c"), 0)
        piece = log.read(2, 1000, 3)
        assert piece is not None
        assert read_header(piece.bytes()).base_offset == 0

    def test_reading_on_needs_no_look_at_the_file(self, files: MemoryFiles) -> None:
        log = open_log(files, LogConfig(index_interval_bytes=1 << 20))
        for _ in range(200):
            log.append(*batch(bytes(50)), 0)
        piece = log.read(0, 1000, 200)
        assert piece is not None
        files.errors["pread"] = OSError(errno.EIO, "no reading now")
        following = log.read(piece.next_offset, 1 << 20, 200)
        assert following is not None
        assert following.position == piece.position + piece.size
        flushed = log.begin_flush()
        assert flushed is not None
        files.errors.clear()
        log.append(*batch(b"later"), 0)
        files.errors["pread"] = OSError(errno.EIO, "no reading now")
        assert log.read(piece.next_offset, 1 << 20, 200) is not None, "the high watermark stands at a flush"

    def test_a_read_of_a_cold_file_raises_cold_read(self, files: MemoryFiles) -> None:
        log = open_log(files)
        log.append(*batch(b"a"), 0)
        piece = log.read(0, 1000, 1)
        assert piece is not None
        assert piece.cached()
        files.cold_names.add(piece.file.path.name)  # type: ignore[attr-defined]
        assert not piece.cached()


class TestFailedWrites:
    def test_full_disk_takes_nothing_and_uses_no_offset(self, files: MemoryFiles) -> None:
        log = open_log(files)
        producer = Producer(9)
        log.append(*producer.batch(b"a"), 0)
        files.capacity = files.used_bytes() + 30
        with pytest.raises(DiskFullError, match="no space left"):
            log.append(*producer.batch(b"b"), 0)
        assert (log.fenced, log.log_end_offset) == (True, 1)
        entry = log.producers.get(9)
        assert entry is not None
        assert entry.last_sequence == 0
        assert [record.value for record in read_all(log)] == [b"a"]
        with pytest.raises(DiskFullError, match="not yet recovered"):
            log.append(*batch(b"c"), 0)

    def test_after_room_returned_the_log_goes_on_where_it_was(self, files: MemoryFiles) -> None:
        log = open_log(files)
        log.append(*batch(b"a"), 0)
        files.capacity = files.used_bytes() + 30
        with pytest.raises(DiskFullError):
            log.append(*batch(b"b"), 0)
        with pytest.raises(DiskFullError):
            log.append(*batch(b"b"), 0)
        files.capacity = 1 << 40
        log.recover_in_place()
        assert log.append(*batch(b"c"), 0) == 1
        flush(log)
        assert [record.value for record in read_all(open_log(files, clean=False))] == [b"a", b"c"]

    def test_full_disk_while_rolling_keeps_the_old_segment(self, files: MemoryFiles) -> None:
        log = open_log(files, SMALL)
        while log._segments.active.size < 400:
            log.append(*batch(bytes(40)), 0)
        end = log.log_end_offset
        files.errors["create"] = OSError(errno.ENOSPC, "no space left on device")
        with pytest.raises(DiskFullError):
            log.append(*batch(bytes(200)), 0)
        files.errors.clear()
        log.recover_in_place()
        assert log.append(*batch(bytes(200)), 0) == end
        assert log.segment_count == 2

    def test_full_disk_leaves_no_half_written_index(self, files: MemoryFiles) -> None:
        log = open_log(files, LogConfig(segment_bytes=2000, index_interval_bytes=0))
        for number in range(19):
            log.append(*batch(bytes(30), timestamp=NOW_MS + number), 0)
        files.capacity = files.used_bytes() + 50
        with pytest.raises(DiskFullError):
            log.append(*batch(bytes(300)), 0)
        files.capacity = 1 << 40
        log.recover_in_place()
        log.close()
        again = open_log(files, log.config, recovery_point=log.log_end_offset)
        assert again.offset_of_max_timestamp() == (NOW_MS + 18, 18)

    def test_lack_of_descriptors_is_no_fault_of_the_disk(self, files: MemoryFiles) -> None:
        pool = DescriptorPool(files, 8)
        log = open_log(files, descriptors=pool)
        pool.close(log._segments.active.pooled)
        files.errors["open"] = OSError(errno.EMFILE, "too many open files")
        with pytest.raises(DiskFullError, match="too many open files"):
            log.append(*batch(b"a"), 0)
        files.errors.clear()
        log.recover_in_place()
        assert log.append(*batch(b"a"), 0) == 0

    def test_write_error_is_never_retried(self, files: MemoryFiles) -> None:
        log = open_log(files)
        log.append(*batch(b"a"), 0)
        files.errors["pwritev"] = OSError(errno.EIO, "input/output error")
        with pytest.raises(StorageError, match="not trusted") as raised:
            log.append(*batch(b"b"), 0)
        assert not isinstance(raised.value, DiskFullError)
        files.errors.clear()
        with pytest.raises(StorageError):
            log.append(*batch(b"b"), 0)
        with pytest.raises(StorageError):
            log.recover_in_place()
        assert [record.value for record in read_all(log)] == [b"a"]
        with pytest.raises(StorageError, match="not trusted"):
            log.close()
        assert files.open_files == 0

    def test_failed_truncation_after_a_full_disk_is_a_failed_disk(self, files: MemoryFiles) -> None:
        log = open_log(files)
        files.capacity = 30
        files.errors["truncate"] = OSError(errno.EIO, "input/output error")
        with pytest.raises(StorageError) as raised:
            log.append(*batch(b"b"), 0)
        assert not isinstance(raised.value, DiskFullError)

    def test_failed_fsync_fences_for_good(self, files: MemoryFiles) -> None:
        log = open_log(files)
        log.append(*batch(b"a"), 0)
        files.errors["fsync"] = OSError(errno.EIO, "input/output error")
        with pytest.raises(OSError, match="input/output"):
            flush(log)
        files.errors.clear()
        assert (log.fenced, log.flushed_offset) == (True, 0)
        with pytest.raises(StorageError, match="fsync failed"):
            log.append(*batch(b"b"), 0)


class TestFlush:
    def test_nothing_to_flush(self, files: MemoryFiles) -> None:
        log = open_log(files)
        assert log.begin_flush() is None
        log.append(*batch(b"a"), 0)
        flush(log)
        assert log.begin_flush() is None

    def test_flushed_offset_is_where_the_log_ended_when_it_began(self, files: MemoryFiles) -> None:
        log = open_log(files)
        log.append(*batch(b"a"), 0)
        begun = log.begin_flush()
        assert begun is not None
        log.append(*batch(b"b"), 0)
        begun.sync()
        assert log.flushed_offset == 0
        log.end_flush(begun)
        assert log.flushed_offset == 1

    def test_only_a_flush_that_needs_nothing_but_one_file_names_it(self, files: MemoryFiles) -> None:
        """What is left out of a flush is not on disk when it counts as done (R23)."""
        log = open_log(files, SMALL)
        log.append(*batch(b"a"), 0)
        assert self._only_file(log) is None, "the names of a new log are not on disk"
        log.append(*batch(b"b"), 0)
        assert self._only_file(log) is not None
        log.append(*batch(b"c"), 7)
        assert self._only_file(log) is None, "neither is the leader epoch"
        while not log.wants_flush:
            log.append(*batch(bytes(60)), 7)
        assert self._only_file(log) is None, "nor a sealed segment with its indexes"
        log.append(*batch(b"d"), 7)
        assert self._only_file(log) is not None

    @staticmethod
    def _only_file(log: PartitionLog) -> File | None:
        begun = log.begin_flush()
        assert begun is not None
        found = begun.only_file
        begun.sync()
        log.end_flush(begun)
        assert log.flushed_offset == log.log_end_offset
        return found

    def test_sealed_segment_asks_for_a_flush(self, files: MemoryFiles) -> None:
        log = open_log(files, SMALL)
        assert not log.wants_flush
        for _ in range(10):
            log.append(*batch(bytes(60)), 0)
        assert log.wants_flush
        flush(log)
        assert not log.wants_flush

    def test_files_of_a_running_flush_stay_open(self, files: MemoryFiles) -> None:
        pool = DescriptorPool(files, 1)
        log = open_log(files, SMALL, descriptors=pool)
        for _ in range(20):
            log.append(*batch(bytes(60)), 0)
        begun = log.begin_flush()
        assert begun is not None
        read_all(log)
        begun.sync()
        log.end_flush(begun)
        assert log.flushed_offset == 20

    def test_truncation_makes_a_running_flush_worthless(self, files: MemoryFiles) -> None:
        log = open_log(files)
        log.append(*batch(b"a"), 0)
        log.append(*batch(b"b"), 0)
        begun = log.begin_flush()
        assert begun is not None
        log.truncate_to(1)
        log.append(*batch(b"c"), 1)
        begun.sync()
        log.end_flush(begun)
        assert log.flushed_offset <= 1


def test_directory_of_another_topic_is_refused(files: MemoryFiles) -> None:
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)
    open_log(files, topic_id=first).close()
    open_log(files, topic_id=first).close()
    with pytest.raises(StorageError, match="belongs to topic id"):
        open_log(files, topic_id=second)


def test_a_deleted_log_is_renamed_at_once_and_removed_later(files: MemoryFiles) -> None:
    topic_id = uuid.UUID(int=7)
    log = open_log(files, topic_id=topic_id)
    log.append(*batch(b"a"), 0)
    piece = log.read(0, 1000, 1)
    assert piece is not None
    remove = log.delete()
    assert files.listdir(DIRECTORY.parent) == [f"topic-0.{topic_id.hex}-delete"]
    assert open_log(files, topic_id=uuid.UUID(int=8)).log_end_offset == 0
    assert piece.bytes()
    piece.release()
    remove()
    assert files.listdir(DIRECTORY.parent) == ["topic-0"]
