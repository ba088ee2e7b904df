# SPDX-License-Identifier: Apache-2.0
"""The World of the operating system, with fallbacks for systems other than Linux."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import socket
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headrace.file_sync import KernelFileSync, ThreadFileSync, file_sync
from headrace.tls.context import client_context, server_context
from headrace.tls.stream import tls_streams
from headrace.world import Bytes, OpenMode, TlsContext

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

logger = logging.getLogger(__name__)

_OPEN_FLAGS: dict[OpenMode, int] = {
    "read": os.O_RDONLY,
    "write": os.O_RDWR,
    "create": os.O_RDWR | os.O_CREAT,
}
_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_PRIVATE_DIRECTORY, _PRIVATE_FILE = 0o700, 0o600
"""Files are readable by the node's user only."""
_CANNOT_PROBE = (errno.EOPNOTSUPP, errno.EINVAL)
_COARSE_STEP, _FINE_STEP = 256 * 1024, 16 * 1024
_fdatasync = getattr(os, "fdatasync", os.fsync)


class RealClock:
    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def wall_ms() -> int:
        return time.time_ns() // 1_000_000


class RealFile:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int | None:
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    if hasattr(os, "pread"):

        def pread(self, size: int, position: int) -> bytes:
            return os.pread(self._fd, size, position)

        def pwritev(self, buffers: Sequence[Bytes], position: int) -> int:
            if len(buffers) == 1:  # a fifth cheaper
                return os.pwrite(self._fd, buffers[0], position)
            return os.pwritev(self._fd, buffers, position)

    else:  # Windows: development only, one thread

        def pread(self, size: int, position: int) -> bytes:
            os.lseek(self._fd, position, os.SEEK_SET)
            return os.read(self._fd, size)

        def pwritev(self, buffers: Sequence[Bytes], position: int) -> int:
            os.lseek(self._fd, position, os.SEEK_SET)
            return os.write(self._fd, b"".join(buffers))

    def cached(self, size: int, position: int, *, thorough: bool = False) -> bool:
        """Probe one byte of each range without blocking; a range that would block is not cached."""
        if not _NOWAIT:
            return True
        byte = bytearray(1)
        last = position + size - 1
        step = _FINE_STEP if thorough else _COARSE_STEP
        for probe in (*range(position, last, step), last):
            try:
                os.preadv(self._fd, [byte], probe, _NOWAIT)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno in _CANNOT_PROBE:
                    return True
                raise
        return True

    def pread_cached(self, size: int, position: int) -> bytes | None:
        if not _NOWAIT:
            return self.pread(size, position)
        data = bytearray(size)
        try:
            count = os.preadv(self._fd, [data], position, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in _CANNOT_PROBE:
                return self.pread(size, position)
            raise
        return bytes(data) if count == size else None

    def fsync(self) -> None:
        _fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealFileLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


class RealFiles:
    def open(self, path: Path, mode: OpenMode) -> RealFile:
        return RealFile(os.open(path, _OPEN_FLAGS[mode] | _BINARY, _PRIVATE_FILE))

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def listdir(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: Path) -> None:
        os.makedirs(path, mode=_PRIVATE_DIRECTORY, exist_ok=True)
        mode = os.stat(path).st_mode
        if mode & 0o077 and not mode & stat.S_ISVTX:  # by an earlier version; not shared like /tmp
            with contextlib.suppress(PermissionError):
                os.chmod(path, _PRIVATE_DIRECTORY)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def sync_directory(self, path: Path) -> None:
        if sys.platform == "win32":
            return
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: Path) -> int:
        return shutil.disk_usage(path).free

    def total_bytes(self, path: Path) -> int:
        return shutil.disk_usage(path).total

    def lock(self, path: Path) -> RealFileLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | _BINARY, _PRIVATE_FILE)
        try:
            _lock_descriptor(fd)
        except BaseException:
            os.close(fd)
            raise
        return RealFileLock(fd)


def _lock_descriptor(fd: int) -> None:
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    import msvcrt

    try:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        raise BlockingIOError(error.errno, "locked by another process") from error


class RealThread:
    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def run(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def close(self) -> None:
        self._executor.shutdown(wait=True)


def _begin_worker() -> None:
    """Runs in the worker process: sets low priority, and ends with the parent process."""
    import multiprocessing
    import threading

    with contextlib.suppress(OSError, AttributeError):
        os.nice(10)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _start_workers() -> ProcessPoolExecutor:
    """At most two workers, so that record validation does not wait for a long compaction."""
    import multiprocessing  # with the first job, not with the node
    from concurrent.futures import ProcessPoolExecutor

    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(max_workers=2, mp_context=spawn, initializer=_begin_worker)


def _end_workers(workers: ProcessPoolExecutor) -> None:
    """Kill the workers: their jobs can be repeated."""
    for process in list((workers._processes or {}).values()):
        process.kill()
    workers.shutdown(wait=True, cancel_futures=True)


def _log_failure(task: asyncio.Task[Any]) -> None:
    """Log a task's error at once: asyncio reports it only when the task is garbage-collected."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("the task %r failed", task.get_name(), exc_info=error)


_MOST_COMPUTING = 4
"""Threads: each may hold some 64 MiB of records while it expands a bomb."""


class RealTasks:
    """Bulk worker processes are started by the first job, so that an idle node uses little memory."""

    def __init__(self) -> None:
        self._threads: list[RealThread | KernelFileSync | ThreadFileSync] = []
        self._computing: ThreadPoolExecutor | None = None
        self._bulk: ProcessPoolExecutor | None = None

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        task.add_done_callback(_log_failure)
        return task

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        asyncio.get_running_loop().call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_s, callback, *args)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def thread(self, name: str) -> RealThread:
        thread = RealThread(name)
        self._threads.append(thread)
        return thread

    def file_sync(self, *, threads: int, capacity: int) -> KernelFileSync | ThreadFileSync:
        sync = file_sync(threads, capacity)
        self._threads.append(sync)
        return sync

    def bulk(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        from concurrent.futures import BrokenExecutor

        if self._bulk is None:
            self._bulk = _start_workers()
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(self._bulk, function, *args)
        except BrokenExecutor:  # a worker was killed
            self._bulk = _start_workers()
            return loop.run_in_executor(self._bulk, function, *args)

    def compute(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        if self._computing is None:
            threads = max(2, min(_MOST_COMPUTING, os.cpu_count() or 1))
            self._computing = ThreadPoolExecutor(threads, "compute")
        return asyncio.get_running_loop().run_in_executor(self._computing, function, *args)

    async def close(self) -> None:
        for thread in self._threads:
            thread.close()
        if self._computing is not None:
            computing, self._computing = self._computing, None
            computing.shutdown(wait=True, cancel_futures=True)
        if self._bulk is not None:
            workers, self._bulk = self._bulk, None
            await asyncio.get_running_loop().run_in_executor(None, _end_workers, workers)


_TCP_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)
_NAME_BYTES = 16
_PACING, _UNPACED = b"bbr", b"reno"
"""Algorithms of the kernel; Reno is in every one, and any process may choose it."""


class _Listening(Protocol):
    """What is needed of a listening socket here."""

    def getsockname(self) -> Any: ...
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...
    def setsockopt(self, level: int, option: int, value: bytes, /) -> None: ...


def unpace_loopback(listening: Iterable[_Listening]) -> None:
    """Connections to a loopback address inherit it: there is no link to spare, and pacing doubles the CPU of
    a large reply (decision 53)."""
    for each in listening:
        if _TCP_CONGESTION is None or not ip_address(each.getsockname()[0].partition("%")[0]).is_loopback:
            continue
        with contextlib.suppress(OSError):
            used = each.getsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, _NAME_BYTES)
            if used.rstrip(b"\0") == _PACING:
                each.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, _UNPACED)


class RealListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self._port: int = server.sockets[0].getsockname()[1]

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        self._server.close()


class RealNetwork:
    server_tls = staticmethod(server_context)
    client_tls = staticmethod(client_context)

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        tls: Callable[[], TlsContext] | None = None,
    ) -> RealListener:
        accept = factory if tls is None else tls_streams(factory, tls)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(accept, host, port, backlog=1024)
        unpace_loopback(server.sockets)
        return RealListener(server)

    async def connect(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        tls: TlsContext | None = None,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()
        if tls is None:
            return await loop.create_connection(factory, host, port)
        return await loop.create_connection(factory, host, port, ssl=tls, server_hostname=host)

    async def https_get(self, url: str, *, timeout_s: float, max_bytes: int) -> bytes:
        from headrace.https_get import https_get

        return await asyncio.to_thread(https_get, url, timeout_s=timeout_s, max_bytes=max_bytes)


class RealWorld:
    def __init__(self) -> None:
        self.clock = RealClock()
        self.random: Random = SystemRandom()
        self.files = RealFiles()
        self.network = RealNetwork()
        self.tasks = RealTasks()
