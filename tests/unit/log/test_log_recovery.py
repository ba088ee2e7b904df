# SPDX-License-Identifier: Apache-2.0
"""Opening after an unclean stop: what is scanned, what is cut, what is never cut (R26, R27)."""

from __future__ import annotations

from uuid import UUID

import pytest

from headrace.errors import CorruptLogError
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.scrub import scrub
from headrace.testing.memory_files import MemoryFiles
from headrace.world import read_file
from tests.harness.batches.log_tools import DIRECTORY, NOW_MS, Producer, batch, flush, open_log, read_all

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)
BATCH_BYTES = len(batch(bytes(50))[0])


def filled(files: MemoryFiles, count: int = 20, config: LogConfig = SMALL) -> PartitionLog:
    """Every batch has one record and the same size; four fit into a segment."""
    log = open_log(files, config)
    for number in range(count):
        log.append(*batch(bytes(50), timestamp=NOW_MS + number), 0)
    return log


def segment_file(log: PartitionLog, slot: int) -> str:
    return log._segments[slot].pooled.path.name


def overwrite(files: MemoryFiles, name: str, position: int, data: bytes) -> None:
    file = files.open(DIRECTORY / name, "write")
    file.pwritev([data], position)
    file.close()


def operations_of(files: MemoryFiles, *kinds: str) -> list[str]:
    """Names of the files that such operations touch from now on."""
    seen: list[str] = []
    files.on_operation = lambda kind, path: seen.append(path.name) if kind in kinds else None
    return seen


def values(log: PartitionLog) -> int:
    return len(read_all(log))


def test_a_kill_loses_nothing_that_was_appended() -> None:
    files = MemoryFiles()
    filled(files)
    log = open_log(files, SMALL, clean=False)
    assert (log.log_end_offset, values(log)) == (20, 20)
    assert log.recovery.batches_scanned == 20
    assert log.recovery.bytes_cut == 0


def test_segments_below_the_recovery_point_are_not_scanned() -> None:
    files = MemoryFiles()
    log = filled(files)
    flush(log)
    last = log._segments.active.base_offset
    again = open_log(files, SMALL, clean=False, recovery_point=20)
    assert again.recovery.batches_scanned == 20 - last


def test_clean_stop_needs_no_scan() -> None:
    files = MemoryFiles()
    filled(files).close()
    log = open_log(files, SMALL, recovery_point=20)
    assert log.recovery.clean
    assert log.recovery.batches_scanned == 0
    assert values(log) == 20


def test_idle_log_stops_without_touching_the_disk() -> None:
    files = MemoryFiles()
    filled(files).close()
    for _ in range(2):
        log = open_log(files, SMALL, recovery_point=20)
        before = files.operations
        log.close()
        assert files.operations == before
    empty = open_log(files, directory=DIRECTORY.with_name("empty-0"))
    before = files.operations
    empty.close()
    assert files.operations == before


def test_opening_after_a_kill_does_not_flush_and_counts_nothing_as_flushed() -> None:
    files = MemoryFiles()
    filled(files)
    synced = operations_of(files, "fsync", "sync_directory")
    log = open_log(files, SMALL, clean=False, recovery_point=3)
    assert synced == []
    assert (log.flushed_offset, log.log_end_offset) == (3, 20)
    flush(log)
    assert log.flushed_offset == 20
    files.crash()
    assert values(open_log(files, SMALL, clean=False, recovery_point=20)) == 20


def test_a_cut_is_on_disk_before_anything_takes_its_place() -> None:
    files = MemoryFiles()
    log = filled(files)
    overwrite(files, segment_file(log, -1), log._segments.active.size, b"torn")
    synced = operations_of(files, "fsync")
    open_log(files, SMALL, clean=False)
    assert synced == [segment_file(log, -1)]


def test_log_start_above_the_recovery_point_is_made_safe_at_once() -> None:
    files = MemoryFiles()
    filled(files)
    log = open_log(files, SMALL, clean=False, recovery_point=3, log_start_offset=10)
    assert (log.log_start_offset, log.flushed_offset) == (10, 20)


def test_a_new_log_is_two_names_and_costs_no_fsync() -> None:
    files = MemoryFiles()
    synced = operations_of(files, "fsync", "sync_directory")
    log = open_log(files, SMALL, topic_id=UUID(int=7))
    assert sorted(files.listdir(DIRECTORY)) == ["00000000000000000000.log", "partition.metadata"]
    log.close()
    assert synced == []
    log = open_log(files, SMALL, topic_id=UUID(int=7))
    log.append(*batch(b"first"), 0)
    flush(log)
    files.crash()
    assert values(open_log(files, SMALL, clean=False, recovery_point=1, topic_id=UUID(int=7))) == 1


@pytest.mark.parametrize("torn", [1, 12, 40, 61, 100])
def test_torn_tail_is_cut_at_the_last_whole_batch(torn: int) -> None:
    files = MemoryFiles()
    log = filled(files)
    overwrite(files, segment_file(log, -1), log._segments.active.size, bytes(batch(bytes(50))[0])[:torn])
    again = open_log(files, SMALL, clean=False)
    assert (again.log_end_offset, again.recovery.bytes_cut) == (20, torn)
    assert again.append(*batch(b"next"), 1) == 20
    assert values(again) == 21


def test_zeros_behind_the_last_batch_are_cut() -> None:
    files = MemoryFiles()
    log = filled(files)
    overwrite(files, segment_file(log, -1), log._segments.active.size, bytes(500))
    again = open_log(files, SMALL, clean=False)
    assert (again.log_end_offset, again.recovery.bytes_cut) == (20, 500)
    assert "magic" in (again.recovery.fault or "")


def test_bad_batch_cuts_the_rest_and_drops_later_segments() -> None:
    files = MemoryFiles()
    log = filled(files)
    assert log.segment_count > 3
    end = log._segments[1].base_offset + 1
    overwrite(files, segment_file(log, 1), BATCH_BYTES + 70, b"\xff")
    again = open_log(files, SMALL, clean=False)
    assert again.log_end_offset == end
    assert again.recovery.segments_dropped == log.segment_count - 2
    assert values(again) == end
    assert len([name for name in files.listdir(DIRECTORY) if name.endswith(".log")]) == 2


def test_missing_segment_beyond_the_recovery_point_ends_the_log_there() -> None:
    files = MemoryFiles()
    log = filled(files)
    end = log._segments[1].base_offset
    files.unlink(DIRECTORY / segment_file(log, 1))
    again = open_log(files, SMALL, clean=False)
    assert (again.log_end_offset, again.recovery.fault) == (end, f"offset {end} is missing")


@pytest.mark.parametrize("slot", [0, -1])
def test_bad_crc_below_the_recovery_point_is_never_cut(slot: int) -> None:
    files = MemoryFiles()
    log = filled(files)
    name, base = segment_file(log, slot), log._segments[slot].base_offset
    overwrite(files, name, BATCH_BYTES + 70, b"\xff")
    before = read_file(files, DIRECTORY / name)
    recovery_point = 20 if slot else base + 4
    with pytest.raises(CorruptLogError) as raised:
        open_log(files, SMALL, clean=False, recovery_point=recovery_point)
    message = str(raised.value)
    assert f"{name}: a batch does not match its CRC at position {BATCH_BYTES}" in message
    assert f"offset {base + 1} is expected" in message
    assert read_file(files, DIRECTORY / name) == before


def test_clean_stop_with_a_rotten_tail_is_reported() -> None:
    files = MemoryFiles()
    log = filled(files)
    size = log._segments.active.size
    log.close()
    overwrite(files, segment_file(log, -1), size - 3, b"\xff")
    with pytest.raises(CorruptLogError, match="CRC"):
        open_log(files, SMALL, recovery_point=20)


def test_clean_stop_with_a_shortened_file_is_reported() -> None:
    files = MemoryFiles()
    log = filled(files)
    log.close()
    file = files.open(DIRECTORY / segment_file(log, -1), "write")
    file.truncate(log._segments.active.size - BATCH_BYTES)
    file.close()
    with pytest.raises(CorruptLogError, match="ends too early"):
        open_log(files, SMALL, recovery_point=20)


def test_reading_a_rotten_header_is_reported() -> None:
    files = MemoryFiles()
    log = filled(files, config=LogConfig())
    overwrite(files, segment_file(log, 0), 16, b"\x07")
    with pytest.raises(CorruptLogError, match="no valid batch header at position 0"):
        log.read(1, 1000, 20)


def test_epoch_that_falls_ends_the_log() -> None:
    """Old batches that show through behind new ones after a truncation was lost."""
    files = MemoryFiles()
    log = open_log(files)
    log.append(*batch(b"new"), 5)
    stale, _ = batch(b"old")
    stale[0:8] = (1).to_bytes(8, "big")
    stale[12:16] = (4).to_bytes(4, "big")
    overwrite(files, segment_file(log, 0), log._segments.active.size, bytes(stale))
    again = open_log(files, clean=False)
    assert (again.log_end_offset, again.recovery.fault) == (1, "leader epoch 4 falls below 5")


def test_gap_is_a_fault_where_no_compaction_can_be() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append(*batch(b"a"), 0)
    ahead, _ = batch(b"b", base_offset=0, leader_epoch=0)
    ahead[0:8] = (9).to_bytes(8, "big")
    overwrite(files, segment_file(log, 0), log._segments.active.size, bytes(ahead))
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}))
    assert open_log(files.clone(), compacted, clean=False).log_end_offset == 10
    assert open_log(files, clean=False).log_end_offset == 1


def test_checkpoint_of_a_former_topic_does_not_bind_a_new_directory() -> None:
    log = open_log(MemoryFiles(), clean=False, recovery_point=500, log_start_offset=400)
    assert (log.log_start_offset, log.log_end_offset, log.recovery.clean) == (0, 0, True)


def test_log_start_above_the_log_end_starts_an_empty_log_there() -> None:
    """Records were deleted on request, then lost their unsynced tail: used offsets stay used."""
    files = MemoryFiles()
    filled(files)
    log = open_log(files, SMALL, clean=False, log_start_offset=25)
    assert (log.log_start_offset, log.log_end_offset) == (25, 25)
    assert log.append(*batch(b"x"), 0) == 25


class TestIndexes:
    def test_removed_indexes_are_rebuilt(self) -> None:
        files = MemoryFiles()
        filled(files).close()
        kept = {n: read_file(files, DIRECTORY / n) for n in files.listdir(DIRECTORY) if "index" in n}
        for name in kept:
            files.unlink(DIRECTORY / name)
        log = open_log(files, SMALL, recovery_point=20)
        assert values(log) == 20
        assert log.offset_of_max_timestamp() == (NOW_MS + 19, 19)
        log.close()
        assert {n: read_file(files, DIRECTORY / n) for n in files.listdir(DIRECTORY) if "index" in n} == kept

    def test_an_index_of_another_log_is_not_used(self) -> None:
        files = MemoryFiles()
        log = filled(files)
        log.close()
        name = f"{log._segments[1].base_offset:020d}.index"
        overwrite(files, name, 0, (2).to_bytes(4, "big") + (77).to_bytes(4, "big"))
        again = open_log(files, SMALL, recovery_point=20)
        for offset in range(20):
            assert read_all(again, offset)[0].offset == offset

    def test_format_is_kafkas(self) -> None:
        files = MemoryFiles()
        log = filled(files, count=5, config=LogConfig(index_interval_bytes=100))
        log.close()
        size = BATCH_BYTES
        index = read_file(files, DIRECTORY / f"{0:020d}.index")
        assert [int.from_bytes(index[i : i + 4], "big") for i in range(0, len(index), 4)] == [
            *(1, size), *(2, 2 * size), *(3, 3 * size), *(4, 4 * size)
        ]  # fmt: skip
        times = read_file(files, DIRECTORY / f"{0:020d}.timeindex")
        entries = [(times[i : i + 8], times[i + 8 : i + 12]) for i in range(0, len(times), 12)]
        assert [(int.from_bytes(t, "big"), int.from_bytes(o, "big")) for t, o in entries] == [
            (NOW_MS + number, number) for number in (1, 2, 3, 4)
        ]


class TestLeftovers:
    def test_unfinished_compaction_is_thrown_away(self) -> None:
        files = MemoryFiles()
        filled(files)
        for suffix in (".log.cleaned", ".index.cleaned", ".timeindex.cleaned"):
            files.open(DIRECTORY / (f"{0:020d}" + suffix), "create").close()
        assert values(open_log(files, SMALL, clean=False)) == 20
        assert not [name for name in files.listdir(DIRECTORY) if name.endswith(".cleaned")]

    def test_finished_compaction_gets_its_name(self) -> None:
        files = MemoryFiles()
        log = filled(files)
        name = segment_file(log, 0)
        data = bytearray(read_file(files, DIRECTORY / name))
        files.open(DIRECTORY / (name + ".swap"), "create").pwritev([data], 0)
        overwrite(files, name, 0, bytes(len(data)))
        assert values(open_log(files, SMALL, clean=False)) == 20
        assert not [each for each in files.listdir(DIRECTORY) if each.endswith(".swap")]

    def test_deleted_segment_takes_earlier_ones_with_it(self) -> None:
        """Names reach the disk in any order: a hole in the log must not come of it."""
        files = MemoryFiles()
        log = filled(files)
        second, third = segment_file(log, 1), log._segments[2].base_offset
        files.rename(DIRECTORY / second, DIRECTORY / (second + ".deleted"))
        again = open_log(files, SMALL, clean=False)
        assert again.log_start_offset == third
        assert values(again) == 20 - third
        assert not [name for name in files.listdir(DIRECTORY) if name.endswith(".deleted")]

    def test_offsets_of_deleted_segments_are_not_given_out_again(self) -> None:
        files = MemoryFiles()
        log = filled(files, count=3, config=LogConfig())
        name = segment_file(log, 0)
        files.rename(DIRECTORY / name, DIRECTORY / (name + ".deleted"))
        again = open_log(files, clean=False)
        assert (again.log_start_offset, again.log_end_offset) == (3, 3)


class TestScrub:
    def test_sound_log_has_no_faults(self) -> None:
        log = filled(MemoryFiles())
        report = scrub(log.plan_scrub())
        assert (report.batches, report.bytes_read, report.faults) == (20, log.size_bytes, ())

    def test_fault_is_named_by_file_position_and_offset(self) -> None:
        files = MemoryFiles()
        log = filled(files)
        flush(log)
        name, base = segment_file(log, 1), log._segments[1].base_offset
        overwrite(files, name, BATCH_BYTES + 65, b"\xee")
        (fault,) = scrub(log.plan_scrub()).faults
        assert (fault.path.name, fault.position, fault.offset) == (name, BATCH_BYTES, base + 1)
        assert "CRC" in str(fault)

    def test_segment_deleted_meanwhile_is_passed_over(self) -> None:
        files = MemoryFiles()
        log = filled(files)
        plan = log.plan_scrub()
        log.delete_records_before(log._segments[1].base_offset)
        assert scrub(plan).faults == ()


def test_leftovers_of_a_failed_write_are_truncated() -> None:
    """A power cut may undo the removal of a torn batch; nothing is missing, so it is no bit rot."""
    files = MemoryFiles()
    log = filled(files)
    flush(log)
    sealed = segment_file(log, 0)
    whole = files.open(DIRECTORY / sealed, "read").size()
    overwrite(files, sealed, whole, bytes(batch(bytes(50))[0])[:40])
    for name in files.listdir(DIRECTORY):
        if name.endswith("index"):
            files.unlink(DIRECTORY / name)
    again = open_log(files, SMALL, clean=False, recovery_point=log.flushed_offset)
    assert values(again) == 20
    assert files.open(DIRECTORY / sealed, "read").size() == whole


def test_segments_below_the_log_start_stay_until_their_producers_are_in_a_snapshot() -> None:
    files = MemoryFiles()
    log = open_log(files, SMALL)
    producer = Producer(5)
    for _ in range(4):
        log.append(*producer.batch(bytes(50)), 0)
    for _ in range(8):
        log.append(*batch(bytes(50)), 0)
    flush(log)
    for name in files.listdir(DIRECTORY):
        if name.endswith(".snapshot"):
            files.unlink(DIRECTORY / name)
    start = log._segments[2].base_offset
    producer.sequence = 3
    duplicate = producer.batch(bytes(50))[1][0][1]
    for _ in range(3):
        log = open_log(files, SMALL, clean=False, recovery_point=12, log_start_offset=start)
        assert log.log_start_offset == start
        assert log.producers.check(duplicate) == 3
    log.apply_retention(NOW_MS, 12)
    assert log._segments.first.base_offset == start
    files.crash()
    log = open_log(files, SMALL, clean=False, recovery_point=12, log_start_offset=start)
    assert log.producers.check(duplicate) == 3
