"""The seam to everything that is not computation: clock, randomness, files, network, tasks (R35).

Only interfaces live here, so that `log` and `wire` can name them without touching asyncio.
The operating system's implementation is realworld.py; the simulated one is testing/simworld.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Bytes = bytes | bytearray | memoryview
OpenMode = Literal["read", "write", "create"]
"""read: must exist; write: must exist, read and write; create: read and write, made when missing."""


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never jump: leases, time-outs, rates (R34)."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970: record timestamps and retention only (R34)."""


class File(Protocol):
    """An open file. Positions are explicit: there is no shared cursor to lose."""

    def fileno(self) -> int | None:
        """The descriptor for `sendfile`; None where there is none (simulation)."""

    def size(self) -> int: ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def pread_cached(self, size: int, position: int) -> bytes | None:
        """As `pread`, inside the file; None when that would wait for the disk."""

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> int:
        """Bytes written, which may be fewer than given. Raises OSError (ENOSPC, EIO)."""

    def cached(self, size: int, position: int, *, thorough: bool = False) -> bool:
        """Whether reading this range would not wait for the disk (a guess, in favour of True)."""

    def fsync(self) -> None: ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class FileLock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    """The file system. Every method may raise OSError, as the operating system would."""

    def open(self, path: Path, mode: OpenMode) -> File: ...

    def exists(self, path: Path) -> bool: ...

    def listdir(self, path: Path) -> list[str]:
        """Names in sorted order."""

    def make_directory(self, path: Path) -> None:
        """With its parents; fine when it exists."""

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; replaces the target."""

    def unlink(self, path: Path) -> None: ...

    def remove_tree(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None:
        """Makes creations, renames and removals in `path` survive a power cut."""

    def free_bytes(self, path: Path) -> int: ...

    def total_bytes(self, path: Path) -> int: ...

    def lock(self, path: Path) -> FileLock:
        """Exclusive and released by the kernel at death. Raises BlockingIOError when held by another."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Thread(Protocol):
    """One thread that runs blocking calls in the order they were given."""

    def run(self, function: Callable[..., T], *args: Any) -> Awaitable[T]: ...

    def close(self) -> None: ...


class Tasks(Protocol):
    """Everything that makes code run later or elsewhere."""

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """A task that ends by an error is told of, whoever keeps it or awaits it."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None: ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer: ...

    async def sleep(self, seconds: float) -> None: ...

    def thread(self, name: str) -> Thread: ...

    def bulk(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        """Runs a picklable function on record bodies in the low-priority worker process."""

    async def close(self) -> None:
        """Ends threads and the worker process."""


class Listener(Protocol):
    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Stops accepting; open connections stay."""


class Network(Protocol):
    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener: ...

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


class World(Protocol):
    @property
    def clock(self) -> Clock: ...

    @property
    def random(self) -> Random: ...

    @property
    def files(self) -> Files: ...

    @property
    def network(self) -> Network: ...

    @property
    def tasks(self) -> Tasks: ...


def new_uuid(random: Random) -> uuid.UUID:
    return uuid.UUID(int=random.getrandbits(128), version=4)


def read_file(files: Files, path: Path) -> bytes:
    file = files.open(path, "read")
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def write_all(file: File, data: Bytes, position: int) -> None:
    """Writes every byte, however many calls that takes."""
    view = memoryview(data)
    while view:
        written = file.pwritev([view], position)
        view = view[written:]
        position += written


def replace_file(files: Files, path: Path, data: bytes, *, suffix: str = ".tmp") -> None:
    """All or nothing, also across a power cut: temporary file, fsync, rename, fsync of the folder (R25).

    Two threads that may replace the same file use different suffixes.
    """
    temporary = path.with_name(path.name + suffix)
    file = files.open(temporary, "create")
    try:
        file.truncate(0)
        write_all(file, data, 0)
        file.fsync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_directory(path.parent)
