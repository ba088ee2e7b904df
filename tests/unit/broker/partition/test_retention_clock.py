# SPDX-License-Identifier: Apache-2.0
"""What a node remembers of the clock, and what it makes of it at its next start (R34)."""

from __future__ import annotations

import pytest

from headrace.broker.partition.retention_clock import (
    ACCEPTED_AFTER_S,
    CLOCK_FILE,
    NOT_A_JUMP_MS,
    ClockFile,
    ClockReading,
    RetentionClock,
)
from headrace.testing.memory_files import MemoryFiles
from headrace.testing.simworld import DATA_DIRECTORY
from headrace.world import replace_file

DAY_MS = 86_400_000
WALL_MS = 1_700_000_000_000


class Clock:
    """`up_s` after the machine was booted."""

    def __init__(self, wall_ms: int = WALL_MS, up_s: float = 1000.0) -> None:
        self.wall, self.up_s = wall_ms, up_s

    def monotonic(self) -> float:
        return self.up_s

    def wall_ms(self) -> int:
        return self.wall

    def passes(self, seconds: float) -> None:
        self.up_s += seconds
        self.wall += int(seconds * 1000)


def disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DATA_DIRECTORY)
    return files


def reading(boot_id: str = "boot", *, clock: Clock | None = None) -> ClockReading:
    return RetentionClock(clock or Clock(), boot_id).reading()


def test_without_anything_remembered_the_clock_is_taken_as_it_is() -> None:
    clock = RetentionClock(Clock(WALL_MS + 30 * DAY_MS), "boot")
    assert clock.now_ms() == WALL_MS + 30 * DAY_MS
    assert not clock.is_in_doubt


@pytest.mark.parametrize("boot_id", ["boot", "another"])
def test_a_clock_that_goes_on_from_where_it_was_is_accepted(boot_id: str) -> None:
    before = Clock()
    last = reading(clock=before)
    before.passes(NOT_A_JUMP_MS / 1000 - 1)
    up_s = before.up_s if boot_id == "boot" else 5.0
    clock = RetentionClock(Clock(before.wall, up_s), boot_id, last)
    assert not clock.is_in_doubt
    assert clock.now_ms() == before.wall


def test_a_node_that_was_down_for_a_day_without_a_boot_knows_that_the_time_is_right() -> None:
    before = Clock()
    last = reading(clock=before)
    before.passes(DAY_MS / 1000)
    assert RetentionClock(before, "boot", last).now_ms() == WALL_MS + DAY_MS


def test_a_clock_that_is_ahead_is_accepted_after_an_hour() -> None:
    for boot_id, up_s in (("boot", 1000.0), ("another", 5.0)):
        now = Clock(WALL_MS + DAY_MS, up_s)
        clock = RetentionClock(now, boot_id, reading())
        assert clock.is_in_doubt
        assert clock.now_ms() == WALL_MS
        now.passes(ACCEPTED_AFTER_S - 1)
        assert clock.now_ms() == WALL_MS + int((ACCEPTED_AFTER_S - 1) * 1000)
        assert clock.reading().now_ms == clock.now_ms(), "the next process must not believe it either"
        now.passes(1)
        assert clock.now_ms() == now.wall
        assert not clock.is_in_doubt


def test_a_clock_that_is_behind_is_accepted_at_once() -> None:
    clock = RetentionClock(Clock(WALL_MS - DAY_MS), "another", reading())
    assert clock.now_ms() == WALL_MS - DAY_MS
    assert not clock.is_in_doubt


def test_without_boot_ids_no_process_takes_itself_for_one_of_the_same_boot() -> None:
    last = RetentionClock(Clock(up_s=1_000_000), None).reading()
    clock = RetentionClock(Clock(WALL_MS + DAY_MS, up_s=5.0), None, last)
    assert clock.now_ms() == WALL_MS


def test_what_was_written_down_is_read_again() -> None:
    file = ClockFile(disk(), DATA_DIRECTORY)
    assert file.load() is None
    file.save(reading())
    assert file.load() == reading()


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[]", b"{}", b'{"format":1}', b'{"format":1,"boot_id":"b","ahead_ms":"x","now_ms":1}'],
)
def test_a_damaged_file_is_as_good_as_none(data: bytes) -> None:
    files = disk()
    replace_file(files, DATA_DIRECTORY / CLOCK_FILE, data)
    assert ClockFile(files, DATA_DIRECTORY).load() is None


def test_a_file_of_a_later_release_is_as_good_as_none() -> None:
    files = disk()
    replace_file(files, DATA_DIRECTORY / CLOCK_FILE, b'{"format":2,"boot_id":"b","ahead_ms":1,"now_ms":1}')
    assert ClockFile(files, DATA_DIRECTORY).load() is None
