# SPDX-License-Identifier: Apache-2.0
"""Interfaces to clock, randomness, files, network and tasks (R35).

Only interfaces, so that `log` and `wire` can name them without touching asyncio.
The operating system's implementation is realworld.py; the simulated one is testing/simworld.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    import asyncio
    import ssl

T = TypeVar("T")
Bytes = bytes | bytearray | memoryview
OpenMode = Literal["read", "write", "create"]
"""read: must exist; write: must exist, read and write; create: read and write, created if missing."""


class Clock(Protocol):
    def monotonic(self) -> float:
        """Monotonic seconds, for leases, timeouts and rates (R34)."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970: record timestamps and retention only (R34)."""


class File(Protocol):
    """An open file with explicit positions and no shared cursor."""

    def fileno(self) -> int | None:
        """The descriptor for `sendfile`; None where there is none (simulation)."""

    def size(self) -> int: ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def pread_cached(self, size: int, position: int) -> bytes | None:
        """Like `pread` within the file; None when it would wait for the disk."""

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> int:
        """Write; returns the number of bytes written, possibly fewer. Raises OSError (ENOSPC, EIO)."""

    def cached(self, size: int, position: int, *, thorough: bool = False) -> bool:
        """Whether reading this range would probably not wait for the disk."""

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
        """Create a directory with its parents; idempotent."""

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; replaces the target."""

    def unlink(self, path: Path) -> None: ...

    def remove_tree(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None:
        """Fsync the directory: creations, renames and removals in it become durable."""

    def free_bytes(self, path: Path) -> int: ...

    def total_bytes(self, path: Path) -> int: ...

    def lock(self, path: Path) -> FileLock:
        """Exclusive lock, released when the process ends. Raises BlockingIOError when it is taken."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Thread(Protocol):
    """One thread that runs blocking calls in order."""

    def run(self, function: Callable[..., T], *args: Any) -> Awaitable[T]: ...

    def close(self) -> None: ...


OnSynced = Callable[[OSError | None, float], None]


class FileSync(Protocol):
    """Threads that fsync files, several at a time and in no particular order."""

    def sync(self, file: File, done: OnSynced) -> None:
        """Fsyncs what was written to the file before this call, then calls `done` on the event loop, once:
        with the seconds that the fsync took, from when a thread began it.

        The file stays open until then. An error must not be retried (R24).
        """


class Tasks(Protocol):
    """Scheduling of tasks, timers, threads and worker processes."""

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a task; an error that ends it is always logged."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None: ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer: ...

    async def sleep(self, seconds: float) -> None: ...

    def thread(self, name: str) -> Thread: ...

    def file_sync(self, *, threads: int, capacity: int) -> FileSync:
        """`capacity`: how many files may be under way at a time; the others than `threads` wait."""

    def bulk(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        """Runs a picklable function on record bodies in the low-priority worker process."""

    def compute(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        """Runs a function that works without the GIL in one of a few threads, in the order of the calls."""

    async def close(self) -> None:
        """Ends threads and the worker process."""


class Listener(Protocol):
    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Stop accepting connections; open ones remain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """What a TLS context is made of; keys and certificates are PEM text."""

    certificate_chain: bytes = field(repr=False)
    """A text that also holds the private key may be given for both."""
    private_key: bytes = field(repr=False)
    key_password: str | None = field(default=None, repr=False)
    authorities: bytes | None = None
    """Trusted certificates; None: the system's, for connections to others."""
    client_auth: str = "none"
    """none, requested or required."""
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    check_host_names: bool = True


TlsContext: TypeAlias = "ssl.SSLContext"


class TlsProtocol(Protocol):
    """What the factory of a TLS listener makes: an asyncio.BufferedProtocol that knows of the handshake.

    `connection_made` is called when the connection is accepted; bytes come after `handshake_completed`.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def handshake_completed(self, certificate: bytes | None) -> None:
        """The client's certificate in DER form, verified; None when it has shown none."""

    def tls_failed(self, reason: str) -> None:
        """The handshake, or what came later, was not what it must be; the protocol has to close."""

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, count: int) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...


class Network(Protocol):
    def server_tls(self, material: TlsMaterial) -> TlsContext:
        """For `listen`. Raises ConfigError that says what is wrong with the material."""

    def client_tls(self, material: TlsMaterial) -> TlsContext:
        """For `connect`. Raises ConfigError."""

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        tls: Callable[[], TlsContext] | None = None,
    ) -> Listener:
        """`tls` gives the context of the next connection; then `factory` makes TlsProtocols."""

    async def connect(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        tls: TlsContext | None = None,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...

    async def https_get(self, url: str, *, timeout_s: float, max_bytes: int) -> bytes:
        """The page at an https address; follows no redirect. Raises OSError, also beyond the limits."""


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
    """Write all bytes, with as many calls as needed."""
    view = memoryview(data)
    while view:
        written = file.pwritev([view], position)
        view = view[written:]
        position += written


def replace_file(files: Files, path: Path, data: bytes, *, suffix: str = ".tmp") -> None:
    """Replace a file atomically and durably: temporary file, fsync, rename, directory fsync (R25).

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
