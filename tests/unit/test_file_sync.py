# SPDX-License-Identifier: Apache-2.0
"""Fsyncs beside the event loop, by the threads of the kernel and by those of Python: alike for callers."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.file_sync import KernelFileSync, ThreadFileSync
from headrace.kernels.build import find_compiler
from headrace.kernels.file_sync import sync_library
from headrace.realworld import RealFile, RealFiles
from tests.harness.left_out import leave_out

THREADS, CAPACITY = 3, 40
FileSync = KernelFileSync | ThreadFileSync


def _kernel(threads: int = THREADS) -> KernelFileSync:
    library = sync_library()
    if library is None:
        assert find_compiler() is None, "a compiler is there and the kernels are not compiled"
        leave_out("compiled kernels", "no C compiler (cc): install gcc or clang")
    return KernelFileSync(library, threads, CAPACITY)


KINDS = pytest.mark.parametrize("make", [_kernel, lambda: ThreadFileSync(THREADS)], ids=["kernel", "python"])
Make = Callable[[], FileSync]


def run(make: Make, scenario: Callable[[FileSync], Awaitable[None]]) -> None:
    async def main() -> None:
        sync = make()
        try:
            await scenario(sync)
        finally:
            sync.close()

    asyncio.run(main())


def synced(sync: FileSync, file: RealFile) -> asyncio.Future[OSError | None]:
    """Fails when it is told twice."""
    told: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    sync.sync(file, lambda failure, _: told.set_result(failure))
    return told


@KINDS
def test_every_file_is_reported_once_and_on_the_thread_of_the_loop(make: Make, tmp_path: Path) -> None:
    files = [RealFiles().open(tmp_path / str(number), "create") for number in range(CAPACITY)]

    async def scenario(sync: FileSync) -> None:
        threads: list[threading.Thread] = []
        for _ in range(25):
            waiting = [synced(sync, file) for file in files]
            for each in waiting:
                each.add_done_callback(lambda _: threads.append(threading.current_thread()))
            assert await asyncio.gather(*waiting) == [None] * CAPACITY
        assert threads == [threading.main_thread()] * 25 * CAPACITY

    run(make, scenario)
    for file in files:
        file.close()


@KINDS
def test_a_failed_fsync_is_told_with_the_error_of_its_own_file(make: Make, tmp_path: Path) -> None:
    good = RealFiles().open(tmp_path / "good", "create")
    read_end, write_end = os.pipe()  # what cannot be synced
    bad = RealFile(write_end)

    async def scenario(sync: FileSync) -> None:
        found = await asyncio.gather(*(synced(sync, file) for file in (good, bad, good, bad)))
        assert [each and each.errno for each in found] == [None, errno.EINVAL, None, errno.EINVAL]

    run(make, scenario)
    os.close(read_end)
    bad.close()
    good.close()


@KINDS
def test_an_error_of_who_is_told_keeps_no_other_from_being_told(make: Make, tmp_path: Path) -> None:
    file = RealFiles().open(tmp_path / "log", "create")

    def fail(failure: OSError | None, took_s: float) -> None:
        raise ValueError("not foreseen")

    async def scenario(sync: FileSync) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        for _ in range(10):
            sync.sync(file, fail)
        assert await asyncio.gather(*(synced(sync, file) for _ in range(10))) == [None] * 10

    run(make, scenario)
    file.close()


@pytest.mark.parametrize(
    "make",
    [lambda: _kernel(threads=1), lambda: ThreadFileSync(1)],
    ids=["kernel", "python"],
)
def test_the_time_told_is_that_of_the_fsync_without_the_wait_for_a_thread(make: Make, tmp_path: Path) -> None:
    """With one thread fsyncs follow each other: together they take no longer than the whole."""
    file = RealFiles().open(tmp_path / "log", "create")
    took: list[float] = []

    async def scenario(sync: FileSync) -> None:
        began, last = time.monotonic(), asyncio.Event()

        def done(failure: OSError | None, took_s: float) -> None:
            assert failure is None
            took.append(took_s)
            if len(took) == CAPACITY:
                last.set()

        for _ in range(CAPACITY):
            file.pwritev([b"x" * 4096], 0)
            sync.sync(file, done)
        await last.wait()
        assert 0 < sum(took) <= time.monotonic() - began
        assert min(took) > 0

    run(make, scenario)
    file.close()


def test_after_close_nobody_is_told_and_close_may_be_repeated(tmp_path: Path) -> None:
    file = RealFiles().open(tmp_path / "log", "create")

    async def scenario(sync: FileSync) -> None:
        told = [synced(sync, file) for _ in range(CAPACITY)]
        sync.close()
        sync.close()
        await asyncio.sleep(0)
        assert not any(each.done() for each in told)

    run(_kernel, scenario)
    file.close()


def test_more_files_than_there_is_room_for_are_refused_and_the_others_synced(tmp_path: Path) -> None:
    file = RealFiles().open(tmp_path / "log", "create")

    async def scenario(sync: FileSync) -> None:
        waiting = [synced(sync, file) for _ in range(CAPACITY)]
        with pytest.raises(ValueError, match=f"{CAPACITY} files wait"):
            sync.sync(file, lambda _: None)
        assert await asyncio.gather(*waiting) == [None] * CAPACITY
        assert await synced(sync, file) is None

    run(_kernel, scenario)
    file.close()


def test_a_loop_that_is_closed_already_can_close_it(tmp_path: Path) -> None:
    file, sync = RealFiles().open(tmp_path / "log", "create"), _kernel()

    async def main() -> None:
        assert await synced(sync, file) is None

    asyncio.run(main())
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 2
    sync.close()
    left = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    assert descriptors - left == 2  # its pipe
    file.close()
