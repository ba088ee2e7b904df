# SPDX-License-Identifier: Apache-2.0
"""A broker made of bytes: what a connection writes is answered in the same loop. No socket, no sleep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headrace.wire.api_table import read_request_header
from headrace.wire.messages import encode_reply

API_VERSIONS = 18
METADATA = 3
SERVED = [
    {"api_key": 0, "min_version": 14, "max_version": 15},
    {"api_key": METADATA, "min_version": 0, "max_version": 12},
    {"api_key": API_VERSIONS, "min_version": 0, "max_version": 4},
]


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False
        self.on_write: Callable[[bytes], None] = lambda frame: None
        self.protocol: asyncio.BufferedProtocol | None = None

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))
        self.on_write(bytes(data))

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            assert self.protocol is not None
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class FakeBroker:
    """Answers ApiVersions by itself; everything else waits for the test."""

    def __init__(self, highest_api_versions: int = 4) -> None:
        self.highest = highest_api_versions
        self.served = SERVED
        self.features: list[dict[str, Any]] = []
        self.transport = FakeTransport()
        self.requests: list[tuple[int, int, int]] = []

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        protocol = factory()
        self.transport.protocol = protocol
        self.transport.on_write = self.take
        protocol.connection_made(self.transport)
        return self.transport, protocol

    def take(self, frame: bytes) -> None:
        header = read_request_header(memoryview(frame), 4, len(frame))
        if header.api_key != API_VERSIONS:
            self.requests.append((header.api_key, header.api_version, header.correlation_id))
        elif header.api_version > self.highest:
            keys = [{"api_key": API_VERSIONS, "min_version": 0, "max_version": self.highest}]
            self.reply(API_VERSIONS, 0, header.correlation_id, {"error_code": 35, "api_keys": keys})
        else:
            fields = {"api_keys": self.served, "finalized_features": self.features}
            self.reply(API_VERSIONS, header.api_version, header.correlation_id, fields)

    def reply(self, key: int, version: int, correlation_id: int, fields: dict[str, Any]) -> None:
        self.send(encode_reply(key, version, correlation_id, fields))

    def send(self, data: bytes) -> None:
        assert self.transport.protocol is not None
        asyncio.get_running_loop().call_soon(deliver, self.transport.protocol, data)


def deliver(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    while data:
        room = memoryview(protocol.get_buffer(-1))
        size = min(len(room), len(data))
        room[:size] = data[:size]
        data = data[size:]
        protocol.buffer_updated(size)
