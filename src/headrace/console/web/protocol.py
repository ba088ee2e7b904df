# SPDX-License-Identifier: Apache-2.0
"""uvicorn's HTTP connection with the deadlines that it lacks.

The headers of a request have to arrive within some seconds, and a peer has to take what is sent to it:
otherwise idle strangers would hold connections and memory. Bodies have a deadline in bodies.py.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 10.0
STALLED_S = 60.0


class DeadlineProtocol(H11Protocol):
    _headers_due: asyncio.TimerHandle | None = None
    _room_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._expect_headers()
        elif self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _expect_headers(self) -> None:
        """From the first byte on: more of them do not move the deadline."""
        if self._headers_due is None:
            self._headers_due = self.loop.call_later(HEADERS_S, self._check_headers)

    def _check_headers(self) -> None:
        self._headers_due = None
        waits_for_request = self.cycle is None or self.cycle.response_complete
        if self.conn.their_state is h11.IDLE and waits_for_request:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._room_due is None:
            self._room_due = self.loop.call_later(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._room_due is not None:
            self._room_due.cancel()
            self._room_due = None

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._headers_due, self._room_due):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
