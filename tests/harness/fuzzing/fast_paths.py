# SPDX-License-Identifier: Apache-2.0
"""Streams of requests that take a node's fast paths, and what it makes of them with and without those.

Fast: runs of Produce requests, heartbeats and commits that repeat the last one. Plain: the connection
remembers no earlier request. Read next: tests/simulation/test_fuzzed_node.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from headrace.machines.groups.group import Group
from headrace.testing.simworld import Simulation
from headrace.wire.api_key import ApiKey
from headrace.wire.messages import encode_request
from headrace.wire.records import Record, build_batch
from tests.harness.broker.fake_clients import FakeTransport
from tests.harness.broker.simulated_node import SimBroker
from tests.harness.fuzzing.damage import damaged
from tests.harness.fuzzing.frames import TOPIC, framed

_SETTLED_S = 1.0
"""Virtual: every request of these streams is answered by then."""
_TIMESTAMP = 1_700_000_000_000
_SETTINGS = {"offsets.topic.num.partitions": "1"}


class _Forgetful(dict[int, Any]):
    """Remembers no earlier request."""

    def __setitem__(self, key: int, value: Any) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a client and the disk see of a stream."""

    replies: bytes
    closed: bool
    logs: Sequence[tuple[int, bytes]]
    """High watermark and batches of each partition."""
    offsets: Sequence[tuple[int, int]]


def repeating_requests(chance: Random) -> list[bytes]:
    """Whole frames: requests of one shape in a row, now and then another, a bad batch or damage."""
    requests: list[bytes] = []
    while len(requests) < 40:
        make = chance.choice((_produce, _produce, _commit, _heartbeat))
        requests += make(chance, len(requests))
    if chance.random() < 0.3:
        place = chance.randrange(len(requests))
        requests[place] = framed(damaged(requests[place][4:], chance, keep=4))
    return requests


def _produce(chance: Random, first: int) -> list[bytes]:
    version, acks, index = (
        chance.choice((3, 7, 8, 9, 12)),
        chance.choice((1, 1, -1, -1, -1, 7)),
        chance.choice((0, 0, 0, 1, 5)),
    )
    producer = chance.choice((-1, -1, 7))
    sequence = chance.randrange(3)
    frames = []
    for number in range(first, first + chance.randint(1, 12)):
        batch = build_batch(
            [Record(0, _TIMESTAMP, b"k", b"%d" % number * chance.choice((1, 40)))],
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0,
            base_sequence=-1 if producer < 0 else sequence,
        )
        sequence += chance.choice((1, 1, 1, 1, 0, 2))
        if chance.random() < 0.05:
            batch = bytearray(damaged(bytes(batch), chance))
        data = [{"index": index, "records": bytes(batch)}]
        fields = {"acks": acks, "timeout": 500, "topic_data": [{"name": TOPIC, "partition_data": data}]}
        frames.append(encode_request(ApiKey.PRODUCE, version, number, "fuzz", fields))
    return frames


def _commit(chance: Random, first: int) -> list[bytes]:
    version, extreme = chance.choice((7, 8, 9)), chance.random() < 0.2
    partitions = chance.sample((0, 1, 2), chance.randint(1, 3))
    frames = []
    for number in range(first, first + chance.randint(1, 6)):
        offset = chance.choice((-(2**63), 2**63 - 1, -1)) if extreme else number
        places: list[dict[str, Any]] = [
            {"partition_index": each, "committed_offset": offset, "committed_metadata": ""}
            for each in partitions
        ]
        topics = [{"name": TOPIC, "partitions": places}]
        fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": topics}
        frames.append(encode_request(ApiKey.OFFSET_COMMIT, version, number, "fuzz", fields))
    return frames


def _heartbeat(chance: Random, first: int) -> list[bytes]:
    key, version = chance.choice(
        ((ApiKey.HEARTBEAT, 3), (ApiKey.HEARTBEAT, 4), (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1))
    )
    epoch = chance.choice((-1, 3, 2**31 - 1))
    fields: dict[str, Any] = {"group_id": "g", "member_id": chance.choice(("", "m"))}
    fields["generation_id" if key == ApiKey.HEARTBEAT else "member_epoch"] = epoch
    return [
        encode_request(key, version, number, "fuzz", fields)
        for number in range(first, first + chance.randint(1, 5))
    ]


def outcome(requests: Sequence[bytes], *, fast: bool) -> Outcome:
    """Of the requests on one connection of a new node."""
    with Simulation(1) as simulation:

        async def main() -> Outcome:
            node = SimBroker(simulation, _SETTINGS)
            await node.start()
            await node.create(TOPIC, 2)
            await node.broker.groups.ensure_topic()
            await asyncio.sleep(_SETTLED_S)
            return await _send(node, requests, fast=fast)

        return simulation.run(main())


async def _send(node: SimBroker, requests: Sequence[bytes], *, fast: bool) -> Outcome:
    connection = node.broker.connections.factory("main")()
    transport = FakeTransport(connection)
    connection.connection_made(transport)
    if not fast:
        connection.runs, connection.codecs = _Forgetful(), _Forgetful()
    transport.arrive(b"".join(requests))
    await _settled(transport)
    replies, closed = bytes(transport.sent), transport.ended
    connection.connection_lost(None)
    logs = [await _log(node, index) for index in (0, 1)]
    group = next((group for group in node.broker.groups.groups() if group.group_id == "g"), None)
    return Outcome(replies=replies, closed=closed, logs=logs, offsets=_offsets(group))


async def _settled(transport: FakeTransport) -> None:
    """Until nothing more is read: each pass lets in what waited for an answer."""
    await asyncio.sleep(_SETTLED_S)
    while transport.arrived and transport.reading and not transport.ended:
        transport.arrive()
        await asyncio.sleep(_SETTLED_S)


async def _log(node: SimBroker, index: int) -> tuple[int, bytes]:
    part = await node.fetch(0, index=index, max_wait_ms=0)
    return part.high_watermark, bytes(part.records or b"")


def _offsets(group: Group | None) -> list[tuple[int, int]]:
    if group is None:
        return []
    return sorted((partition, value.offset) for _, partition, value in group.offsets.all())
