# SPDX-License-Identifier: Apache-2.0
"""Reading without waiting for the disk: what is not in memory is named, brought in by a thread, read then."""

from __future__ import annotations

import pytest

from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.segments.cold_read import ColdRead
from headrace.testing.memory_files import MemoryFiles
from tests.harness.batches.log_tools import batch, open_log

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=100)


def filled(files: MemoryFiles) -> PartitionLog:
    log = open_log(files, SMALL)
    for number in range(60):
        log.append(*batch(b"value %d" % number), 0)
    return log


def make_cold(files: MemoryFiles, log: PartitionLog, suffix: str) -> set[str]:
    files.cold_names = {name for name in files.listdir(log.directory) if name.endswith(suffix)}
    return files.cold_names


@pytest.mark.parametrize(("offset", "max_bytes"), [(0, 300), (7, 1 << 20), (7, 300), (7, 10)])
def test_headers_that_are_not_in_memory_are_not_waited_for(offset: int, max_bytes: int) -> None:
    files = MemoryFiles()
    log = filled(files)
    expected = log.read(offset, max_bytes, 60)
    assert expected is not None
    log._reader.forget()
    names = make_cold(files, log, ".log")
    with pytest.raises(ColdRead, match="not in memory") as cold:
        log.read(offset, max_bytes, 60, wait=False)
    cold.value.warm()
    cold.value.release()
    names.clear()
    found = log.read(offset, max_bytes, 60, wait=False)
    assert found is not None
    assert (found.position, found.size, found.next_offset) == (
        expected.position,
        expected.size,
        expected.next_offset,
    )


def test_a_read_that_may_wait_reads_cold_files() -> None:
    files = MemoryFiles()
    log = filled(files)
    make_cold(files, log, ".log")
    assert log.read(7, 300, 60) is not None


def test_indexes_that_are_not_in_memory_are_not_waited_for() -> None:
    files = MemoryFiles()
    log = filled(files)
    for segment in log._segments.sealed:
        segment.release_indexes()
    names = make_cold(files, log, "index")
    with pytest.raises(ColdRead, match="index is not in memory") as cold:
        log.read(7, 300, 60, wait=False)
    cold.value.warm()
    cold.value.release()
    names.clear()
    assert log.read(7, 300, 60, wait=False) is not None


def test_reading_on_at_the_end_needs_no_look_at_the_file() -> None:
    files = MemoryFiles()
    log = filled(files)
    piece = log.read(50, 1 << 20, 60)
    assert piece is not None
    make_cold(files, log, ".log")
    log.append(*batch(b"more"), 0)
    assert log.read(piece.next_offset, 1 << 20, 61, wait=False) is not None
