# SPDX-License-Identifier: Apache-2.0
"""Requests of the group protocols as bytes and their replies as objects, in one fixed version each.

For tests and benchmarks that talk to any broker: what Headrace itself serves does not matter here. Knows no
sockets. Read next: member.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.wire.kio_codec.decoder import Budget, message_decoder
from headrace.wire.kio_codec.encoder import message_encoder
from headrace.wire.primitives import skip_tagged_fields, string

CONSUMER = "consumer"
"""The protocol type of consumers; Connect has its own."""


class GroupApi(NamedTuple):
    """`flexible_from`: the first version whose headers carry tagged fields."""

    key: int
    version: int
    flexible_from: int


APIS: Mapping[str, GroupApi] = {
    "list_offsets": GroupApi(2, 7, 6),
    "metadata": GroupApi(3, 12, 9),
    "offset_commit": GroupApi(8, 9, 8),
    "offset_fetch": GroupApi(9, 9, 6),
    "find_coordinator": GroupApi(10, 4, 3),
    "join_group": GroupApi(11, 9, 6),
    "heartbeat": GroupApi(12, 4, 4),
    "leave_group": GroupApi(13, 5, 4),
    "sync_group": GroupApi(14, 5, 4),
    "describe_groups": GroupApi(15, 5, 5),
    "delete_groups": GroupApi(42, 2, 2),
    "offset_delete": GroupApi(47, 0, 1),
    "consumer_group_heartbeat": GroupApi(68, 1, 0),
    "consumer_group_describe": GroupApi(69, 1, 0),
}


def request(
    name: str,
    fields: Mapping[str, Any],
    *,
    version: int | None = None,
    correlation_id: int = 0,
    client_id: str = "group-test",
) -> bytes:
    """The whole frame; durations are milliseconds."""
    api = APIS[name]
    version = api.version if version is None else version
    frame = bytearray(struct.pack(">ihhi", 0, api.key, version, correlation_id) + string(client_id))
    if version >= api.flexible_from:
        frame.append(0)
    message_encoder(name, version, "request")(frame, fields)
    struct.pack_into(">i", frame, 0, len(frame) - 4)
    return bytes(frame)


def read_reply(name: str, frame: memoryview | bytes, *, version: int | None = None) -> Any:
    """The reply in a frame without its length field."""
    api = APIS[name]
    version = api.version if version is None else version
    body = memoryview(frame)
    position = skip_tagged_fields(body, 4, len(body)) if version >= api.flexible_from else 4
    read = message_decoder(name, version, "response")
    return read(body, position, len(body), Budget(1_000_000))[0]


def subscription(topics: Iterable[str]) -> bytes:
    """A subscription of the `consumer` protocol, version 0."""
    names = [struct.pack(">h", len(topic)) + topic.encode() for topic in topics]
    return struct.pack(">hi", 0, len(names)) + b"".join(names) + struct.pack(">i", -1)


def assignment(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """An assignment of the `consumer` protocol, version 0."""
    topics = [
        struct.pack(">h", len(topic)) + topic.encode() + struct.pack(f">i{len(found)}i", len(found), *found)
        for topic, found in partitions.items()
    ]
    return struct.pack(">hi", 0, len(topics)) + b"".join(topics) + struct.pack(">i", -1)


def read_assignment(data: bytes | memoryview) -> dict[str, list[int]]:
    """What `assignment` wrote, also by other clients; nothing when it is empty."""
    if not data:
        return {}
    (count,) = struct.unpack_from(">i", data, 2)
    position, found = 6, {}
    for _ in range(count):
        (length,) = struct.unpack_from(">h", data, position)
        name = bytes(data[position + 2 : position + 2 + length]).decode()
        position += 2 + length
        (partitions,) = struct.unpack_from(">i", data, position)
        found[name] = list(struct.unpack_from(f">{partitions}i", data, position + 4))
        position += 4 + 4 * partitions
    return found


def join_fields(
    group: str,
    member_id: str,
    topics: Iterable[str],
    *,
    session_ms: int,
    rebalance_ms: int = 60_000,
    assignor: str = "range",
) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": session_ms,
        "rebalance_timeout": rebalance_ms,
        "member_id": member_id,
        "protocol_type": CONSUMER,
        "protocols": [{"name": assignor, "metadata": subscription(topics)}],
    }


def sync_fields(
    group: str,
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes],
    *,
    assignor: str = "range",
) -> dict[str, Any]:
    given = [{"member_id": member, "assignment": data} for member, data in assignments.items()]
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "protocol_type": CONSUMER,
        "protocol_name": assignor,
        "assignments": given,
    }


def commit_fields(
    group: str, member_id: str, epoch: int, topic: str, offsets: Mapping[int, int], metadata: str = ""
) -> dict[str, Any]:
    """`epoch`: the generation or member epoch; -1 with an empty member id is a simple consumer."""
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
        for index, offset in offsets.items()
    ]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": epoch,
        "member_id": member_id,
        "topics": [{"name": topic, "partitions": partitions}],
    }


def fetch_fields(
    group: str, topic: str, partitions: Iterable[int], *, member_id: str | None = None, epoch: int = -1
) -> dict[str, Any]:
    wanted = [{"name": topic, "partition_indexes": list(partitions)}]
    asked = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "topics": wanted}
    return {"groups": [asked]}
