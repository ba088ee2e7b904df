# SPDX-License-Identifier: Apache-2.0
"""Random membership changes of one group: members join, leave, die and pause while the node is killed.

Ends when every record is processed and committed; the history is judged by history.py. On a real node
(tests/harness/live/node.py). The same seed draws the same storm, not the same interleaving.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups import wire as wire
from tests.harness.groups.classic_member import ClassicMember
from tests.harness.groups.history import GroupAnomaly, GroupHistory, check
from tests.harness.groups.kip848_member import Kip848Member
from tests.harness.groups.member import GroupMember, Scene
from tests.harness.live.node import HOST, NodeProcess
from tests.harness.live.raw_client import simple_batch

MEMBER_KINDS: dict[str, type[GroupMember]] = {"classic": ClassicMember, "consumer": Kip848Member}
SESSION_MS, HEARTBEAT_MS = 2000, 250
NODE_SETTINGS = {
    "group.min.session.timeout.ms": str(SESSION_MS),
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.assignment.interval.ms": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StormPlan:
    protocol: str
    members: int
    partitions: int
    seconds: float
    change_s: tuple[float, float]
    """Time between two changes of the membership: at least, at most."""
    node_uptime_s: tuple[float, float]
    """How long the node is left alone before it is killed again."""
    seed: int
    calm_s: float = 90
    """After the storm all is processed and committed within this time."""


@dataclass(slots=True, kw_only=True)
class StormReport:
    plan: StormPlan
    anomalies: list[GroupAnomaly] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    ends: dict[int, int] = field(default_factory=dict)
    history: GroupHistory = field(default_factory=GroupHistory)

    def figures(self) -> dict[str, Any]:
        history = self.history
        return {
            "protocol": self.plan.protocol,
            "seed": self.plan.seed,
            "events": dict(self.events),
            "records": sum(self.ends.values()),
            "owners told": len(history.owned),
            "starts told": len(history.starts),
            "commits": dict(Counter(commit.outcome for commit in history.commits)),
            "anomalies": [str(anomaly) for anomaly in self.anomalies],
        }


def run_storm(node: NodeProcess, plan: StormPlan) -> StormReport:
    return asyncio.run(Storm(node, plan).run())


class Storm:
    def __init__(self, node: NodeProcess, plan: StormPlan) -> None:
        self._node = node
        self._plan = plan
        self._random = Random(plan.seed)
        self._report = StormReport(plan=plan)
        self._history = self._report.history
        self._members: dict[GroupMember, asyncio.Task[None]] = {}
        self._made = 0
        self._raging = True

    async def run(self) -> StormReport:
        self._scene = await self._make_scene()
        producing = asyncio.create_task(self._produce())
        killing = asyncio.create_task(self._kill_the_node())
        await self._rage()
        await asyncio.gather(killing, producing)
        self._report.ends = await self._ends()
        await self._wait_for_calm()
        for member in self._members:
            member.stopping = True
        await asyncio.wait(self._members.values(), timeout=self._plan.calm_s)
        self._note_failures()
        self._report.anomalies = check(self._history, self._report.ends)
        return self._report

    async def _make_scene(self) -> Scene:
        connection = await self._connect()
        name = f"storm-{self._plan.protocol}"
        topic = {"name": name, "num_partitions": self._plan.partitions, "replication_factor": 1}
        await connection.call(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 10_000}, version=5)
        (found,) = (await connection.call(ApiKey.METADATA, {"topics": [{"name": name}]}, version=12)).topics
        connection.abort()
        return Scene(
            host=HOST,
            port=self._node.port,
            group=name,
            topic=name,
            topic_id=found.topic_id,
            partitions=self._plan.partitions,
            session_ms=SESSION_MS,
            heartbeat_ms=HEARTBEAT_MS,
            history=self._history,
        )

    async def _connect(self) -> Connection:
        return await Connection.open(HOST, self._node.port, client_id="storm")

    # -- members -------------------------------------------------------------------------------------------

    async def _rage(self) -> None:
        until = time.monotonic() + self._plan.seconds
        for _ in range(self._plan.members):
            self._join()
        while time.monotonic() < until:
            await asyncio.sleep(self._random.uniform(*self._plan.change_s))
            self._change()
        self._raging = False
        while len(self._members) < self._plan.members // 2:
            self._join()

    def _change(self) -> None:
        awake = [member for member, task in self._members.items() if not task.done()]
        if len(awake) < self._plan.members and self._random.random() < 0.7:
            self._join()
            return
        member = self._random.choice(awake)
        what = self._random.choice(("leave", "kill", "doze"))
        self._report.events[what] += 1
        if what == "doze":  # mostly for longer than its session lasts
            member.doze_s = self._random.uniform(0.5, 3) * SESSION_MS / 1000
            return
        if what == "leave":
            member.stopping = True
        else:
            self._members[member].cancel()
        self._note_failures()

    def _join(self) -> None:
        self._made += 1
        self._report.events["join"] += 1
        kind = MEMBER_KINDS[self._plan.protocol]
        member = kind(self._scene, f"m{self._made}", Random(self._random.random()))
        self._members[member] = asyncio.create_task(member.run())

    def _note_failures(self) -> None:
        """A member ends when it is told to; one that ends by an error of its own fails the storm."""
        for member, task in list(self._members.items()):
            if task.done():
                del self._members[member]
                self._report.events["refused commits"] += member.refused
                if not task.cancelled() and (error := task.exception()) is not None:
                    raise error

    # -- records and the node ------------------------------------------------------------------------------

    async def _produce(self) -> None:
        while self._raging:
            try:
                connection = await self._connect()
                try:
                    while self._raging:
                        await self._produce_once(connection)
                        await asyncio.sleep(0.02)
                finally:
                    connection.abort()
            except (ClientError, OSError):
                await asyncio.sleep(0.1)

    async def _produce_once(self, connection: Connection) -> None:
        batch = simple_batch(*[b"v" * 20] * self._random.randint(1, 10))
        data = [{"index": self._random.randrange(self._plan.partitions), "records": batch}]
        topics = [{"name": self._scene.topic, "partition_data": data}]
        await connection.call(ApiKey.PRODUCE, {"acks": -1, "timeout": 5000, "topic_data": topics}, version=8)

    async def _kill_the_node(self) -> None:
        while self._raging:
            await asyncio.sleep(self._random.uniform(*self._plan.node_uptime_s))
            if self._raging:
                self._report.events["node killed"] += 1
                await asyncio.to_thread(self._node.kill)
                await asyncio.sleep(self._random.uniform(0, 1))
                await asyncio.to_thread(self._node.start)

    async def _ends(self) -> dict[int, int]:
        connection = await self._connect()
        wanted = [{"partition_index": index, "timestamp": -1} for index in range(self._plan.partitions)]
        fields = {"replica_id": -1, "topics": [{"name": self._scene.topic, "partitions": wanted}]}
        (topic,) = (await connection.call(ApiKey.LIST_OFFSETS, fields, version=5)).topics
        connection.abort()
        return {found.partition_index: found.offset for found in topic.partitions}

    async def _wait_for_calm(self) -> None:
        """The judge says what is missing when this takes too long."""
        deadline = time.monotonic() + self._plan.calm_s
        connection = await self._connect()
        fields = wire.fetch_fields(self._scene.group, self._scene.topic, self._report.ends)
        while time.monotonic() < deadline:
            (group,) = (await connection.call(ApiKey.OFFSET_FETCH, fields, version=9)).groups
            if group.error_code is ErrorCode.none:
                found = {one.partition_index: one.committed_offset for one in group.topics[0].partitions}
                if all(found[index] == end for index, end in self._report.ends.items() if end):
                    break
            await asyncio.sleep(0.2)
        else:
            self._report.events["not calm in time"] += 1
        connection.abort()
