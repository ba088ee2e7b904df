# SPDX-License-Identifier: Apache-2.0
"""Memory for what a large control request is decoded to and answered with, counted with the frames (S1).

An estimate from the size of the frame, reserved before it is decoded: a request that finds no room waits.
Read next: frame_memory.py, dispatch/dispatcher.py, wire/request_bounds.py (the figures).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from headrace.broker.network.frame_memory import FrameMemory
from headrace.wire.request_bounds import estimated_bytes

COUNTED_FROM_BYTES = 1 << 20
"""Smaller estimates are not counted: most requests are far below."""


class Sender(Protocol):
    """The connection of a request."""

    address: str

    @property
    def has_memory_of_its_own(self) -> bool: ...


class _Room:
    """A holder of memory beside its connection, which may hold a frame meanwhile."""

    awaited_bytes = None
    """It is always the node's turn."""

    def __init__(self, sender: Sender) -> None:
        self.address = sender.address
        self.has_memory_of_its_own = sender.has_memory_of_its_own
        self._returned = asyncio.Event()

    def memory_returned(self) -> None:
        self._returned.set()

    def refuse(self, reason: str) -> None:
        raise AssertionError("only clients that are waited for are refused")

    async def reserve(self, memory: FrameMemory, byte_count: int) -> None:
        while not memory.reserve(self, byte_count):
            self._returned.clear()
            await self._returned.wait()


@asynccontextmanager
async def room_for(
    memory: FrameMemory, sender: Sender, api_key: int, frame_bytes: int
) -> AsyncIterator[None]:
    """Holds the memory that a request of so many bytes may take."""
    byte_count = estimated_bytes(api_key, frame_bytes)
    if byte_count < COUNTED_FROM_BYTES:
        yield
        return
    room = _Room(sender)
    held = 0
    try:
        await room.reserve(memory, byte_count)
        held = byte_count
        yield
    finally:
        if held:
            memory.give_back(room, held)
        memory.frame_done(room)
