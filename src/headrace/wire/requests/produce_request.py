# SPDX-License-Identifier: Apache-2.0
"""A Produce request of one batch around the batch's bytes, versions 3 to 13: nothing is copied.

For clients; the broker's side is produce.py. The general encoder (messages.py) gives the same bytes.
"""

from __future__ import annotations

import struct
from uuid import UUID

from headrace.wire.primitives import compact_string, string, uvarint

_HEAD = struct.Struct(">ihhi")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
FIRST_FLEXIBLE = 9
FIRST_BY_ID = 13


def produce_request(
    version: int,
    correlation_id: int,
    client_id: str,
    topic: str | UUID,
    partition: int,
    batch: bytes | bytearray,
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> tuple[bytes, bytes | bytearray, bytes]:
    """The frame in three parts, the batch itself in the middle. `topic` is its id from version 13 on."""
    flexible = version >= FIRST_FLEXIBLE
    one = b"\2" if flexible else _INT32.pack(1)
    parts = [
        string(client_id),
        b"\0" + compact_string(transactional_id) if flexible else string(transactional_id),  # tags first
        _ACKS_AND_TIMEOUT.pack(acks, timeout_ms),
        one,
        _topic(topic, flexible),
        one,
        _INT32.pack(partition),
        uvarint(len(batch) + 1) if flexible else _INT32.pack(len(batch)),
    ]
    body = b"".join(parts)
    tail = b"\0\0\0" if flexible else b""  # tags of partition, topic and request
    size = _HEAD.size - 4 + len(body) + len(batch) + len(tail)
    return _HEAD.pack(size, 0, version, correlation_id) + body, batch, tail


def _topic(topic: str | UUID, flexible: bool) -> bytes:
    if isinstance(topic, UUID):
        return topic.bytes
    return compact_string(topic) if flexible else string(topic)
