# SPDX-License-Identifier: Apache-2.0
"""The nodes of a test's broker. Everything here runs on the loop of their thread. Read next: broker.py."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from headrace.broker.controller.topic_rules import NewTopic
from headrace.broker.node import Broker as Node
from headrace.broker.node import start_node
from headrace.broker.partition.partition import Partition
from headrace.config import NodeConfig, load_config
from headrace.coordination.memory import MemoryState, MemoryStore
from headrace.errors import ApiError, StorageError
from headrace.machines.groups.group import Group
from headrace.testing.embedded.disks import Disk, FolderDisk, MemoryDisk
from headrace.testing.embedded.faults import FaultPlan
from headrace.testing.embedded.heartbeats import client_ids, send_heartbeats
from headrace.testing.embedded.received import RequestLog
from headrace.testing.embedded.records import Record, stored_records
from headrace.testing.embedded.virtual_clock import VirtualClock, VirtualLoop
from headrace.testing.embedded.world import EmbeddedWorld
from headrace.types import ClusterView, Topic, TopicPartition
from headrace.wire.error_codes import ErrorCode

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
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""A test waits for nothing, and has few groups and transactional ids."""


@dataclass(slots=True)
class _Member:
    config: NodeConfig
    disk: Disk
    world: EmbeddedWorld | None = None
    node: Node | None = None


class Nodes:
    """`folder`: of their data; None: it is kept in memory."""

    def __init__(
        self, clock: VirtualClock, settings: Mapping[str, str], *, port: int, folder: Path | None
    ) -> None:
        self._clock = clock
        self.plan = FaultPlan(RequestLog(), self._topic_name, self.move_leader)
        self._settings = {**_FOR_TESTS, **settings}
        self._port = port
        self._folder = folder
        self._members: dict[int, _Member] = {}
        self._state: MemoryState | None = None

    # Start and stop

    async def start(self, count: int) -> None:
        for node_id in range(1, count + 1):
            disk = MemoryDisk() if self._folder is None else FolderDisk(self._folder / f"node-{node_id}")
            config = self._config(node_id, disk, self._port if node_id == 1 else 0)
            self._members[node_id] = _Member(config, disk)
            await self.restart(node_id)

    async def stop(self) -> None:
        for member in reversed(self._members.values()):
            if member.node is not None:
                await member.node.stop()

    async def restart(self, node_id: int) -> None:
        member = self._member(node_id)
        if member.node is not None:
            raise RuntimeError(f"node {node_id} is already running")
        member.world = EmbeddedWorld(self._clock, member.disk.files, self.plan)
        store = self._store(member.world)
        member.node = await start_node(member.world, member.config, store, descriptors=_DESCRIPTORS)
        member.config = self._config(node_id, member.disk, member.node.endpoints[0].port)

    def _store(self, world: EmbeddedWorld) -> MemoryStore | None:
        """None: the one in the folder."""
        if self._folder is not None:
            return None
        self._state = self._state or MemoryState(world)
        return MemoryStore(self._state, world)

    async def crash(self, node_id: int, *, power_cut: bool) -> None:
        member = self._member(node_id)
        if member.node is None or member.world is None:
            raise RuntimeError(f"node {node_id} is not running")
        member.disk.save(power_cut=power_cut)
        member.world.network.cut_all()
        node, member.node = member.node, None
        node.failure = StorageError("crashed by the test")  # it says goodbye to nobody
        await node.stop()
        member.disk.restore()

    def _config(self, node_id: int, disk: Disk, port: int) -> NodeConfig:
        given = {
            "node.id": str(node_id),
            "listeners": f"plaintext://{_HOST}:{port}",
            "log.dirs": str(disk.directory),
            **self._settings,
        }
        if self._folder is not None:
            given["headrace.coordination"] = f"sqlite:{self._folder / 'coordination'}"
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

    def _any_running(self) -> Node:
        if not self._running:
            raise RuntimeError("no node is running: call restart() first")
        return self._running[0]

    async def _controller(self) -> Node:
        """Waits for the next one when the last has crashed."""
        node = self._any_running()
        await node.view_waits.until(lambda view: self._runs(view.controller_id), _LONGEST_MOVE_MS)
        return next((each for each in self._running if each.cluster.is_controller), node)

    def _runs(self, node_id: int) -> bool:
        return node_id in self._members and self._members[node_id].node is not None

    @property
    def bootstrap(self) -> str:
        ends = [each.config.listeners[0] for each in self._members.values()]
        return ",".join(f"{end.host}:{end.port}" for end in ends)

    # Topics

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        request = NewTopic(name=name, partition_count=partitions, configs=tuple(configs.items()))
        controller = (await self._controller()).controller
        (answer,) = await controller.create_topics([request])
        _raise_any([answer])

    async def move_leader(self, topic: str, partition: int, to: int) -> None:
        where = TopicPartition(topic, partition)
        node = self._member(to).node
        known = self._topic(topic).partitions
        if node is None or not 0 <= partition < len(known) or to not in known[partition].isr:
            raise ValueError(f"node {to} has no in-sync replica of {where}")
        others = [replica for replica in known[partition].replicas if replica != to]
        changes = (await self._controller()).reassignments
        _raise_any((await changes.reassign({where: (to, *others)}, same_factor=True)).values())
        _raise_any((await changes.elect([where], unclean=False)).values())

        def moved(view: ClusterView) -> bool:
            return view.topics[topic].partitions[partition].leader == to

        for each in self._running:
            await each.view_waits.until(moved, _LONGEST_MOVE_MS)

    # Time

    async def advance(self, loop: VirtualLoop, seconds: float, expired: Collection[str]) -> None:
        def before_step() -> None:
            for node in self._running:
                send_heartbeats(node.groups, expired)

        await loop.advance(seconds, before_step, _MOST_STOPS)

    # Inspection

    def records(self, topic: str, partition: int | None, *, committed: bool) -> list[Record]:
        leaders = self._leaders(topic)
        if partition is not None and not 0 <= partition < len(leaders):
            raise ValueError(f"topic {topic} has partitions 0 to {len(leaders) - 1}, not {partition}")
        wanted = leaders if partition is None else [leaders[partition]]
        found = (stored_records(each, committed=committed) for each in wanted if each is not None)
        return [record for records in found for record in records]

    def offsets(self, group: str) -> dict[tuple[str, int], int]:
        found = self._group(group)
        if found is None:
            return {}
        return {(topic, index): value.offset for topic, index, value in found.offsets.all()}

    def lag(self, group: str, topic: str | None) -> dict[tuple[str, int], int]:
        committed = self.offsets(group)
        topics = {name for name, _ in committed} if topic is None else {topic}
        lags: dict[tuple[str, int], int] = {}
        for name in sorted(topics):
            for index, leader in enumerate(self._leaders(name)):
                if leader is not None:
                    begin = committed.get((name, index), leader.log_start_offset)
                    lags[name, index] = max(leader.last_stable_offset - begin, 0)
        return lags

    def members(self, group: str) -> list[str]:
        found = self._group(group)
        return [] if found is None else sorted(client_ids(found))

    def _group(self, group: str) -> Group | None:
        for node in self._running:
            if node.groups.is_coordinator_of(group) and (found := node.groups.peek(group)) is not None:
                return found
        return None

    def _leaders(self, topic: str) -> list[Partition | None]:
        return [self._leader(topic, index) for index in range(len(self._topic(topic).partitions))]

    def has_topic(self, name: str) -> bool:
        return any(name in node.cluster.view.topics for node in self._running)

    def _topic(self, name: str) -> Topic:
        topics = self._any_running().cluster.view.topics
        known = topics.get(name)
        if known is None:
            there = ", ".join(sorted(topics))
            raise ValueError(f"there is no topic {name!r}; the topics are: {there or 'none'}")
        return known

    def _topic_name(self, topic_id: UUID) -> str | None:
        known = next((node.cluster.view.topic_by_id(topic_id) for node in self._running), None)
        return None if known is None else known.name

    def _leader(self, topic: str, index: int) -> Partition | None:
        found = (node.partitions.get(topic, index) for node in self._running)
        return next((partition for partition in found if partition is not None and partition.leads), None)


def _raise_any(outcomes: Iterable[object]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, ApiError) and outcome.code is not ErrorCode.election_not_needed:
            raise outcome
