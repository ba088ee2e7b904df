# SPDX-License-Identifier: Apache-2.0
"""A whole node in the simulated world: real broker code, disk and network in memory, time that does not pass.

`on_a_node` runs a scenario; requests go through real bytes. For what needs a node and no process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.broker.node import Broker, start_node
from headrace.broker.partition.partition import Partition
from headrace.config import NodeConfig, load_config
from headrace.coordination.memory import MemoryState, MemoryStore
from headrace.testing.memory_files import MemoryFiles
from headrace.testing.simworld import DATA_DIRECTORY, Simulation, SimWorld
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.records import Record, build_batch
from tests.harness.simulation.clients import SimConnection, Target, connect, records_in

HOST, PORT, TOPIC = "127.0.0.1", 9092, "t"
PRODUCE, FETCH, LIST_OFFSETS, CREATE, DELETE, DELETE_RECORDS, ALTER = 0, 1, 2, 19, 20, 21, 44
FETCH_VERSION = 11
LONG_MS = 100_000


class SimBroker:
    def __init__(self, simulation: Simulation, settings: Mapping[str, str]) -> None:
        self.simulation = simulation
        self.config = node_config(settings)
        self.clients = simulation.start_process("clients")
        self.state = MemoryState(self.clients)
        self.world: SimWorld
        self.broker: Broker

    @property
    def files(self) -> MemoryFiles:
        return self.simulation.machine("node").files

    def partition(self, topic: str = TOPIC, index: int = 0) -> Partition:
        partition = self.broker.partitions.get(topic, index)
        assert partition is not None
        return partition

    # Life

    async def start(self) -> None:
        self.world = self.simulation.start_process("node")
        store = MemoryStore(self.state, self.world)
        self.broker = await self.world.tasks.spawn(start_node(self.world, self.config, store), name="start")

    async def stop(self) -> None:
        await self.world.tasks.spawn(self.broker.stop(), name="stop")

    async def kill(self) -> None:
        self.simulation.kill(self.world)

    # Requests

    async def connect(self) -> SimConnection:
        target = Target(host=HOST, port=PORT, topic=TOPIC, partitions=1)
        return await connect(self.clients, target, "test")

    async def create(self, name: str = TOPIC, partitions: int = 1, **configs: str) -> int:
        """The error code. Underscores in names of settings stand for dots."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        reply = await self._once(CREATE, {"topics": [topic], "timeout": 5000, "validate_only": False})
        return int(reply.topics[0].error_code)

    async def delete(self, name: str = TOPIC) -> int:
        reply = await self._once(
            DELETE, {"topics": [{"name": name, "topic_id": None}], "timeout": 5000}, version=6
        )
        return int(reply.responses[0].error_code)

    async def delete_records(self, offset: int, name: str = TOPIC) -> int:
        partition = {"partition_index": 0, "offset": offset}
        fields = {"topics": [{"name": name, "partitions": [partition]}], "timeout": 5000}
        reply = await self._once(DELETE_RECORDS, fields)
        return int(reply.topics[0].partitions[0].low_watermark)

    async def alter(self, key: str, value: str, name: str = TOPIC) -> int:
        return await self._alter(2, name, key, value)

    async def alter_nodes(self, key: str, value: str) -> int:
        """A setting of all nodes, while they run."""
        return await self._alter(4, "", key, value)

    async def _alter(self, resource_type: int, name: str, key: str, value: str) -> int:
        config = {"name": key, "config_operation": 0, "value": value}
        resource = {"resource_type": resource_type, "resource_name": name, "configs": [config]}
        reply = await self._once(ALTER, {"resources": [resource], "validate_only": False})
        return int(reply.responses[0].error_code)

    async def add_partitions(self, total: int, name: str = TOPIC) -> int:
        fields = {
            "topics": [{"name": name, "count": total, "assignments": None}],
            "timeout": 5000,
            "validate_only": False,
        }
        reply = await self._once(ApiKey.CREATE_PARTITIONS, fields)
        return int(reply.results[0].error_code)

    async def produce(self, *values: bytes, **options: Any) -> tuple[int, int]:
        """(error code, offset) of one batch with these values."""
        reply = await self._once(PRODUCE, self.produce_fields(*values, **options), version=8)
        result = reply.responses[0].partition_responses[0]
        return int(result.error_code), result.base_offset

    def produce_fields(
        self, *values: bytes, acks: int = -1, name: str = TOPIC, index: int = 0, **fields: Any
    ) -> dict[str, Any]:
        now_ms = self.clients.clock.wall_ms()
        key = fields.pop("key", b"key")
        records = [Record(place, now_ms, key, value) for place, value in enumerate(values)]
        data = {"index": index, "records": bytes(build_batch(records, **fields))}
        topic_data = [{"name": name, "partition_data": [data]}]
        return {"transactional_id": None, "acks": acks, "timeout": 5000, "topic_data": topic_data}

    async def fetch(self, offset: int = 0, **options: Any) -> Any:
        """The part of the reply that is about the first partition."""
        reply = await self._once(FETCH, fetch_fields(offset, **options), version=FETCH_VERSION)
        return reply.responses[0].partitions[0]

    async def values(self, offset: int = 0, name: str = TOPIC) -> list[bytes | None]:
        part = await self.fetch(offset, name=name, max_wait_ms=0)
        assert part.error_code == 0
        return [record.value for record in records_in(part.records or b"") if record.offset >= offset]

    async def _once(self, api_key: int, fields: Mapping[str, Any], version: int | None = None) -> Any:
        connection = await self.connect()
        try:
            return await connection.call(api_key, fields, version=version, timeout_ms=LONG_MS)
        finally:
            connection.abort()


def fetch_fields(
    offset: int = 0,
    *,
    name: str = TOPIC,
    index: int = 0,
    partitions: Sequence[tuple[str, int, int]] = (),
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    max_wait_ms: int = 500,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
) -> dict[str, Any]:
    """`partitions`: topic, index, offset of each."""
    topics: dict[str, list[dict[str, int]]] = {}
    for topic, partition, position in partitions or [(name, index, offset)]:
        topics.setdefault(topic, []).append(
            {
                "partition": partition,
                "current_leader_epoch": -1,
                "fetch_offset": position,
                "log_start_offset": -1,
                "partition_max_bytes": partition_max_bytes,
            }
        )
    return {
        "replica_id": -1,
        "max_wait": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": [{"topic": topic, "partitions": parts} for topic, parts in topics.items()],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def node_config(settings: Mapping[str, str]) -> NodeConfig:
    defaults = {
        "log.dirs": str(DATA_DIRECTORY),
        "listeners": f"PLAINTEXT://{HOST}:{PORT}",
        "headrace.metrics.port": "-1",
        "headrace.disk.reserve.bytes": "0",
        "auto.create.topics.enable": "false",
    }
    return load_config(None, {**defaults, **settings}, None)


def directory_of(name: str = TOPIC, index: int = 0) -> Path:
    return DATA_DIRECTORY / str(TopicPartition(name, index))


def on_a_node(
    scenario: Callable[[SimBroker], Awaitable[None]],
    *,
    settings: Mapping[str, str] | None = None,
    seed: int = 1,
    starts: bool = True,
) -> None:
    """Runs the scenario on a node that was started, unless it starts it by itself."""
    with Simulation(seed) as simulation:

        async def main() -> None:
            node = SimBroker(simulation, settings or {})
            if starts:
                await node.start()
            await scenario(node)

        simulation.run(main())
