# SPDX-License-Identifier: Apache-2.0
"""The clients that fetch from a partition, and the offset that each asked for last.

Reported by DescribeConfigs (handlers/configs.py): a fetch names no group, and nothing it says is relied
upon. A client that asks again for what it was sent may have found it corrupt (R27). `note` is called for
every partition of every fetch, so it does no more than a look-up, a comparison and three assignments for a
known client. Which of them is a member of a group: client/tools/positions.py.
"""

from __future__ import annotations

from typing import NamedTuple

MOST_READERS = 32
IDLE_S = 60.0
"""After this time without a fetch, a client makes room for another."""
FULL_FOR_S = 5.0
SOUND_FOR_S = 1.0
"""What was found sound for a reader is not checked again so soon, however often it asks."""
_LONGEST_CLIENT_ID = 255


class ReaderPosition(NamedTuple):
    client_id: str
    host: str
    offset: int
    age_ms: int
    """Time since the fetch."""


class _Reader:
    __slots__ = ("checked_at", "client_id", "fetched_at", "offset", "sent")

    def __init__(self, client_id: str | None, offset: int) -> None:
        self.client_id = client_id
        self.offset = offset
        self.fetched_at = 0.0
        self.checked_at = -SOUND_FOR_S
        self.sent = True
        """Whether the last fetch, from `offset`, was answered with records."""


class Readers:
    """Of one partition; a client is a connection. Bounded: clients beyond MOST_READERS are not listed."""

    __slots__ = ("_by_peer", "_full_until")

    def __init__(self) -> None:
        self._by_peer: dict[str, _Reader] = {}
        self._full_until = 0.0

    def note(self, peer: str, client_id: str | None, offset: int, now: float, *, sent: bool) -> bool:
        """`now`: when the request came; a long poll reads several times. `sent`: there are records to send.

        Returns whether they deserve a check: the client was sent them before, or has not read here yet.
        """
        reader = self._by_peer.get(peer)
        if reader is None or reader.client_id != client_id:
            reader = self._add(peer, client_id, offset, now)
            if reader is None:
                return False
        again = sent and reader.sent and reader.offset == offset and reader.fetched_at != now
        if again and (again := now - reader.checked_at >= SOUND_FOR_S):
            reader.checked_at = now
        reader.offset = offset
        reader.fetched_at = now
        reader.sent = sent
        return again

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

    def _add(self, peer: str, client_id: str | None, offset: int, now: float) -> _Reader | None:
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
        reader = readers[peer] = _Reader(client_id, offset)
        return reader
