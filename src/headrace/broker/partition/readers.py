# SPDX-License-Identifier: Apache-2.0
"""The clients that fetch from a partition, and the offset that each asked for last.

Only reported, by DescribeConfigs (handlers/configs.py): a fetch names no group, and nothing it says is relied
upon. `note` is called for every partition of every fetch, so it does no more than a look-up and two
assignments for a known client. Which of them is a member of a group: client/tools/positions.py.
"""

from __future__ import annotations

from typing import NamedTuple

MOST_READERS = 32
IDLE_S = 60.0
"""After this time without a fetch, a client makes room for another."""
FULL_FOR_S = 5.0
_LONGEST_CLIENT_ID = 255


class ReaderPosition(NamedTuple):
    client_id: str
    host: str
    offset: int
    age_ms: int
    """Time since the fetch."""


class _Reader:
    __slots__ = ("client_id", "fetched_at", "offset")

    def __init__(self, client_id: str | None) -> None:
        self.client_id = client_id
        self.offset = -1
        self.fetched_at = 0.0


class Readers:
    """Of one partition; a client is a connection. Bounded: clients beyond MOST_READERS are not listed."""

    __slots__ = ("_by_peer", "_full_until")

    def __init__(self) -> None:
        self._by_peer: dict[str, _Reader] = {}
        self._full_until = 0.0

    def note(self, peer: str, client_id: str | None, offset: int, now: float) -> None:
        reader = self._by_peer.get(peer)
        if reader is None or reader.client_id != client_id:
            reader = self._add(peer, client_id, now)
            if reader is None:
                return
        reader.offset = offset
        reader.fetched_at = now

    def listed(self, now: float) -> list[ReaderPosition]:
        """The latest first."""
        found = sorted(self._by_peer.items(), key=lambda item: item[1].fetched_at, reverse=True)
        return [
            ReaderPosition(
                reader.client_id or "",
                peer.rpartition(":")[0],
                reader.offset,
                max(0, round((now - reader.fetched_at) * 1000)),
            )
            for peer, reader in found
        ]

    def _add(self, peer: str, client_id: str | None, now: float) -> _Reader | None:
        readers = self._by_peer
        if len(readers) >= MOST_READERS and peer not in readers:
            if now < self._full_until:
                return None
            for other in [other for other, held in readers.items() if now - held.fetched_at > IDLE_S]:
                del readers[other]
            if len(readers) >= MOST_READERS:
                self._full_until = now + FULL_FOR_S
                return None
        if client_id is not None and len(client_id) > _LONGEST_CLIENT_ID:
            return None
        reader = readers[peer] = _Reader(client_id)
        return reader
