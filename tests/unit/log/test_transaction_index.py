# SPDX-License-Identifier: Apache-2.0
"""The transaction index: Kafka's bytes, what is found in it, and that a missing one is unknown, not empty."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.log.leftovers import write_swap_journal
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.segments.cold_read import ColdRead
from headrace.log.segments.files import TRANSACTION_INDEX_SUFFIX
from headrace.log.segments.transaction_index import AbortedTransaction, TransactionIndex
from headrace.testing.memory_files import MemoryFiles
from headrace.wire.batch import split_batches
from headrace.world import read_file
from tests.harness.batches.log_tools import DIRECTORY, batch, flush, open_log
from tests.harness.batches.transactions import (
    TransactionalProducer,
    aborted_batches,
    filtered_batches,
    marker,
)

SMALL = LogConfig(segment_bytes=600)


def index_files(files: MemoryFiles) -> list[str]:
    return [name for name in files.listdir(DIRECTORY) if name.endswith(TRANSACTION_INDEX_SUFFIX)]


def entries_on_disk(files: MemoryFiles) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    for name in index_files(files):
        index = TransactionIndex.decode(read_file(files, DIRECTORY / name), int(name[:20]), 2**62)
        assert index is not None
        found += index
    return found


def all_aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return log.aborted_transactions(log.log_start_offset, log.log_end_offset)


def with_aborts(files: MemoryFiles, config: LogConfig = SMALL) -> PartitionLog:
    """Several segments; transactions within one and across several, aborted and committed."""
    log = open_log(files, config)
    first, second, third = (TransactionalProducer(number) for number in (1, 2, 3))
    first.send(log, bytes(50))
    for _ in range(3):
        second.send(log, bytes(50))
        second.abort(log)
        third.send(log, bytes(50))
        third.commit(log)
        for _ in range(3):
            log.append(*batch(bytes(50)), 0)
    first.abort(log)
    for _ in range(6):
        log.append(*batch(bytes(50)), 0)
    third.send(log, bytes(50))
    assert log.segment_count > 4
    return log


def check_answers(log: PartitionLog) -> None:
    """A reader of any range leaves out exactly what the fold of the log says."""
    aborted = aborted_batches(log)
    for start in range(log.log_start_offset, log.log_end_offset):
        for end in range(start + 1, log.log_end_offset + 1):
            expected = {each for each in aborted if start <= each[1] < end}
            assert filtered_batches(log, start, end) == expected, (start, end)


class TestFormat:
    ENTRY = AbortedTransaction(producer_id=0x0102, first_offset=5, last_offset=0x20, last_stable_offset=0x1F)
    BYTES = "0000 0000000000000102 0000000000000005 0000000000000020 000000000000001f"

    def test_bytes_are_kafkas(self) -> None:
        assert TransactionIndex([self.ENTRY]).encode() == bytes.fromhex(self.BYTES)
        decoded = TransactionIndex.decode(bytes.fromhex(self.BYTES), 8, 0x21)
        assert decoded is not None
        assert list(decoded) == [self.ENTRY]

    @pytest.mark.parametrize(
        ("base_offset", "end_offset", "change"),
        [
            (8, 0x20, {}),  # the marker lies behind the segment
            (0x21, 0x40, {}),  # or before it
            (8, 0x21, {0: 1}),  # another version
            (8, 0x21, {2: 0xFF}),  # a negative producer id
            (8, 0x21, {17: 0x20}),  # begins at its marker
            (8, 0x21, {33: 0x22}),  # a last stable offset behind the marker
        ],
    )
    def test_what_cannot_be_the_index_of_the_segment_is_refused(
        self, base_offset: int, end_offset: int, change: dict[int, int]
    ) -> None:
        data = bytearray.fromhex(self.BYTES)
        for position, value in change.items():
            data[position] = value
        assert TransactionIndex.decode(bytes(data), base_offset, end_offset) is None

    def test_half_an_entry_is_damage_and_nothing_at_all_is_an_index(self) -> None:
        data = bytes.fromhex(self.BYTES)
        assert all(TransactionIndex.decode(data[:size], 8, 0x21) is None for size in range(1, len(data)))
        empty = TransactionIndex.decode(b"", 8, 0x21)
        assert empty is not None
        assert len(empty) == 0

    def test_markers_that_do_not_rise_are_damage(self) -> None:
        data = bytes.fromhex(self.BYTES)
        assert TransactionIndex.decode(data + data, 8, 0x21) is None


class TestEntries:
    def test_abort_is_noted_with_the_last_stable_offset_of_its_moment(self) -> None:
        log = open_log(MemoryFiles())
        first, second = TransactionalProducer(1), TransactionalProducer(2)
        first.send(log, b"a", b"b")  # 0, 1
        second.send(log)  # 2
        second.abort(log)  # 3
        first.abort(log)  # 4
        assert all_aborted(log) == [AbortedTransaction(2, 2, 3, 0), AbortedTransaction(1, 0, 4, 5)]

    def test_commits_and_markers_without_a_transaction_are_not(self) -> None:
        log = open_log(MemoryFiles())
        producer = TransactionalProducer(1)
        producer.send(log)
        producer.commit(log)
        producer.abort(log)
        log.append(*marker(9, commits=False), 0)
        assert all_aborted(log) == []

    def test_entry_is_in_the_segment_of_its_marker(self) -> None:
        files = MemoryFiles()
        log = open_log(files, SMALL)
        producer = TransactionalProducer(1)
        producer.send(log, bytes(50))
        for _ in range(8):
            log.append(*batch(bytes(50)), 0)
        last = producer.abort(log)
        log.close()
        held = [name for name in index_files(files) if read_file(files, DIRECTORY / name)]
        assert held == [f"{max(b for b in log._segments.base_offsets if b <= last):020d}.txnindex"]

    def test_transactions_are_found_in_later_segments(self) -> None:
        log = with_aborts(MemoryFiles())
        assert [each.producer_id for each in log.aborted_transactions(0, 1)] == [1]
        check_answers(log)

    def test_search_stops_at_an_entry_whose_last_stable_offset_passes_the_range(self) -> None:
        index = TransactionIndex(
            [
                AbortedTransaction(1, 0, 10, 5),
                AbortedTransaction(2, 5, 20, 21),
                AbortedTransaction(3, 30, 40, 41),
            ]
        )
        assert index.overlapping(0, 5) == ([AbortedTransaction(1, 0, 10, 5)], True)
        assert index.overlapping(0, 6) == (list(index)[:2], True)
        assert index.overlapping(11, 6) == (list(index)[1:2], True)
        assert index.overlapping(50, 60) == ([], False)

    def test_what_is_not_in_the_file_yet_stays_in_memory(self) -> None:
        files = MemoryFiles()
        log = open_log(files)
        log.append(*batch(b"plain"), 0)
        log.close()
        log = open_log(files, recovery_point=1)
        producer = TransactionalProducer(1)
        producer.send(log)
        producer.abort(log)
        log._segments.active.release_indexes()
        assert all_aborted(log) == [AbortedTransaction(1, 1, 2, 3)]

    def test_a_follower_builds_the_same_index_from_its_own_log(self) -> None:
        leader = with_aborts(MemoryFiles())
        follower = open_log(MemoryFiles(), LogConfig(segment_bytes=900), directory=Path("/data/copy-0"))
        piece = leader.read(0, 1 << 20, leader.log_end_offset)
        while piece is not None:
            view = memoryview(bytearray(piece.bytes()))
            follower.append_as_replica(
                view, split_batches(view, 0, len(view), max_batch_bytes=None, producer=False)
            )
            piece.release()
            piece = leader.read(follower.log_end_offset, 1 << 20, leader.log_end_offset)
        assert all_aborted(follower) == all_aborted(leader)


class TestTruncation:
    @pytest.mark.parametrize("restart", [None, "clean", "killed"])
    def test_every_cut_leaves_what_the_shorter_log_says(self, restart: str | None) -> None:
        for offset in range(with_aborts(MemoryFiles()).log_end_offset):
            files = MemoryFiles()
            log = with_aborts(files)
            log.truncate_to(offset)
            if restart == "clean":
                log.close()
            if restart is not None:
                log = open_log(files, SMALL, clean=restart == "clean")
            expected = [each for each in all_aborted(with_aborts(MemoryFiles())) if each.last_offset < offset]
            assert all_aborted(log) == expected
            assert aborted_batches(log) == filtered_batches(log, 0, log.log_end_offset)

    def test_file_of_a_sealed_segment_is_cut_too(self) -> None:
        files = MemoryFiles()
        log = with_aborts(files)
        log.truncate_to(3)
        assert entries_on_disk(files) == all_aborted(log) == [AbortedTransaction(2, 1, 2, 0)]

    def test_marker_written_anew_gets_a_new_entry(self) -> None:
        log = open_log(MemoryFiles())
        producer = TransactionalProducer(1)
        producer.send(log)
        producer.abort(log)
        log.truncate_to(1)
        producer.commit(log)
        assert all_aborted(log) == []
        log.truncate_to(1)
        log.append(*batch(b"plain"), 1)
        producer.abort(log)
        assert all_aborted(log) == [AbortedTransaction(1, 0, 2, 3)]


def _damage(data: bytes) -> bytes:
    return data[:-1] if data else b"\x00"


class TestUnknown:
    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("snapshots", [True, False])
    @pytest.mark.parametrize("change", [None, _damage])
    def test_missing_or_damaged_index_is_rebuilt(
        self, clean: bool, snapshots: bool, change: Callable[[bytes], bytes] | None
    ) -> None:
        files = MemoryFiles()
        log = with_aborts(files)
        expected = all_aborted(log)
        log.close()
        for name in files.listdir(DIRECTORY):
            path = DIRECTORY / name
            if name.endswith(TRANSACTION_INDEX_SUFFIX):
                damaged = None if change is None else change(read_file(files, path))
                files.unlink(path)
                if damaged is not None:
                    file = files.open(path, "create")
                    file.pwritev([damaged], 0)
                    file.close()
            elif name.endswith(".snapshot") and not snapshots:
                files.unlink(path)
        again = open_log(files, SMALL, clean=clean, recovery_point=log.log_end_offset)
        assert all_aborted(again) == expected
        check_answers(again)
        again.close()
        third = open_log(files, SMALL, recovery_point=log.log_end_offset)
        assert all_aborted(third) == expected

    def test_one_missing_file_among_others_is_rebuilt(self) -> None:
        files = MemoryFiles()
        log = with_aborts(files)
        expected = all_aborted(log)
        log.close()
        for name in index_files(files):
            files.unlink(DIRECTORY / name)
            assert all_aborted(open_log(files, SMALL, recovery_point=log.log_end_offset)) == expected

    def test_index_named_by_the_swap_journal_is_rebuilt(self) -> None:
        files = MemoryFiles()
        log = with_aborts(files)
        expected = all_aborted(log)
        bases = log._segments.base_offsets
        log.close()
        for name in index_files(files):
            files.open(DIRECTORY / name, "write").truncate(0)
        write_swap_journal(files, DIRECTORY, bases)
        again = open_log(files, SMALL, recovery_point=log.log_end_offset)
        assert all_aborted(again) == expected

    def test_a_crash_right_after_the_journal_was_read_changes_nothing(self) -> None:
        files = MemoryFiles()
        log = with_aborts(files)
        expected, bases = all_aborted(log), log._segments.base_offsets
        log.close()
        write_swap_journal(files, DIRECTORY, bases)
        removed: list[str] = []

        def crash(operation: str, path: Path) -> None:
            if removed:
                raise KeyboardInterrupt
            if operation == "unlink" and path.name == "swap-in-progress":
                removed.append(path.name)

        files.on_operation = crash
        with pytest.raises(KeyboardInterrupt):
            open_log(files, SMALL, recovery_point=log.log_end_offset)
        files.on_operation = None
        files.crash()
        assert all_aborted(open_log(files, SMALL, clean=False, recovery_point=log.log_end_offset)) == expected

    def test_full_disk_marks_it_as_unknown(self) -> None:
        files = MemoryFiles()
        log = with_aborts(files)
        expected = all_aborted(log)
        segment = log._segments.active
        TransactionalProducer(7).send(log)
        log.append(*marker(7, commits=False), 0)
        files.capacity = files.used_bytes()
        assert not segment.save_aborted()
        files.capacity = 1 << 40
        assert len(read_file(files, segment.path(TRANSACTION_INDEX_SUFFIX))) == 1
        again = open_log(files, SMALL)
        assert all_aborted(again)[:-1] == expected
        assert all_aborted(again)[-1].producer_id == 7

    def test_full_disk_at_a_roll_leaves_no_earlier_version_of_it(self) -> None:
        files = MemoryFiles()
        log = open_log(files, SMALL)
        for _ in range(3):
            log.append(*batch(bytes(50)), 0)
        log.close()  # writes an empty index
        log = open_log(files, SMALL, recovery_point=3)
        producer = TransactionalProducer(1)
        producer.send(log)
        producer.abort(log)
        expected = all_aborted(log)
        files.errors["pwritev:.timeindex"] = OSError(errno.ENOSPC, "no space left on the disk")
        log.append(*batch(bytes(600)), 0)
        files.errors.clear()
        assert log.segment_count == 2
        flush(log)
        again = open_log(files, SMALL, clean=False, recovery_point=log.flushed_offset)
        assert all_aborted(again) == expected


class TestEarlierVersions:
    """Data folders from before the index: no `.txnindex`, and no transactions of our own."""

    def _folder(self, files: MemoryFiles, *, transactional: bool) -> PartitionLog:
        log = open_log(files, SMALL)
        producer = TransactionalProducer(4)
        for number in range(20):
            if transactional and number == 3:
                producer.send(log, bytes(50))
                producer.abort(log)
            else:
                log.append(*batch(bytes(50)), 0)
        log.close()
        for name in index_files(files):
            files.unlink(DIRECTORY / name)
        return log

    def test_opens_without_reading_sealed_segments_and_has_its_files_then(self) -> None:
        files = MemoryFiles()
        log = self._folder(files, transactional=False)
        sealed = {segment.pooled.path for segment in log._segments.sealed}
        usual = files.raise_injected

        def watch(operation: str, path: Path) -> None:
            assert operation != "pread" or path not in sealed, f"{path} is read"
            usual(operation, path)

        files.raise_injected = watch  # type: ignore[method-assign]
        again = open_log(files, SMALL, recovery_point=20)
        assert all_aborted(again) == []
        assert len(index_files(files)) == again.segment_count
        again.close()
        assert all_aborted(open_log(files, SMALL, recovery_point=20)) == []

    def test_transactions_fetched_from_a_newer_leader_are_found(self) -> None:
        files = MemoryFiles()
        log = self._folder(files, transactional=True)
        assert len(all_aborted(open_log(files, SMALL, recovery_point=log.log_end_offset))) == 1


class TestDurability:
    def test_flush_makes_the_index_durable_with_its_segment(self) -> None:
        for seed in range(20):
            files = MemoryFiles()
            files.make_directory(DIRECTORY.parent)
            files.sync_directory(Path("/"))
            files.random.seed(seed)
            log = with_aborts(files)
            expected = all_aborted(log)
            flush(log)
            files.crash()
            again = open_log(files, SMALL, clean=False, recovery_point=log.flushed_offset)
            assert all_aborted(again) == expected
            check_answers(again)

    def test_index_of_a_segment_that_was_sealed_after_its_last_flush_is_not_trusted(self) -> None:
        """The recovery point stands where the segment ends; the roll came later and was not flushed."""
        for seed in range(20):
            files = MemoryFiles()
            files.make_directory(DIRECTORY.parent)
            files.sync_directory(Path("/"))
            files.random.seed(seed)
            log = open_log(files, SMALL)
            producer = TransactionalProducer(1)
            producer.send(log)
            producer.abort(log)
            expected = all_aborted(log)
            flush(log)
            recovery_point = log.flushed_offset
            log.append(*batch(bytes(600)), 0)
            assert log.segment_count == 2
            files.crash()
            again = open_log(files, SMALL, clean=False, recovery_point=recovery_point)
            assert all_aborted(again) == expected

    def test_deleted_segments_take_their_index_with_them(self) -> None:
        files = MemoryFiles()
        log = with_aborts(files)
        flush(log)
        log.delete_records_before(log._segments[2].base_offset)
        deleted = [name for name in files.listdir(DIRECTORY) if name.endswith(".txnindex.deleted")]
        assert len(deleted) == 2
        check_answers(log)


def test_cold_index_is_named_before_it_is_waited_for() -> None:
    files = MemoryFiles()
    log = with_aborts(files)
    log.close()
    again = open_log(files, SMALL, recovery_point=log.log_end_offset)
    files.cold_names = set(index_files(files))
    with pytest.raises(ColdRead) as cold:
        again.aborted_transactions(0, 1, wait=False)
    cold.value.warm()
    cold.value.release()
    files.cold_names.clear()
    assert again.aborted_transactions(0, 1, wait=False)


class TestReadersBehindTheLastAbort:
    def make_all_cold(self, files: MemoryFiles, log: PartitionLog) -> None:
        """Whoever reads an index has to wait for the disk from now on."""
        for segment in log._segments:
            segment.save_aborted()
            segment.release_indexes()
        files.cold_names = set(index_files(files))

    def test_a_log_without_aborts_is_read_without_its_indexes(self) -> None:
        files = MemoryFiles()
        log = open_log(files, SMALL)
        for _ in range(20):
            log.append(*batch(bytes(50)), 0)
        log.close()
        log = open_log(files, SMALL, recovery_point=log.log_end_offset)
        assert log.aborted_transactions(0, 1) == []
        self.make_all_cold(files, log)
        for start in range(log.log_end_offset):
            assert log.aborted_transactions(start, log.log_end_offset, wait=False) == []

    def test_only_readers_below_the_last_abort_need_an_index(self) -> None:
        files = MemoryFiles()
        log = with_aborts(files)
        last = all_aborted(log)[-1].last_offset
        assert log.aborted_transactions(last + 1, log.log_end_offset) == []
        self.make_all_cold(files, log)
        assert log.aborted_transactions(last + 1, log.log_end_offset, wait=False) == []
        with pytest.raises(ColdRead):
            log.aborted_transactions(last, log.log_end_offset, wait=False)

    def test_an_abort_after_the_reading_is_found(self) -> None:
        log = with_aborts(MemoryFiles())
        start = all_aborted(log)[-1].last_offset + 1
        assert log.aborted_transactions(start, log.log_end_offset) == []
        producer = TransactionalProducer(9)
        first = producer.send(log)
        last = producer.abort(log)
        assert [each.first_offset for each in log.aborted_transactions(start, last)] == [first]
        assert log.aborted_transactions(last + 1, last + 2) == []
        check_answers(log)

    def test_an_abort_in_the_place_of_a_truncated_one_is_found(self) -> None:
        log = with_aborts(MemoryFiles())
        cut = all_aborted(log)[0].last_offset
        assert log.aborted_transactions(log.log_end_offset - 1, log.log_end_offset) == []
        log.truncate_to(cut)
        producer = TransactionalProducer(9)
        first = producer.send(log, leader_epoch=1)
        last = producer.end(log, commits=False, leader_epoch=1)
        assert [each.first_offset for each in log.aborted_transactions(first, last)] == [first]
        check_answers(log)

    def test_an_emptied_log_that_starts_lower_has_its_own_aborts(self) -> None:
        log = with_aborts(MemoryFiles())
        assert log.aborted_transactions(log.log_end_offset - 1, log.log_end_offset) == []
        log.truncate_fully_and_start_at(3)
        producer = TransactionalProducer(9)
        producer.send(log)
        producer.abort(log)
        assert [each.first_offset for each in log.aborted_transactions(3, 4)] == [3]

    def test_a_later_transaction_that_began_behind_the_range_is_not_lost_for_the_next_reader(self) -> None:
        """Nothing overlaps the first range, yet there are aborts above it."""
        log = open_log(MemoryFiles(), SMALL)
        for _ in range(8):
            log.append(*batch(bytes(50)), 0)
        producer = TransactionalProducer(1)
        first = producer.send(log, bytes(50))
        producer.abort(log)
        assert log.aborted_transactions(0, 2) == []
        assert [each.first_offset for each in log.aborted_transactions(2, first + 1)] == [first]
