# SPDX-License-Identifier: Apache-2.0
"""Small stand-ins for the broker's core, for tests of the read-side handlers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headrace.broker.controller.metadata_cache import MetadataCache
from headrace.broker.handlers.cluster import ClusterHandlers
from headrace.broker.handlers.coordinators import CoordinatorHandlers
from headrace.broker.handlers.metadata import MetadataHandlers
from headrace.broker.handlers.offsets import OffsetHandlers
from headrace.broker.handlers.producers import ProducerHandlers
from headrace.broker.metrics import Metrics
from headrace.broker.network.request_context import EncodedReply, Handler, RequestContext
from headrace.broker.partition.registry import Partitions
from headrace.broker.partition.roles import Role
from headrace.errors import ApiError
from headrace.log.log_config import LogConfig
from headrace.types import ClusterView, Endpoint, Node, PartitionState, Topic, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import decode_reply, decode_request, encode_reply, encode_request

NODE_ID = 1


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now * 1000)


class FakeFiles:
    broken = False

    def total_bytes(self, path: Path) -> int:
        if self.broken:
            raise OSError("gone")
        return 1_000_000

    def free_bytes(self, path: Path) -> int:
        return 400_000


class FakePartition:
    """A partition whose figures the test sets."""

    def __init__(self, topic: str, index: int, **figures: Any) -> None:
        self.topic_partition = TopicPartition(topic, index)
        self.online = self.leads = True
        self.role = Role()
        self.leader_epoch = 3
        self.log_start_offset = 10
        self.last_stable_offset = 90
        self.high_watermark = 100
        self.log_end_offset = 120
        self.size_bytes = 5_000
        self.times: dict[int, tuple[int, int] | None] = {}
        self.max_time: tuple[int, int] | None = None
        self.epoch_ends: dict[int, tuple[int, int]] = {}
        self.producers: list[Any] = []
        self.settings = SimpleNamespace(log=LogConfig())
        for name, value in figures.items():
            setattr(self, name, value)

    def check_leader_epoch(self, epoch: int) -> None:
        if 0 <= epoch < self.leader_epoch:
            raise ApiError(ErrorCode.fenced_leader_epoch)
        if epoch > self.leader_epoch:
            raise ApiError(ErrorCode.unknown_leader_epoch)

    def offset_for_timestamp(self, timestamp_ms: int, ask: Any) -> tuple[int, int] | None:
        return self.times.get(timestamp_ms)

    def offset_of_max_timestamp(self, ask: Any) -> tuple[int, int] | None:
        return self.max_time

    def epoch_at(self, offset: int) -> int:
        return 2 if offset < 50 else 3

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epoch_ends.get(epoch, (-1, -1))

    async def delete_records_before(self, offset: int) -> int:
        self.log_start_offset = max(self.log_start_offset, offset)
        return self.log_start_offset

    def active_producers(self) -> list[Any]:
        return self.producers

    async def caught_up(self) -> None: ...


def registry(world: Any, metrics: Metrics, partitions: Iterable[FakePartition]) -> Any:
    """The real registry with stand-ins for opened partitions."""
    unused: Any = None
    held = Partitions(
        world=world,
        node_id=NODE_ID,
        directory=Path("/data"),
        metrics=metrics,
        flusher=unused,
        descriptors=unused,
        settings_of=unused,
        changed_topics=unused,
        checkpoints=unused,
        persist_offsets=unused,
    )
    by_name: Any = held._by_name
    for partition in partitions:
        by_name.setdefault(partition.topic_partition.topic, {})[partition.topic_partition.partition] = (
            partition
        )
    return held


class FakeControllerLoop:
    async def wait_for_failover(self) -> None:
        """No node has failed."""


class FakeController:
    """Creates topics in the fake broker's view, or refuses with the error the test sets."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self.refuses_with: ErrorCode | None = None
        self.created: list[str] = []

    async def ensure_topic(self, name: str) -> Topic:
        await asyncio.sleep(0)
        if self.refuses_with is not None:
            raise ApiError(self.refuses_with)
        self.created.append(name)
        self._broker.set_view(topics=[*self._broker.cluster.view.topics.values(), topic(name)])
        return self._broker.cluster.view.topics[name]


class FakeCluster:
    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self._next_producer_id = 1000

    async def allocate_producer_ids(self, count: int) -> range:
        first, self._next_producer_id = self._next_producer_id, self._next_producer_id + count
        return range(first, first + count)


class FakeBroker:
    def __init__(
        self,
        topics: Iterable[Topic] = (),
        nodes: Iterable[Node] | None = None,
        partitions: Iterable[FakePartition] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.world = SimpleNamespace(
            clock=FakeClock(),
            files=FakeFiles(),
            tasks=SimpleNamespace(bulk=None, call_soon=None, thread=lambda name: None),
        )
        self.config = {"auto.create.topics.enable": True, **(config or {})}
        self.node_id = NODE_ID
        self.metrics = Metrics(self.world.clock)
        self.metadata_cache = MetadataCache()
        self.cluster = FakeCluster(view(topics, nodes))
        self.partitions = registry(self.world, self.metrics, partitions)
        self.partitions._view = self.cluster.view
        self.controller = FakeController(self)
        self.controller_loop = FakeControllerLoop()
        self.groups: Any = None
        self.transactions: Any = None

    def handlers(self) -> dict[int, Handler]:
        """All read-side handlers, built from the parts of this broker as they are now."""
        parts: dict[str, Any] = {
            **vars(self),
            "cache": self.metadata_cache,
            "clock": self.world.clock,
            "files": self.world.files,
            "tasks": self.world.tasks,
            "reassignments": None,
            "view_waits": None,
            "authorization": None,
        }
        table: dict[int, Handler] = {}
        for family in (
            ClusterHandlers,
            CoordinatorHandlers,
            MetadataHandlers,
            OffsetHandlers,
            ProducerHandlers,
        ):
            table |= family(**{name: parts[name] for name in signature(family).parameters}).by_key()
        return table

    def set_view(self, topics: Iterable[Topic], nodes: Iterable[Node] | None = None) -> None:
        nodes = self.cluster.view.nodes.values() if nodes is None else nodes
        self.cluster.view = self.partitions._view = view(topics, nodes, self.cluster.view.version + 1)

    def ask(self, api_key: ApiKey, version: int, listener: str = "PLAINTEXT", **fields: Any) -> Any:
        """Through the wire both ways: the handler gets what a client sends, the test what a client reads."""
        return asyncio.run(self.ask_async(api_key, version, listener, **fields))

    async def ask_async(
        self, api_key: ApiKey, version: int, listener: str = "PLAINTEXT", **fields: Any
    ) -> Any:
        api = APIS[api_key]
        frame = encode_request(api.key, version, 7, None, fields)
        # the body starts after the length, the fixed header, a null client id and, if flexible, no tags
        start = 4 + 2 + 2 + 4 + 2 + (1 if version >= api.flexible_from else 0)
        request = decode_request(api.key, version, memoryview(frame), start, len(frame))
        context = RequestContext(
            api_key=api.key,
            api_version=version,
            correlation_id=7,
            client_id=None,
            listener=listener,
            peer="127.0.0.1:1",
        )
        reply = await self.handlers()[api.key](context, request)
        if isinstance(reply, EncodedReply):
            encoded = reply.for_request(7)
        else:
            encoded = encode_reply(api.key, version, 7, reply)
        correlation_id, answer = decode_reply(api.key, version, memoryview(encoded)[4:])
        assert correlation_id == 7
        return answer


def node(node_id: int, *, rack: str | None = None, listeners: tuple[str, ...] = ("PLAINTEXT",)) -> Node:
    return Node(
        node_id=node_id,
        epoch=1,
        host_id="host",
        hostname="host",
        endpoints=tuple(
            Endpoint(listener=name, host=f"{name.lower()}-{node_id}", port=9000 + node_id)
            for name in listeners
        ),
        rack=rack,
    )


def topic(name: str, partitions: int = 1, **state: Any) -> Topic:
    figures = {"replicas": (NODE_ID,), "leader": NODE_ID, "leader_epoch": 3, "isr": (NODE_ID,), **state}
    return Topic(
        name=name,
        topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, name),
        partitions=tuple(PartitionState(**figures) for _ in range(partitions)),
    )


def view(topics: Iterable[Topic], nodes: Iterable[Node] | None = None, version: int = 1) -> ClusterView:
    topics = list(topics)
    nodes = [node(NODE_ID)] if nodes is None else list(nodes)
    return ClusterView(
        version=version,
        cluster_id="cluster-id-of-22-chars",
        controller_id=NODE_ID,
        nodes={each.node_id: each for each in nodes},
        topics={each.name: each for each in topics},
        topic_names={each.topic_id: each.name for each in topics},
    )
