# SPDX-License-Identifier: Apache-2.0
"""A node's admin side without sockets or logs: cluster, controller and handlers over a store in memory.

Requests go through the wire format of a version and back, so that a field no version has cannot hide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headrace.broker.controller.controller import Controller
from headrace.broker.handlers.configs import ConfigHandlers
from headrace.broker.handlers.quotas import QuotaHandlers
from headrace.broker.handlers.topics import TopicHandlers
from headrace.broker.handlers.users import UserHandlers
from headrace.broker.metrics import Metrics
from headrace.broker.network.request_context import RequestContext
from headrace.broker.quotas.client_throttles import make_throttles
from headrace.config import load_config
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.memory import MemoryState, MemoryStore
from headrace.realworld import RealWorld
from headrace.types import Endpoint
from headrace.wire.api_table import read_request_header
from headrace.wire.messages import decode_reply, decode_request, encode_reply, encode_request


class AdminNode:
    def __init__(self, cluster: ClusterMetadata, settings: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.config = load_config(None, settings, {})
        self.node_id: int = self.config["node.id"]
        self.controller = Controller(cluster, RealWorld(), self.config)
        parts: dict[str, Any] = {
            "cluster": cluster,
            "controller": self.controller,
            "config": self.config,
            "node_id": self.node_id,
        }
        configs = ConfigHandlers(
            **parts, readers=lambda topic: {}, segments=lambda topic: {}, clients=no_clients
        )
        users = UserHandlers(cluster=cluster, controller=self.controller)
        world = RealWorld()
        self.throttles = make_throttles(world.clock, Metrics(world.clock), self.config)
        cluster.subscribe(self.throttles.apply_view)
        self._handlers = {
            **TopicHandlers(**parts, throttles=self.throttles).by_key(),
            **configs.by_key(),
            **users.by_key(),
            **QuotaHandlers(cluster=cluster).by_key(),
        }

    async def call(self, api_key: int, version: int, **fields: Any) -> Any:
        """The reply object as a client of that version sees it."""
        frame = encode_request(api_key, version, 7, "test", fields)
        request = _decoded(api_key, version, frame)
        context = RequestContext(
            api_key=api_key,
            api_version=version,
            correlation_id=7,
            client_id="test",
            listener="PLAINTEXT",
            peer="127.0.0.1",
        )
        reply = await self._handlers[api_key](context, request)
        assert isinstance(reply, dict)
        encoded = encode_reply(api_key, version, 7, reply)
        return decode_reply(api_key, version, memoryview(encoded)[4:])[1]


async def no_clients() -> list[str]:
    return []


def _decoded(api_key: int, version: int, frame: bytes) -> Any:
    view = memoryview(frame)
    header = read_request_header(view, 4, len(view))
    return decode_request(api_key, version, view, header.body_position, len(view))


def on_a_node(
    scenario: Callable[[AdminNode], Awaitable[None]],
    *,
    other_nodes: int = 0,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Runs a scenario on node 1, which is the controller, beside so many others (2, 3, …)."""

    async def main() -> None:
        world = RealWorld()
        state = MemoryState(world)
        clusters = [await _joined(state, world, node_id) for node_id in range(1, other_nodes + 2)]
        await clusters[0].catch_up()
        await clusters[0].become_controller(1)
        try:
            await scenario(AdminNode(clusters[0], settings or {}))
        finally:
            for cluster in clusters:
                await cluster.close()

    asyncio.run(main())


async def _joined(state: MemoryState, world: RealWorld, node_id: int) -> ClusterMetadata:
    cluster = await ClusterMetadata.open(MemoryStore(state, world), world)
    await cluster.register_node(
        node_id=node_id,
        host_id=f"host-{node_id}",
        hostname=f"host-{node_id}",
        endpoints=[Endpoint(listener="PLAINTEXT", host="localhost", port=9092 + node_id)],
        session_ttl_ms=60_000,
    )
    return cluster
