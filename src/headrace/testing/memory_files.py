# SPDX-License-Identifier: Apache-2.0
"""An in-memory disk that separates written from fsynced data and injects errors on demand.

`crash()` simulates a power failure: it loses unsynced bytes, names and lengths in any way a file system may,
chosen by the seed. A killed process loses nothing, because the kernel survives: reuse the same object.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from headrace.world import Bytes, OpenMode

_MAX_NAME_LENGTH = 255

_SECTOR = 512
_DEFAULT_CAPACITY = 1 << 40


class _Inode:
    """File content as the kernel shows it, as the disk holds it, and the pending changes."""

    __slots__ = ("data", "durable", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes] | int] = []
        """In order: a write as (position, bytes), a truncation as the new size."""

    def change(self, change: tuple[int, bytes] | int) -> None:
        _apply(self.data, change)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()


class _Directory:
    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        self.pending: list[tuple[str, _Inode | _Directory | None, str | None]] = []
        """In order: (name, its new node or None, name it was renamed from)."""

    def set(self, name: str, node: _Inode | _Directory | None, moved_from: str | None = None) -> None:
        if len(name) > _MAX_NAME_LENGTH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), name)
        if moved_from is not None:
            del self.names[moved_from]
        if node is None:
            del self.names[name]
        else:
            self.names[name] = node
        self.pending.append((name, node, moved_from))


class MemoryFile:
    __slots__ = ("_disk", "_inode", "closed", "path")

    def __init__(self, disk: MemoryFiles, inode: _Inode, path: Path) -> None:
        self._disk = disk
        self._inode = inode
        self.path = path
        self.closed = False

    def fileno(self) -> int | None:
        return None

    def size(self) -> int:
        self._check_open()
        return len(self._inode.data)

    def pread(self, size: int, position: int) -> bytes:
        self._check_open()
        self._disk.raise_injected("pread", self.path)
        return bytes(memoryview(self._inode.data)[position : position + size])

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> int:
        self._check_open()
        self._disk.before("pwritev", self.path)
        data = b"".join(buffers)
        inode = self._inode
        growth = max(position + len(data) - len(inode.data), 0)
        room = self._disk.take_space(growth)
        if room < growth:
            data = data[: len(data) - (growth - room)]
            if not data:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        inode.change((position, data))
        return len(data)

    def pread_cached(self, size: int, position: int) -> bytes | None:
        return self.pread(size, position) if self.cached(size, position) else None

    def cached(self, size: int, position: int, *, thorough: bool = False) -> bool:
        self._check_open()
        return self.path.name not in self._disk.cold_names

    def fsync(self) -> None:
        self._check_open()
        self._disk.before("fsync", self.path)
        self._inode.sync()

    def truncate(self, size: int) -> None:
        self._check_open()
        self._disk.before("truncate", self.path)
        self._inode.change(size)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._disk.open_files -= 1

    def _check_open(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, f"{self.path} is closed")


class MemoryLock:
    def __init__(self, disk: MemoryFiles, path: Path) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class MemoryFiles:
    """headrace.world.Files in memory. Faults are injected by setting attributes."""

    def __init__(self, random: Random | None = None, *, capacity: int = _DEFAULT_CAPACITY) -> None:
        self.random = random or Random(0)
        self.capacity = capacity
        self.open_files = 0
        self.operations = 0
        """Number of mutating calls so far; with `on_operation` it identifies every possible crash point."""
        self.on_operation: Callable[[str, Path], None] | None = None
        """Called before each mutating call; may raise to crash the process at this point."""
        self.errors: dict[str, OSError] = {}
        """"fsync", or "fsync:.log" for one kind of file -> the error of every such call until removed."""
        self.cold_names: set[str] = set()
        """Names of files that are not in the page cache."""
        self.locked: set[Path] = set()
        self._root = _Directory()
        self._root.names["/"] = self._root.durable["/"] = _Directory()

    # Faults

    def before(self, operation: str, path: Path) -> None:
        self.operations += 1
        if self.on_operation is not None:
            self.on_operation(operation, path)
        self.raise_injected(operation, path)

    def raise_injected(self, operation: str, path: Path) -> None:
        if self.errors:
            error = self.errors.get(operation) or self.errors.get(f"{operation}:{path.suffix}")
            if error is not None:
                raise error

    def take_space(self, size: int) -> int:
        """How many of `size` more bytes fit on the disk."""
        return size if self.capacity >= _DEFAULT_CAPACITY else min(size, self.free_bytes(Path()))

    def used_bytes(self) -> int:
        return sum(len(inode.data) for inode in _inodes(self._root))

    def crash(self) -> None:
        """Simulates a power failure. Files open before must not be used again."""
        _lose_unsynced(self._root, self.random, set())
        self.locked.clear()
        self.open_files = 0

    def clone(self, random: Random | None = None) -> MemoryFiles:
        """A copy of the disk that can be crashed and reopened while the original is used."""
        other = MemoryFiles(random or Random(self.random.random()), capacity=self.capacity)
        other._root = copy.deepcopy(self._root)
        return other

    # Files

    def open(self, path: Path, mode: OpenMode) -> MemoryFile:
        self.raise_injected("open", path)
        parent = self._directory(path.parent)
        inode = parent.names.get(path.name)
        if isinstance(inode, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if inode is None:
            if mode != "create":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self.before("create", path)
            inode = _Inode()
            parent.set(path.name, inode)
        self.open_files += 1
        return MemoryFile(self, inode, path)

    def exists(self, path: Path) -> bool:
        try:
            return path.name in self._directory(path.parent).names
        except FileNotFoundError:
            return False

    def listdir(self, path: Path) -> list[str]:
        return sorted(self._directory(path).names)

    def make_directory(self, path: Path) -> None:
        directory = self._root
        for name in path.parts:
            node = directory.names.get(name)
            if node is None:
                self.before("make_directory", path)
                node = _Directory()
                directory.set(name, node)
            if isinstance(node, _Inode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            directory = node

    def rename(self, source: Path, target: Path) -> None:
        origin, destination = self._directory(source.parent), self._directory(target.parent)
        node = self._node(source)
        self.before("rename", source)
        if origin is destination:
            origin.set(target.name, node, moved_from=source.name)
        else:
            destination.set(target.name, node)
            origin.set(source.name, None)

    def unlink(self, path: Path) -> None:
        self._node(path)
        self.before("unlink", path)
        self._directory(path.parent).set(path.name, None)

    def remove_tree(self, path: Path) -> None:
        self._directory(path)
        self.before("remove_tree", path)
        self._directory(path.parent).set(path.name, None)

    def sync_directory(self, path: Path) -> None:
        directory = self._directory(path)
        self.before("sync_directory", path)
        directory.durable = dict(directory.names)
        directory.pending.clear()

    def free_bytes(self, path: Path) -> int:
        return max(self.capacity - self.used_bytes(), 0)

    def total_bytes(self, path: Path) -> int:
        return self.capacity

    def lock(self, path: Path) -> MemoryLock:
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), str(path))
        self.open(path, "create").close()
        self.locked.add(path)
        return MemoryLock(self, path)

    def _directory(self, path: Path) -> _Directory:
        directory = self._root
        for name in path.parts:
            node = directory.names.get(name)
            if not isinstance(node, _Directory):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            directory = node
        return directory

    def _node(self, path: Path) -> _Inode | _Directory:
        node = self._directory(path.parent).names.get(path.name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return node


def _inodes(directory: _Directory) -> list[_Inode]:
    found: list[_Inode] = []
    for node in directory.names.values():
        if isinstance(node, _Inode):
            found.append(node)
        else:
            found.extend(_inodes(node))
    return found


def _apply(data: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        _resize(data, change)
        return
    position, written = change
    if position > len(data):
        _resize(data, position)
    data[position : position + len(written)] = written


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _lose_unsynced(directory: _Directory, random: Random, seen: set[int]) -> None:
    directory.names = _surviving_names(directory, random)
    directory.durable = dict(directory.names)
    directory.pending.clear()
    for node in directory.names.values():
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, _Directory):
            _lose_unsynced(node, random, seen)
        else:
            _lose_bytes(node, random)


def _surviving_names(directory: _Directory, random: Random) -> dict[str, _Inode | _Directory]:
    """With a journal a prefix of the name changes survives; without one any change may be lost."""
    pending = directory.pending
    if random.random() < 0.5:
        survivors = pending[: random.randint(0, len(pending))]
    else:
        survivors = [change for change in pending if random.random() < 0.5]
    names = dict(directory.durable)
    for name, node, moved_from in survivors:
        if moved_from is not None and names.pop(moved_from, None) is not node:
            continue  # the old name of the renamed file was lost
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
    return names


def _lose_bytes(inode: _Inode, random: Random) -> None:
    """Each unsynced change survives, is lost, or is torn: truncated, or replaced by zeros."""
    data = inode.durable
    keep_all, lose_all = random.random() < 0.2, random.random() < 0.2
    for change in inode.pending:
        fate = 1.0 if keep_all else 0.0 if lose_all else random.random()
        if fate >= 0.3:
            _apply(data, change if isinstance(change, int) else (change[0], _torn(change[1], fate, random)))
    inode.data = bytearray(data)
    inode.pending.clear()


def _torn(written: bytes, fate: float, random: Random) -> bytes:
    if fate < 0.45:
        return written[: random.randrange(0, len(written) + 1, _SECTOR)]
    if fate < 0.5:
        return written[: random.randint(0, len(written))]
    return bytes(len(written)) if fate < 0.6 else written
