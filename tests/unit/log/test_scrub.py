# SPDX-License-Identifier: Apache-2.0
"""The check of one segment in steps: where it ends, and what it finds (R27)."""

from __future__ import annotations

import errno
from struct import pack

import pytest

from headrace.log.scrub import CheckResult, Fault, SegmentCheck, check_segment
from headrace.testing.memory_files import MemoryFiles
from tests.unit.log.test_log_recovery import BATCH_BYTES, filled, overwrite, segment_file

EPOCH_AT = 12


def check_of(files: MemoryFiles, slot: int) -> SegmentCheck:
    return filled(files).plan_scrub().segments[slot]


def in_steps(check: SegmentCheck, most_bytes: int) -> list[CheckResult]:
    results: list[CheckResult] = []
    rest: SegmentCheck | None = check
    while rest is not None:
        results.append(check_segment(rest, most_bytes))
        rest = results[-1].rest
    return results


def fault_of(files: MemoryFiles, check: SegmentCheck) -> Fault:
    fault = in_steps(check, 1)[-1].fault
    assert fault is not None
    return fault


@pytest.mark.parametrize(
    ("most_bytes", "steps"), [(1, 4), (BATCH_BYTES, 4), (2 * BATCH_BYTES - 1, 2), (1 << 20, 1)]
)
def test_a_sound_segment_is_checked_whole_in_steps_of_any_size(most_bytes: int, steps: int) -> None:
    check = check_of(MemoryFiles(), 1)
    results = in_steps(check, most_bytes)
    assert sum(each.batches for each in results) == 4
    assert sum(each.bytes_read for each in results) == check.size
    assert all(each.fault is None and not each.missing for each in results)
    assert len(results) == steps


def test_a_fault_in_a_later_step_is_named_by_position_and_offset() -> None:
    files = MemoryFiles()
    check = check_of(files, 1)
    overwrite(files, "00000000000000000004.log", 2 * BATCH_BYTES + 65, b"\xee")
    fault = fault_of(files, check)
    assert (fault.base_offset, fault.position, fault.offset) == (4, 2 * BATCH_BYTES, 6)
    assert "CRC" in fault.what


def test_a_leader_epoch_that_is_not_that_of_the_history_is_a_fault() -> None:
    """The CRC does not cover it, and it is the last batch of its segment: none follows that is lower."""
    files = MemoryFiles()
    check = check_of(files, 1)
    overwrite(files, "00000000000000000004.log", 3 * BATCH_BYTES + EPOCH_AT, pack(">i", 7))
    assert "leader epoch 7" in fault_of(files, check).what


def test_a_base_offset_that_goes_beyond_the_segment_is_a_fault() -> None:
    files = MemoryFiles()
    check = check_of(files, 1)
    overwrite(files, "00000000000000000004.log", 3 * BATCH_BYTES, pack(">q", 9))
    assert "does not follow" in fault_of(files, check).what


def test_a_file_that_was_cut_between_two_batches_is_a_fault() -> None:
    files = MemoryFiles()
    check = check_of(files, 1)
    file = files.open(check.directory / "00000000000000000004.log", "write")
    file.truncate(2 * BATCH_BYTES)
    assert "the file ends after" in fault_of(files, check).what


def test_a_segment_that_does_not_reach_the_next_one_is_a_fault() -> None:
    """As after a start with a file that was cut while the node was down."""
    files = MemoryFiles()
    log = filled(files)
    name = segment_file(log, 1)
    log.close()
    files.open(log.directory / name, "write").truncate(2 * BATCH_BYTES)
    segment = log._segments[1]
    segment.size = 2 * BATCH_BYTES
    assert "offsets 6 to 7 are missing" in fault_of(files, log.plan_scrub().segments[1]).what


def test_a_missing_file_is_told_apart_from_a_damaged_one() -> None:
    files = MemoryFiles()
    check = check_of(files, 1)
    files.unlink(check.directory / "00000000000000000004.log")
    result = check_segment(check, 1 << 20)
    assert (result.missing, result.fault) == (True, None)


def test_an_error_of_the_disk_is_a_fault_and_a_lack_of_descriptors_is_not() -> None:
    files = MemoryFiles()
    check = check_of(files, 1)
    files.errors["pread:.log"] = OSError(errno.EIO, "Input/output error")
    assert "cannot be read" in fault_of(files, check).what
    files.errors["pread:.log"] = OSError(errno.EMFILE, "Too many open files")
    with pytest.raises(OSError, match="Too many"):
        check_segment(check, 1)


def test_a_segment_has_another_version_after_a_truncation_or_a_deletion() -> None:
    log = filled(MemoryFiles())
    first, second = log.segment_version(0), log.segment_version(4)
    assert first is not None
    assert log.segment_version(1) is None
    log.delete_records_before(4)
    assert log.segment_version(0) is None
    assert log.segment_version(4) == second
    log.truncate_to(10)
    assert log.segment_version(4) != second
