# SPDX-License-Identifier: Apache-2.0
"""Which offset of a partition may be committed: the one after the longest finished prefix. Pure.

Records finish in any order, but a commit says "all before this one are done", so it stops at the first that
is not. Offsets may have gaps (compaction, transactions): what counts is the order of their arrival.
"""

from __future__ import annotations

from collections import deque


class Ticket:
    """One received record's place in the order of its partition."""

    __slots__ = ("finished", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.finished = False


class Prefix:
    """Received records of one partition, from the first that is not finished on."""

    def __init__(self) -> None:
        self._open: deque[Ticket] = deque()
        self.position: int | None = None
        """The offset to commit; None while not even the first record is finished."""

    def __len__(self) -> int:
        """How many records would come again after a crash, as far as they were received."""
        return len(self._open)

    def receive(self, offset: int) -> Ticket:
        ticket = Ticket(offset)
        self._open.append(ticket)
        return ticket

    def finish(self, ticket: Ticket) -> None:
        ticket.finished = True
        while self._open and self._open[0].finished:
            self.position = self._open.popleft().offset + 1
