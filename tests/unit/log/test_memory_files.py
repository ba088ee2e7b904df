# SPDX-License-Identifier: Apache-2.0
"""The disk in memory behaves like one: what is fsynced stays, what is not may go, faults come when told."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headrace.testing.memory_files import MemoryFiles
from headrace.world import File, read_file, replace_file, write_all

DATA = Path("/data")


def disk(seed: int = 0) -> MemoryFiles:
    files = MemoryFiles(Random(seed))
    files.make_directory(DATA)
    files.sync_directory(Path("/"))
    return files


def created(files: MemoryFiles, name: str, data: bytes) -> File:
    file = files.open(DATA / name, "create")
    write_all(file, data, 0)
    return file


def outcomes(act: Callable[[MemoryFiles], None], look: Callable[[MemoryFiles], object]) -> set[object]:
    """What can be seen after a power cut, over many seeds."""
    seen = set()
    for seed in range(300):
        files = disk(seed)
        act(files)
        files.crash()
        seen.add(look(files))
    return seen


def content(files: MemoryFiles) -> bytes | None:
    return read_file(files, DATA / "a") if files.exists(DATA / "a") else None


def test_fsynced_bytes_under_a_synced_name_survive() -> None:
    def act(files: MemoryFiles) -> None:
        created(files, "a", b"123").fsync()
        files.sync_directory(DATA)

    assert outcomes(act, content) == {b"123"}


def test_name_that_is_not_synced_may_be_lost() -> None:
    assert outcomes(lambda files: created(files, "a", b"123").fsync(), content) == {b"123", None}


def test_unsynced_bytes_may_be_lost_torn_or_zero() -> None:
    def act(files: MemoryFiles) -> None:
        file = created(files, "a", b"12")
        file.fsync()
        files.sync_directory(DATA)
        write_all(file, b"34", 2)

    assert outcomes(act, content) == {b"12", b"123", b"1234", b"12\0\0"}


def test_later_writes_may_survive_earlier_ones() -> None:
    def act(files: MemoryFiles) -> None:
        file = created(files, "a", b"")
        file.fsync()
        files.sync_directory(DATA)
        write_all(file, b"1", 0)
        write_all(file, b"2", 1)

    assert b"\x002" in outcomes(act, content)


def test_rename_is_all_or_nothing() -> None:
    def act(files: MemoryFiles) -> None:
        replace_file(files, DATA / "a", b"old")
        created(files, "b", b"new").fsync()
        files.sync_directory(DATA)
        files.rename(DATA / "b", DATA / "a")

    seen = outcomes(act, lambda files: (content(files), files.exists(DATA / "b")))
    assert seen == {(b"old", True), (b"new", False)}


def test_replace_file_survives_whole() -> None:
    def act(files: MemoryFiles) -> None:
        replace_file(files, DATA / "a", b"old")
        replace_file(files, DATA / "a", b"new")

    assert outcomes(act, content) == {b"new"}


def test_open_file_is_readable_after_it_is_unlinked_or_replaced() -> None:
    files = disk()
    file = created(files, "a", b"123")
    files.unlink(DATA / "a")
    created(files, "a", b"other")
    assert file.pread(10, 0) == b"123"


def test_full_disk_takes_what_fits() -> None:
    files = disk()
    files.capacity = 5
    file = created(files, "a", b"123")
    assert file.pwritev([b"4567"], 3) == 2
    with pytest.raises(OSError, match="No space left"):
        file.pwritev([b"8"], 5)
    assert files.free_bytes(DATA) == 0
    assert file.pwritev([b"x"], 0) == 1


def test_faults_by_operation_and_kind_of_file() -> None:
    files = disk()
    file, other = created(files, "a.log", b"1"), created(files, "a.index", b"1")
    files.errors["fsync:.log"] = OSError(errno.EIO, "broken")
    with pytest.raises(OSError, match="broken"):
        file.fsync()
    other.fsync()
    files.errors.clear()
    file.fsync()


def test_clone_goes_its_own_way() -> None:
    files = disk()
    created(files, "a", b"1")
    copy = files.clone()
    created(copy, "a", b"2")
    assert (content(files), content(copy)) == (b"1", b"2")


def test_lock_is_exclusive_and_ends_with_the_power() -> None:
    files = disk()
    lock = files.lock(DATA / ".lock")
    with pytest.raises(BlockingIOError):
        files.lock(DATA / ".lock")
    lock.release()
    files.lock(DATA / ".lock")
    files.crash()
    files.lock(DATA / ".lock")


def test_errors_of_the_operating_system() -> None:
    files = disk()
    with pytest.raises(FileNotFoundError):
        files.open(DATA / "none", "write")
    with pytest.raises(FileNotFoundError):
        files.listdir(Path("/nowhere"))
    with pytest.raises(FileNotFoundError):
        files.rename(DATA / "none", DATA / "a")
    with pytest.raises(IsADirectoryError):
        files.open(DATA, "read")
    file = created(files, "a", b"1")
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.pread(1, 0)
