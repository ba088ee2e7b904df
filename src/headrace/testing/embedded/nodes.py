"""The nodes of a test's broker. Everything here runs on the loop of their thread. Read next: broker.py."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.broker.controller.topic_rules import NewTopic
from headrace.broker.node import Broker as Node
from headrace.broker.node import start_node
from headrace.broker.partition.partition import Partition
from headrace.config import NodeConfig, load_config
from headrace.coordination.memory import MemoryState, MemoryStore
from headrace.errors import ApiError, StorageError
from headrace.testing.embedded.faults import FaultPlan
from headrace.testing.embedded.heartbeats import send_heartbeats
from headrace.testing.embedded.records import Record, stored_records
from headrace.testing.embedded.virtual_clock import VirtualClock, VirtualLoop
from headrace.testing.embedded.world import EmbeddedWorld
from headrace.testing.memory_files import MemoryFiles
from headrace.types import ClusterView, Topic, TopicPartition
from headrace.wire.error_codes import ErrorCode

_DIRECTORY = Path("/data")
_HOST = "127.0.0.1"
_DESCRIPTORS = 1024
_LONGEST_MOVE_MS = 10_000
_MOST_STOPS = 1_000
"""Of the clock, while it is moved."""
_FOR_TESTS = {
    "broker.session.timeout.ms": str(2**31 - 1),
    "connections.max.idle.ms": str(2**31 - 1),
    "group.initial.rebalance.delay.ms": "0",
    "headrace.events.enable": "false",
    "headrace.metrics.port": "-1",
    "log.dirs": str(_DIRECTORY),
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""A test waits for nothing, and has few groups and transactional ids."""


@dataclass(slots=True)
class _Member:
    config: NodeConfig
    files: MemoryFiles
    world: EmbeddedWorld | None = None
    node: Node | None = None


class Nodes:
    def __init__(self, clock: VirtualClock, plan: FaultPlan, settings: Mapping[str, str], port: int) -> None:
        self._clock = clock
        self._plan = plan
        self._settings = {**_FOR_TESTS, **settings}
        self._port = port
        self._members: dict[int, _Member] = {}
        self._state: MemoryState | None = None

    # Start and stop

    async def start(self, count: int) -> None:
        for node_id in range(1, count + 1):
            files = MemoryFiles()
            files.make_directory(_DIRECTORY)
            config = self._config(node_id, self._port if node_id == 1 else 0)
            self._members[node_id] = _Member(config, files)
            await self.restart(node_id)

    async def stop(self) -> None:
        for member in reversed(self._members.values()):
            if member.node is not None:
                await member.node.stop()

    async def restart(self, node_id: int) -> None:
        member = self._member(node_id)
        if member.node is not None:
            raise RuntimeError(f"node {node_id} runs")
        member.world = EmbeddedWorld(self._clock, member.files, self._plan)
        self._state = self._state or MemoryState(member.world)
        store = MemoryStore(self._state, member.world)
        member.node = await start_node(member.world, member.config, store, descriptors=_DESCRIPTORS)
        member.config = self._config(node_id, member.node.endpoints[0].port)

    async def crash(self, node_id: int, *, power_cut: bool) -> None:
        member = self._member(node_id)
        if member.node is None or member.world is None:
            raise RuntimeError(f"node {node_id} does not run")
        left = member.files.clone()
        if power_cut:
            left.crash()
        member.world.network.cut_all()
        node, member.node = member.node, None
        node.failure = StorageError("crashed by the test")  # it says goodbye to nobody
        await node.stop()
        member.files = left

    def _config(self, node_id: int, port: int) -> NodeConfig:
        given = {"node.id": str(node_id), "listeners": f"plaintext://{_HOST}:{port}", **self._settings}
        return load_config(None, given, None)

    def _member(self, node_id: int) -> _Member:
        member = self._members.get(node_id)
        if member is None:
            known = ", ".join(map(str, self._members))
            raise ValueError(f"there is no node {node_id}; the nodes are {known}")
        return member

    @property
    def _running(self) -> list[Node]:
        return [member.node for member in self._members.values() if member.node is not None]

    @property
    def _controller(self) -> Node:
        return next(node for node in self._running if node.cluster.is_controller)

    @property
    def bootstrap(self) -> str:
        ends = [each.config.listeners[0] for each in self._members.values()]
        return ",".join(f"{end.host}:{end.port}" for end in ends)

    # Topics

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        request = NewTopic(name=name, partition_count=partitions, configs=tuple(configs.items()))
        (answer,) = await self._controller.controller.create_topics([request])
        _raise_any([answer])

    async def move_leader(self, topic: str, partition: int, to: int) -> None:
        where = TopicPartition(topic, partition)
        node = self._member(to).node
        known = self._topic(topic).partitions
        if node is None or not 0 <= partition < len(known) or to not in known[partition].isr:
            raise ValueError(f"node {to} has no in-sync replica of {where}")
        others = [replica for replica in known[partition].replicas if replica != to]
        changes = self._controller.reassignments
        _raise_any((await changes.reassign({where: (to, *others)}, same_factor=True)).values())
        _raise_any((await changes.elect([where], unclean=False)).values())

        def moved(view: ClusterView) -> bool:
            return view.topics[topic].partitions[partition].leader == to

        await node.view_waits.until(moved, _LONGEST_MOVE_MS)

    # Time

    async def advance(self, loop: VirtualLoop, seconds: float, expired: Collection[str]) -> None:
        def before_step() -> None:
            for node in self._running:
                send_heartbeats(node.groups, expired)

        await loop.advance(seconds, before_step, _MOST_STOPS)

    # Inspection

    def records(self, topic: str, partition: int | None) -> list[Record]:
        leaders = self._leaders(topic)
        if partition is not None and not 0 <= partition < len(leaders):
            raise ValueError(f"topic {topic} has partitions 0 to {len(leaders) - 1}, not {partition}")
        wanted = leaders if partition is None else [leaders[partition]]
        return [record for leader in wanted if leader is not None for record in stored_records(leader)]

    def offsets(self, group: str) -> dict[tuple[str, int], int]:
        for node in self._running:
            if node.groups.is_coordinator_of(group) and (found := node.groups.peek(group)) is not None:
                return {(topic, index): value.offset for topic, index, value in found.offsets.all()}
        return {}

    def _leaders(self, topic: str) -> list[Partition | None]:
        return [self._leader(topic, index) for index in range(len(self._topic(topic).partitions))]

    def _topic(self, name: str) -> Topic:
        known = next((node.cluster.view.topics.get(name) for node in self._running), None)
        if known is None:
            raise ValueError(f"there is no topic {name!r}")
        return known

    def _leader(self, topic: str, index: int) -> Partition | None:
        found = (node.partitions.get(topic, index) for node in self._running)
        return next((partition for partition in found if partition is not None and partition.leads), None)


def _raise_any(outcomes: Iterable[object]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, ApiError) and outcome.code is not ErrorCode.election_not_needed:
            raise outcome
