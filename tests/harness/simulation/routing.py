# SPDX-License-Identifier: Apache-2.0
"""Finds the leader of a partition, or the coordinator of a group or transactional id, for simulated clients.

As real clients do, they ask any node for Metadata, believe it for one connection, and ask again when refused.
Read next: clients.py, several_nodes.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import World
from tests.harness.simulation.clients import SimConnection, Target, TryAgain, open_connection

GROUP, TRANSACTION = 0, 1
"""What a coordinator is asked for."""

Address = tuple[str, int]


async def open_any(world: World, addresses: Sequence[Address], name: str) -> SimConnection:
    host, port = world.random.choice(addresses)
    return await open_connection(world, host, port, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderTarget(Target):
    """One partition of a topic; connections go to its leader, as some node knows it."""

    index: int
    addresses: tuple[Address, ...]

    @property
    def indexes(self) -> Sequence[int]:
        return (self.index,)

    async def connect(self, world: World, name: str) -> SimConnection:
        asked = await open_any(world, self.addresses, name)
        try:
            host, port = await self._leader(asked)
        finally:
            asked.abort()
        return await open_connection(world, host, port, name)

    async def _leader(self, asked: SimConnection) -> Address:
        fields = {"topics": [{"name": self.topic}], "allow_auto_topic_creation": False}
        reply = await asked.call(ApiKey.METADATA, fields)
        (topic,) = reply.topics
        leaders = [p.leader_id for p in topic.partitions if p.partition_index == self.index]
        addresses = [(b.host, b.port) for b in reply.brokers if b.node_id in leaders]
        if not addresses:
            raise TryAgain(f"{self.partition(self.index)} has no leader: {topic.error_code.name}")
        return addresses[0]


async def open_controller(world: World, addresses: Sequence[Address], name: str) -> SimConnection:
    asked = await open_any(world, addresses, name)
    try:
        reply = await asked.call(ApiKey.METADATA, {"topics": []})
    finally:
        asked.abort()
    found = [(b.host, b.port) for b in reply.brokers if b.node_id == reply.controller_id]
    if not found:
        raise TryAgain("the cluster has no controller")
    return await open_connection(world, *found[0], name)


async def open_coordinator(
    world: World, addresses: Sequence[Address], key: str, name: str, *, key_type: int = GROUP
) -> SimConnection:
    """`key`: a group id or a transactional id."""
    asked = await open_any(world, addresses, name)
    try:
        fields = {"key": key, "key_type": key_type}
        reply = await asked.call(ApiKey.FIND_COORDINATOR, fields, version=2)
    finally:
        asked.abort()
    if reply.error_code is not ErrorCode.none:
        raise TryAgain(reply.error_code.name)
    return await open_connection(world, reply.host, reply.port, name)
