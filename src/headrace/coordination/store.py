"""The narrow interface to the coordination store (R1): five calls, every write conditional.

Knows keys, bytes, versions and sessions; knows no topic, no in-sync replica, no group: that is cluster.py.
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
"""Keys and values of one commit together. ZooKeeper refuses packets above 1 MiB, so no store takes more."""

_KEY = re.compile(r"(/(?!\.{1,2}(/|\Z))[A-Za-z0-9._-]{1,255})+")
_IN_DOUBT_SHARE = 2 / 3


class SessionLost(CoordinationError):
    """The session has ended and its entries are gone: drop every role, then register anew (R7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a key holds.

    `version` changes with each write of the entry and is what conditional operations name. It means nothing
    else: in ZooKeeper a key that was removed and made again starts from the same version.
    `created` is the store version at which the key was made; it never repeats (R3 builds on it).
    `owner` is the session an ephemeral entry ends with.
    """

    value: bytes
    version: int
    created: int
    owner: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All entries at one version of the store."""

    version: int
    entries: Mapping[str, Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What became different after a version; None stands for a removed key.

    `complete`: the store no longer knows what was removed since then. `changed` is then everything there is,
    and what is missing from it is gone.
    """

    version: int
    changed: Mapping[str, Entry | None]
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """The key must exist at this version; nothing is written."""

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """The key must be absent. With an owner the entry ends together with that session."""

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
    """All operations took place; the store is at this version or a later one."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing took place: this key is the first that was not as expected."""

    key: str


class Session(abc.ABC):
    """A lease on life. Its holder renews it about four times per time-to-live; without that it ends."""

    def __init__(self, session_id: int, ttl_ms: int, clock: Clock) -> None:
        self.id = session_id
        self.ttl_ms = ttl_ms
        self.lost = False
        self._clock = clock
        self._renewed_at = clock.monotonic()

    @property
    def in_doubt(self) -> bool:
        """Two thirds of the time-to-live passed without renewal: its holder stops acting first (R7, R10)."""
        age_s = self._clock.monotonic() - self._renewed_at
        return self.lost or age_s * 1000 >= self.ttl_ms * _IN_DOUBT_SHARE

    async def renew(self) -> None:
        """Raises SessionLost when it was too late. Counts from before the question, never from the answer."""
        started = self._clock.monotonic()
        if self.lost or not await self._renew():
            self.lost = True
            raise SessionLost(f"coordination session {self.id} has ended")
        self._renewed_at = started

    async def close(self) -> None:
        """Ends the session at once; its entries go before this returns."""
        if not self.lost:
            self.lost = True
            await self._close()

    @abc.abstractmethod
    async def _renew(self) -> bool:
        """False when the store no longer knows the session."""

    @abc.abstractmethod
    async def _close(self) -> None: ...


class Store(Protocol):
    """Every method raises CoordinationError when the store cannot answer."""

    async def view(self) -> View:
        """At least as new as every commit that returned before the call, from any process."""

    async def commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        """Atomic: all operations or none, in their order, judged one after the other.

        Raises SessionLost when an owner's session has ended (nothing took place), OutcomeUnknown when
        it may or may not have taken place (re-read, then decide: R6).
        """

    async def open_session(self, ttl_ms: int) -> Session: ...

    async def changes(self, since_version: int, timeout_ms: int) -> Changes:
        """Level-triggered: what differs from `since_version` on, waiting for the first difference.

        After the time-out it returns with nothing changed. Several changes of one key are one change.
        """

    async def close(self) -> None:
        """Ends the sessions opened through this object; fine to call twice."""


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def check_operations(operations: Sequence[Operation]) -> None:
    """Refuses what one of the stores could not hold, so that all refuse the same."""
    size = 0
    for operation in operations:
        if not is_key(operation.key):
            raise ValueError(f"not a coordination key: {operation.key!r}")
        if not isinstance(operation, Create) and operation.version < 0:
            # ZooKeeper takes -1 for "any version": a write without a condition, which does not exist here.
            raise ValueError(f"not a version to expect: {operation.version}")
        size += len(operation.key) + len(getattr(operation, "value", b""))
    if size > MAX_COMMIT_BYTES:
        raise ValueError(f"a commit of {size} bytes is above the limit of {MAX_COMMIT_BYTES}")
