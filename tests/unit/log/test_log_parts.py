# SPDX-License-Identifier: Apache-2.0
"""The small parts: descriptors, indexes, epochs, checkpoints, meta.properties, the clean-stop marker."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import StorageError
from headrace.log.checkpoints import (
    CLEAN_MARKER_FILE,
    META_PROPERTIES_FILE,
    check_meta_properties,
    read_clean_marker,
    read_offset_checkpoint,
    take_clean_marker,
    write_clean_marker,
    write_offset_checkpoint,
)
from headrace.log.epochs import EpochEntry, EpochHistory
from headrace.log.log_config import LogConfig
from headrace.log.segments.descriptors import DescriptorPool
from headrace.log.segments.index import OffsetIndex, TimeIndex
from headrace.testing.memory_files import MemoryFiles
from headrace.types import TopicPartition
from headrace.world import read_file, replace_file
from tests.harness.batches.log_tools import DIRECTORY, NOW_MS, batch, flush, open_log, read_all

DATA = Path("/data")


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DATA)
    return files


class TestDescriptors:
    def test_many_partitions_share_few_descriptors(self, files: MemoryFiles) -> None:
        pool = DescriptorPool(files, 20)
        logs = [
            open_log(files, descriptors=pool, directory=DATA / f"topic-{number}") for number in range(200)
        ]
        for turn in range(3):
            for log in logs:
                assert log.append(*batch(b"x"), 0) == turn
                assert pool.open_count <= 20
        assert files.open_files <= 20
        for log in logs:
            assert len(read_all(log)) == 3
            log.close()
        assert files.open_files == 0

    def test_pinned_files_stay_open_beyond_the_limit(self, files: MemoryFiles) -> None:
        pool = DescriptorPool(files, 2)
        for name in "abcd":
            files.open(DATA / name, "create").close()
        pinned = [pool.file(DATA / name, "read") for name in "abc"]
        for pooled in pinned:
            pooled.pin()
        other = pool.file(DATA / "d")
        other.get()
        assert all(each.file is not None for each in pinned)
        for each in pinned:
            each.unpin()
        assert pool.file(DATA / "a").get()
        assert pool.open_count <= 4

    def test_a_file_in_use_survives_one_that_is_not(self, files: MemoryFiles) -> None:
        pool = DescriptorPool(files, 3)
        for name in "abcd":
            files.open(DATA / name, "create").close()
        a, b, c, d = (pool.file(DATA / name) for name in "abcd")
        for each in (a, b, c):
            each.get()
        a.used, b.used, c.used = True, False, True
        d.get()
        assert (a.file is None, b.file is None, c.file is None) == (False, True, False)

    def test_retired_file_closes_with_its_last_pin(self, files: MemoryFiles) -> None:
        files.open(DATA / "a", "create").close()
        pooled = DescriptorPool(files, 3).file(DATA / "a", "read")
        pooled.pin()
        pooled.retire()
        assert files.open_files == 1
        pooled.unpin()
        assert files.open_files == 0

    def test_indexes_of_sealed_segments_are_bounded(self, files: MemoryFiles) -> None:
        pool = DescriptorPool(files, 10, index_bytes=500)
        log = open_log(files, LogConfig(segment_bytes=2000, index_interval_bytes=0), descriptors=pool)
        for number in range(200):
            log.append(*batch(bytes(50), timestamp=NOW_MS + number), 0)
        for offset in range(0, 200, 7):
            assert read_all(log, offset)[0].offset == offset
        loaded = [segment for segment in log._segments.sealed if segment._index is not None]
        assert len(loaded) <= 2


class TestIndexes:
    def test_offset_index_round_trip_and_lookup(self) -> None:
        index = OffsetIndex()
        for entry in ((3, 100), (9, 700), (2**31 - 1, 2**31 - 1)):
            index.append(*entry)
        again = OffsetIndex.decode(index.encode(), log_size=2**31)
        assert again is not None
        assert again.last_at_or_below(2) is None
        assert again.last_at_or_below(8) == (3, 100)
        assert again.last_at_or_before(700) == (9, 700)
        assert again.last_at_or_before(99) is None

    def test_impossible_offset_index_is_refused(self) -> None:
        index = OffsetIndex()
        index.append(1, 50)
        assert OffsetIndex.decode(index.encode()[:-1], log_size=100) is None
        assert OffsetIndex.decode(index.encode(), log_size=50) is None

    def test_time_index_keeps_only_what_is_later(self) -> None:
        index = TimeIndex()
        for timestamp, offset in ((5, 1), (5, 2), (4, 3), (NOW_MS, 4)):
            index.append_if_later(timestamp, offset)
        again = TimeIndex.decode(index.encode())
        assert again is not None
        assert [again.timestamp(slot) for slot in range(len(again))] == [5, NOW_MS]
        assert again.last_at_or_below(NOW_MS - 1) == (5, 1)
        assert again.last_at_or_below(4) is None
        assert again.last == (NOW_MS, 4)
        assert TimeIndex.decode(b"123") is None

    def test_truncation(self) -> None:
        index, times = OffsetIndex(), TimeIndex()
        for number in range(5):
            index.append(number, 10 * number)
            times.append_if_later(number, number)
        index.truncate(20)
        times.truncate(2)
        assert [index.entry(slot).position for slot in range(len(index))] == [0, 10]
        assert [times.timestamp(slot) for slot in range(len(times))] == [0, 1]
        times.append_if_later(7, 2)
        assert times.last == (7, 2)
        index.truncate(0)
        times.truncate(0)
        assert (len(index), len(times), times.last) == (0, 0, None)


class TestEpochs:
    def history(self, files: MemoryFiles, *entries: tuple[int, int]) -> EpochHistory:
        return EpochHistory(files, DATA, [EpochEntry(*entry) for entry in entries])

    def test_end_of_an_epoch_is_the_start_of_the_next(self, files: MemoryFiles) -> None:
        history = self.history(files, (2, 10), (5, 30), (6, 70))
        assert history.end_offset_for(6, 99) == (6, 99)
        assert history.end_offset_for(5, 99) == (5, 70)
        assert history.end_offset_for(4, 99) == (2, 30)
        assert history.end_offset_for(1, 99) == (1, 10)
        assert history.end_offset_for(7, 99) == (-1, -1)
        assert history.end_offset_for(-1, 99) == (-1, -1)
        assert self.history(files).end_offset_for(0, 99) == (-1, -1)

    def test_epoch_of_an_offset(self, files: MemoryFiles) -> None:
        history = self.history(files, (2, 10), (5, 30))
        assert [history.epoch_for(offset) for offset in (9, 10, 29, 30)] == [-1, 2, 2, 5]

    def test_older_epochs_do_not_come_back_and_empty_ones_go(self, files: MemoryFiles) -> None:
        history = self.history(files, (2, 10))
        history.assign(1, 20)
        history.assign(3, 20)
        history.assign(4, 20)
        assert history.entries == ((2, 10), (4, 20))

    def test_truncation_from_both_ends(self, files: MemoryFiles) -> None:
        history = self.history(files, (2, 10), (5, 30), (6, 70))
        history.truncate_from_end(70)
        history.truncate_from_start(40)
        assert history.entries == ((5, 40),)
        history.truncate_from_end(40)
        assert (history.entries, history.latest) == ((), -1)

    def test_file_is_kafkas(self, files: MemoryFiles) -> None:
        history = self.history(files)
        history.assign(3, 0)
        history.assign(4, 17)
        history.save()
        assert read_file(files, DATA / "leader-epoch-checkpoint") == b"0\n2\n3 0\n4 17\n"
        loaded = EpochHistory.load(files, DATA)
        assert loaded is not None
        assert loaded.entries == history.entries

    @pytest.mark.parametrize(
        "text", ["", "1\n0\n", "0\n2\n1 1\n", "0\n1\nx 1\n", "0\n2\n3 5\n2 9\n", "0\n1\n1 -4\n"]
    )
    def test_file_that_makes_no_sense_is_folded_from_the_log(self, files: MemoryFiles, text: str) -> None:
        log = open_log(files)
        for epoch in (1, 1, 4):
            log.append(*batch(b"x"), epoch)
        log.close()
        replace_file(files, DIRECTORY / "leader-epoch-checkpoint", text.encode())
        assert EpochHistory.load(files, DIRECTORY) is None
        again = open_log(files, recovery_point=3)
        assert again.epochs.entries == ((1, 0), (4, 2))

    def test_the_epoch_of_a_new_leader_is_written_before_any_append(self, files: MemoryFiles) -> None:
        log = open_log(files)
        log.append(*batch(b"x"), 1)
        log.epochs.assign(2, log.log_end_offset)
        write = log.epochs.take_unsaved()
        assert write is not None
        write()
        loaded = EpochHistory.load(files, DIRECTORY)
        assert loaded is not None
        assert loaded.entries == ((1, 0), (2, 1))

    def test_flush_makes_the_epochs_durable(self, files: MemoryFiles) -> None:
        log = open_log(files)
        log.append(*batch(b"x"), 1)
        flush(log)
        log.append(*batch(b"x"), 3)
        flush(log)
        assert read_file(files, DIRECTORY / "leader-epoch-checkpoint") == b"0\n2\n1 0\n3 1\n"

    def test_a_thread_that_comes_late_does_not_bring_older_epochs_back(self, files: MemoryFiles) -> None:
        history = self.history(files, (2, 10))
        writes = []
        for epoch in (3, 4):
            history.assign(epoch, 20)
            write = history.take_unsaved()
            assert write is not None
            writes.append(write)
        for write in reversed(writes):
            write()
        assert read_file(files, DATA / "leader-epoch-checkpoint") == b"0\n2\n2 10\n4 20\n"

    def test_a_thread_that_comes_late_does_not_bring_truncated_epochs_back(self, files: MemoryFiles) -> None:
        history = self.history(files, (2, 10))
        history.assign(3, 20)
        write = history.take_unsaved()
        assert write is not None
        history.truncate_from_end(20)
        history.save()
        write()
        assert read_file(files, DATA / "leader-epoch-checkpoint") == b"0\n1\n2 10\n"


class TestCheckpoints:
    def test_file_is_kafkas(self, files: MemoryFiles) -> None:
        offsets = {TopicPartition("b", 0): 7, TopicPartition("a", 11): 2**40}
        write_offset_checkpoint(files, DATA / "file", offsets)
        assert read_file(files, DATA / "file") == b"0\n2\na 11 1099511627776\nb 0 7\n"
        assert read_offset_checkpoint(files, DATA / "file") == offsets

    def test_missing_file_is_empty(self, files: MemoryFiles) -> None:
        assert read_offset_checkpoint(files, DATA / "file") == {}

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "version"),
            ("1\n0\n", "version '1'"),
            ("0\nmany\n", "invalid literal"),
            ("0\n2\na 0 1\n", "2 entries announced, 1 lines"),
            ("0\n1\na 0\n", "line 3: 'a 0'"),
            ("0\n1\na 0 -1\n", "line 3"),
            ("0\n2\na 0 1\na 0 2\n", "twice"),
        ],
    )
    def test_broken_file_is_refused_with_what_is_wrong(
        self, files: MemoryFiles, text: str, said: str
    ) -> None:
        replace_file(files, DATA / "file", text.encode())
        with pytest.raises(StorageError, match=said) as raised:
            read_offset_checkpoint(files, DATA / "file")
        assert "/data/file" in str(raised.value)


class TestMetaProperties:
    def test_written_once_then_checked(self, files: MemoryFiles) -> None:
        check_meta_properties(files, DATA, cluster_id="c1", node_id=3, new_directory_id="d")
        text = read_file(files, DATA / META_PROPERTIES_FILE).decode()
        assert text == "version=1\ncluster.id=c1\nnode.id=3\nheadrace.format=1\ndirectory.id=d\n"
        again = check_meta_properties(files, DATA, cluster_id="c1", node_id=3, new_directory_id="e")
        assert again == "d"
        with pytest.raises(StorageError, match=r"cluster\.id is 'c1', but this node has 'c2'"):
            check_meta_properties(files, DATA, cluster_id="c2", node_id=3, new_directory_id="d")
        with pytest.raises(StorageError, match=r"node\.id is '3', but this node has '4'"):
            check_meta_properties(files, DATA, cluster_id="c1", node_id=4, new_directory_id="d")

    def test_directory_of_an_earlier_version_gets_an_id(self, files: MemoryFiles) -> None:
        text = "version=1\ncluster.id=c1\nnode.id=3\nheadrace.format=1\n"
        replace_file(files, DATA / META_PROPERTIES_FILE, text.encode())
        for new in ("d", "e"):
            found = check_meta_properties(files, DATA, cluster_id="c1", node_id=3, new_directory_id=new)
            assert found == "d"
        assert read_file(files, DATA / META_PROPERTIES_FILE).decode() == text + "directory.id=d\n"

    def test_newer_format_is_refused_in_one_line(self, files: MemoryFiles) -> None:
        text = "cluster.id=c1\nnode.id=3\nheadrace.format=2\n"
        replace_file(files, DATA / META_PROPERTIES_FILE, text.encode())
        with pytest.raises(StorageError, match="newer Headrace") as raised:
            check_meta_properties(files, DATA, cluster_id="c1", node_id=3, new_directory_id="d")
        assert "\n" not in str(raised.value)

    def test_directory_of_something_else_is_refused(self, files: MemoryFiles) -> None:
        replace_file(files, DATA / META_PROPERTIES_FILE, b"version=1\nnode.id=3\n")
        with pytest.raises(StorageError, match="not a directory of Headrace"):
            check_meta_properties(files, DATA, cluster_id="c1", node_id=3, new_directory_id="d")


class TestCleanMarker:
    def test_taken_away_at_the_first_look(self, files: MemoryFiles) -> None:
        assert not take_clean_marker(files, DATA)
        write_clean_marker(files, DATA, node_epoch=4, boot_id="b", checksums={"a": 1})
        expected = {"version": 0, "brokerEpoch": 4, "bootId": "b", "checksums": {"a": 1}}
        assert read_clean_marker(files, DATA) == expected
        assert take_clean_marker(files, DATA)
        assert not take_clean_marker(files, DATA)

    def test_unreadable_marker_is_no_marker(self, files: MemoryFiles) -> None:
        replace_file(files, DATA / CLEAN_MARKER_FILE, b"{")
        assert not take_clean_marker(files, DATA)
        assert not files.exists(DATA / CLEAN_MARKER_FILE)
