# SPDX-License-Identifier: Apache-2.0
"""The interface of the coordination store (R1): five calls, every write conditional.

Keys, bytes, versions and sessions only; what they mean is the concern of cluster_metadata.py.
Implementations: memory.py, sqlite.py, zookeeper.py. One contract suite (tests/contract) runs over all.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.errors import CoordinationError
from headrace.world import Clock

MAX_COMMIT_BYTES = 1_000_000
"""Limit of the keys and values of one commit, for all stores: ZooKeeper refuses packets above 1 MiB."""

WHOLE_STORE = "/"
"""The key of a Check of the store as a whole: its version is `View.commits`."""

_KEY = re.compile(r"(/(?!\.{1,2}(/|\Z))[A-Za-z0-9._-]{1,255})+")
_SAFE_SHARE = 2 / 3


class StoreWentBack(CoordinationError):
    """The store is older than what this process has read of it: it was put back to an older copy."""


class SessionLost(CoordinationError):
    """The session has ended and its entries are deleted: drop every role, then register again (R7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The value of a key.

    `version` changes with each write and is used in conditional operations. It has no other meaning: in
    ZooKeeper a key that is removed and created again starts from the same version.
    `created` is the store version at which the key was created; it never repeats (R3 relies on it).
    `owner` is the session of an ephemeral entry.
    """

    value: bytes
    version: int
    created: int
    owner: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All entries at one version of the store.

    `commits` counts the changes. It only grows, as `version` does, which may be much higher: ZooKeeper raises
    it whenever its servers elect a leader, also after they were restored from an old snapshot.
    """

    version: int
    entries: Mapping[str, Entry]
    commits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The entries that changed after a version; None: the key was removed.

    `complete`: the store no longer has the removals since then. `changed` is then a full snapshot, and keys
    missing from it were removed.
    """

    version: int
    changed: Mapping[str, Entry | None]
    complete: bool = False
    commits: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """The key must exist at this version; nothing is written.

    For WHOLE_STORE: nothing was committed since the view with this number of commits.
    """

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """The key must not exist. With an owner the entry is removed when that session ends."""

    key: str
    value: bytes
    owner: int | None = None


@dataclass(frozen=True, slots=True)
class Set:
    """The key must exist at this version; an entry keeps its owner."""

    key: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """The key must exist at this version."""

    key: str
    version: int


Operation = Check | Create | Set | Delete


@dataclass(frozen=True, slots=True)
class Applied:
    """All operations were applied; the store is at this version or a later one."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was applied: this is the first key whose condition failed."""

    key: str


class Session(abc.ABC):
    """A session: its holder renews it about four times per time-to-live, or it expires."""

    def __init__(self, session_id: int, ttl_ms: int, clock: Clock) -> None:
        self.id = session_id
        self.ttl_ms = ttl_ms
        self.lost = False
        self._clock = clock
        self._renewed_at = clock.monotonic()

    @property
    def may_have_expired(self) -> bool:
        """Two thirds of the time-to-live passed without renewal: its holder must stop acting (R7, R10)."""
        age_s = self._clock.monotonic() - self._renewed_at
        return self.lost or age_s * 1000 >= self.ttl_ms * _SAFE_SHARE

    async def renew(self) -> None:
        """Renew; raises SessionLost when it has expired. Time counts from before the request."""
        started = self._clock.monotonic()
        if self.lost or not await self._renew():
            self.lost = True
            raise SessionLost(f"coordination session {self.id} has ended")
        self._renewed_at = started

    async def close(self) -> None:
        """End the session at once; its entries are removed before this returns."""
        if not self.lost:
            self.lost = True
            await self._close()

    @abc.abstractmethod
    async def _renew(self) -> bool:
        """False when the session has expired at the store."""

    @abc.abstractmethod
    async def _close(self) -> None: ...


class Store(Protocol):
    """Every method raises CoordinationError when the store does not respond."""

    async def view(self) -> View:
        """A view at least as new as every commit that returned before the call, from any process."""

    async def commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        """Apply all operations in order, or none.

        Raises SessionLost when an owner's session has expired (nothing was applied), OutcomeUnknown when
        it may or may not have been applied (read again, then decide: R6).
        """

    async def open_session(self, ttl_ms: int) -> Session: ...

    async def changes(self, since_version: int, timeout_ms: int) -> Changes:
        """Wait for changes after `since_version` (level-triggered).

        Returns without changes after the timeout. Several changes of one key are reported as one.
        """

    async def close(self) -> None:
        """End the sessions opened through this object; idempotent."""


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def check_operations(operations: Sequence[Operation]) -> None:
    """Reject operations that any one store cannot accept, so that all stores behave alike."""
    size = 0
    for operation in operations:
        of_whole_store = operation.key == WHOLE_STORE and isinstance(operation, Check)
        if not of_whole_store and not is_key(operation.key):
            raise ValueError(f"not a coordination key: {operation.key!r}")
        if not isinstance(operation, Create) and operation.version < 0:
            # In ZooKeeper -1 means "any version", an unconditional write, which is not allowed here.
            raise ValueError(f"not a version to expect: {operation.version}")
        size += len(operation.key) + len(getattr(operation, "value", b""))
    if size > MAX_COMMIT_BYTES:
        raise ValueError(f"a commit of {size} bytes is above the limit of {MAX_COMMIT_BYTES}")
