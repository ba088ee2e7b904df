# SPDX-License-Identifier: Apache-2.0
"""What Produce and Fetch share: topics by name or id, a bound on entries, endpoints of leaders.

Read next: produce.py, fetch.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.errors import DecodeError
from headrace.wire.primitives import compact_string, read_compact_string, uuid_from_bytes, uvarint

MAX_PARTITIONS_PER_REQUEST = 200_000
"""More than any node holds. Six bytes of a frame become an object of 150 bytes, so entries are bounded."""
MAX_PARTITIONS_PER_PRODUCE = 20_000
"""Each has a batch, and a producer's request is 1 MiB; all are appended in one turn of the event loop."""

REPLY_HEADER = struct.Struct(">ii")
"""Length of the frame and correlation id."""

_INT32 = struct.Struct(">i")


class NodeEndpoint(NamedTuple):
    """Endpoint of the leader named in a hint."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def read_topic(view: memoryview, position: int, end: int, by_id: bool) -> tuple[str | None, UUID | None, int]:
    """(name, id, position after) of a topic in a flexible version."""
    if by_id:
        stop = position + 16
        if stop > end:
            raise DecodeError("topic id is cut off")
        return None, uuid_from_bytes(bytes(view[position:stop])), stop
    name, position = read_compact_string(view, position, end)
    if name is None:
        raise DecodeError("topic name may not be null")
    return name, None, position


def spend(budget: int, entries: int) -> int:
    if entries > budget:
        raise DecodeError(f"{entries} topics and partitions, more than the {budget} left of those allowed")
    return budget - entries


def node_endpoint_tags(node_endpoints: Sequence[NodeEndpoint]) -> bytes:
    """A tagged-field section with tag 0, the endpoints."""
    parts = [uvarint(len(node_endpoints) + 1)]
    for node_id, host, port, rack in node_endpoints:
        parts.append(_INT32.pack(node_id) + compact_string(host) + _INT32.pack(port))
        parts.append(compact_string(rack) + b"\0")
    body = b"".join(parts)
    return b"\1\0" + uvarint(len(body)) + body
