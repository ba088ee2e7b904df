# SPDX-License-Identifier: Apache-2.0
"""The argument of a measure function: one node for one turn, topics on it, its CPU clock, and helpers.

The same for every engine: nothing here asks which one it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from bench.nodes import Nodes
from bench.payloads import plain_batch
from bench.raw_client import RawConnection, send_each
from bench.raw_requests import FetchReply, ProduceReply, RawReplyError, fetch_request, produce_request
from bench.secured import SecuredNode
from bench.workers import WorkerPool
from headrace.cluster.engines.engine import RunningNode
from headrace.cluster.engines.kafka import KafkaEngine

_ADMIN_TIMEOUT_SECONDS = 60
_topic_numbers = count()

# Files of deleted topics go soon instead of after a minute, so that a long run does not fill the disk.
_TOPIC_CONFIGS = {"file.delete.delay.ms": "1000"}


@dataclass(slots=True)
class CpuClock:
    """CPU seconds that the node spent inside a `with cell.cpu_clock()` block."""

    seconds: float = 0.0

    def per_gb(self, payload_bytes: float) -> float:
        return self.seconds / (payload_bytes / 1e9)


@dataclass(kw_only=True)
class Cell:
    variant: str
    nodes: Nodes
    tools: KafkaEngine
    pool: WorkerPool
    scale: float = 1.0
    """How much of everything this turn does: less in warm-up turns and with `--quick`."""
    suite_scale: float = 1.0
    """The same for what is made once for all turns."""
    state: dict[str, Any] = field(default_factory=dict)
    """Survives from turn to turn of one measure on one node."""
    own_node: RunningNode | None = None

    @property
    def node(self) -> RunningNode:
        return self.own_node or self.nodes.node(self.variant)

    @property
    def secured(self) -> SecuredNode:
        """The guarded listeners of the node, on a secured profile."""
        return self.nodes.secured(self.node)

    def scaled(self, amount: int, *, least: int = 1) -> int:
        return max(least, int(amount * self.scale))

    def connect(self, *, buffer_bytes: int = 1 << 18) -> RawConnection:
        return RawConnection(self.node.host, self.node.port, buffer_bytes=buffer_bytes)

    @contextmanager
    def cpu_clock(self) -> Iterator[CpuClock]:
        clock = CpuClock()
        before = self.node.cpu_seconds()
        yield clock
        clock.seconds = self.node.cpu_seconds() - before

    @contextmanager
    def topic(self, partitions: int = 1, **configs: str) -> Iterator[str]:
        """A new topic, deleted afterwards. Configs with `_` for `.`."""
        name = self.create_topic(partitions, **configs)
        try:
            yield name
        finally:
            self.delete_topic(name)

    def create_topic(self, partitions: int = 1, *, name: str = "", **configs: str) -> str:
        name = name or f"bench-{next(_topic_numbers)}"
        settings = _TOPIC_CONFIGS | {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        _wait(self._admin().create_topics([topic]))
        self.wait_for_partitions(name, range(partitions))
        return name

    def touch_partitions(self, topic: str, partitions: int) -> None:
        """Write into each until it has files and an index entry: their making is not what is measured."""
        batch = plain_batch(8, 1000)
        requests = [produce_request(topic, {index: batch}, acks=1) for index in range(partitions)] * 2
        with self.connect() as connection:
            send_each(connection, requests, ProduceReply(topic).check, in_flight=16)

    def shared_topic(self, fill: Callable[[str], None], partitions: int = 1, **configs: str) -> str:
        """A topic made and filled on this node's first turn of a measure, there for all its turns."""
        if "topic" not in self.state:
            topic = self.create_topic(partitions, **configs)
            fill(topic)
            self.state["topic"] = topic
        return str(self.state["topic"])

    def release(self) -> None:
        """After the last turn of a measure."""
        if topic := self.state.pop("topic", None):
            self.delete_topic(topic)

    def add_partitions(self, topic: str, old: int, new: int) -> None:
        _wait(self._admin().create_partitions([NewPartitions(topic, new)]))
        self.wait_for_partitions(topic, range(old, new))

    def alter_topic(self, topic: str, **configs: str) -> None:
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _wait(self._admin().incremental_alter_configs([resource]))

    def delete_topic(self, name: str) -> None:
        _wait(self._admin().delete_topics([name]))

    def wait_for_partitions(self, topic: str, partitions: Sequence[int]) -> None:
        """A topic is answered for a moment after its creation by "unknown" on some brokers."""
        reply_of = FetchReply(topic)
        deadline = time.monotonic() + _ADMIN_TIMEOUT_SECONDS
        with self.connect() as connection:
            for partition in partitions:
                request = fetch_request(topic, 0, partition=partition, min_bytes=0, max_wait_ms=0)
                while not _accepted(reply_of, connection.call(request)):
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"{topic}-{partition} was created but never became readable")
                    time.sleep(0.005)

    def _admin(self) -> AdminClient:
        # Kept per node: a new admin client costs a connection and some 100 ms.
        key = f"admin {self.node.bootstrap}"
        if key not in self.state:
            self.state[key] = AdminClient({"bootstrap.servers": self.node.bootstrap, "log_level": 0})
        admin: AdminClient = self.state[key]
        return admin


def _accepted(reply_of: FetchReply, reply: memoryview) -> bool:
    try:
        reply_of.check(reply)
    except RawReplyError:
        return False
    return True


def _wait(futures: dict[Any, Future[None]]) -> None:
    for future in futures.values():
        future.result(_ADMIN_TIMEOUT_SECONDS)
