# SPDX-License-Identifier: Apache-2.0
"""Starts, stops, kills and restarts the node processes of a cluster on this host.

Commands and the supervisor are separate processes that share the directory: each records the wanted state
before it acts, so that the supervisor does not restart a node that a command has killed. Read next:
folder.py, processes.py, engines/engine.py.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Protocol

from headrace.client.security_settings import SecuritySettings
from headrace.cluster.engines.engine import EngineError, Spawnable, SpawnedNode, answers, free_ports
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterError, ClusterPlan, EngineName, Member, new_cluster_id
from headrace.cluster.processes import NodeProcess, find_process, read_ready, write_pid_file
from headrace.cluster.security import plan_security

READY_TIMEOUT_MS = 60_000
STOP_TIMEOUT_MS = 60_000
_MIN_BACKOFF_S, _MAX_BACKOFF_S = 1.0, 30.0
_STABLE_S = 60.0
"""A node that ran this long after a restart is restarted after the shortest time again."""
_POLL_S = 0.01
_ON_ONE_HOST = {"headrace.allow.same.host": "true"}
"""All nodes are on this host, so that replicas on one host are expected."""


class MemberEngine(Protocol):
    def prepare_member(self, plan: ClusterPlan, member: Member, folder: Path) -> Spawnable: ...


def engine_of(name: EngineName) -> MemberEngine:
    if name == "kafka":
        from headrace.cluster.engines.kafka import KafkaEngine

        return KafkaEngine()
    from headrace.cluster.engines.headrace import HeadraceEngine

    return HeadraceEngine()


@dataclass(slots=True, kw_only=True)
class _Restart:
    """Number of crashes of a node, and when it is restarted."""

    crashes: int = 0
    """Since it last ran for a while: the backoff grows with them."""
    start_at: float = 0.0
    started_at: float = 0.0
    restarts: int = 0


class Supervisor:
    """The nodes of one cluster directory; used by each command and by `cluster up`."""

    def __init__(
        self,
        folder: ClusterFolder,
        say: Callable[[str], None] = lambda line: None,
        *,
        engine: MemberEngine | None = None,
    ) -> None:
        """`engine`: the one that the plan names by default."""
        self.folder = folder
        self._engine = engine
        self._say = say
        self._children: dict[int, SpawnedNode] = {}
        self._restarts: dict[int, _Restart] = {}
        self._taken_down: set[int] = set()
        """Stopped or killed by a command; a core that is wanted again is no crash."""

    def process(self, node_id: int) -> NodeProcess | None:
        child = self._children.get(node_id)
        if child is not None and child.process.poll() is not None:  # reaps it: a zombie keeps its pid
            del self._children[node_id]
        return find_process(self.folder.node(node_id))

    def start(self, node_ids: Sequence[int]) -> None:
        """Starts the nodes together, since one may need others to become ready; waits until all answer.

        A node may have to wait until the session of a dead controller has ended.
        """
        plan = self.folder.change(lambda plan: _with_wanted(plan, node_ids, "up"))
        timeout_ms = READY_TIMEOUT_MS + _session_ms(plan)
        if plan.cores and self._engine is None:
            self._await_cores(plan, node_ids, timeout_ms)
            return
        members = [plan.member(node_id) for node_id in node_ids]
        missing = [member for member in members if self.process(member.node_id) is None]
        self.prepare(plan, missing)
        started = [self._spawn(plan, member) for member in missing]
        deadline = time.monotonic() + timeout_ms / 1000
        for node in started:
            node.wait_ready(max(int((deadline - time.monotonic()) * 1000), 1))
        for member in members:
            if member not in missing:
                self._await_answer(member, plan_security(plan), deadline)

    def prepare(self, plan: ClusterPlan, members: Sequence[Member]) -> None:
        """In parallel, since the first start of an Apache Kafka node formats its storage. Idempotent."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda member: self._prepared(plan, member), members))

    def stop(self, node_id: int, *, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """Controlled shutdown: the node hands over its leaderships. Killed after the timeout."""
        self.folder.change(lambda plan: _with_wanted(plan, [node_id], "stopped"))
        process = self.process(node_id)
        if process is None:
            return
        process.signal(signal.SIGCONT)
        process.signal(signal.SIGTERM)
        if not self._wait_end(node_id, process, timeout_ms):
            self._say(f"node {node_id} did not stop within {timeout_ms / 1000:.0f} s and was killed")
            process.kill()
        self.process(node_id)

    def kill(self, node_id: int) -> int:
        """SIGKILL; returns the pid of the killed process."""
        self.folder.change(lambda plan: _with_wanted(plan, [node_id], "killed"))
        process = self.process(node_id)
        if process is None:
            raise ClusterError(f"node {node_id} is not running", f"`headrace cluster start {node_id}`")
        process.signal(signal.SIGKILL)
        self._wait_end(node_id, process, STOP_TIMEOUT_MS)
        return process.pid

    def stop_all(self) -> None:
        """Stops all nodes at the same time, since no follower needs to catch up."""
        plan = self.folder.change(_all_stopped)
        processes = {member.node_id: self.process(member.node_id) for member in plan.members}
        for process in processes.values():
            if process is not None:
                process.signal(signal.SIGCONT)
                process.signal(signal.SIGTERM)
        for node_id, process in processes.items():
            if process is not None and not self._wait_end(node_id, process, STOP_TIMEOUT_MS):
                self._say(f"node {node_id} did not stop and was killed")
                process.kill()
            self.process(node_id)

    def add(self) -> Member:
        """Starts a new node with the next id. It gets partitions by reassignment or with new topics."""
        plan = self.folder.read()
        if plan.cores:
            count = len(plan.members)
            raise ClusterError(
                f"{self.folder.path} has {count} cores under one `headrace serve`",
                f"stop it, and start it with --cores {count + 1}",
            )
        (port,) = free_ports(1)

        def with_new(plan: ClusterPlan) -> ClusterPlan:
            return plan.with_member(Member(node_id=plan.next_id, port=port))

        member = self.folder.change(with_new).members[-1]
        self.start([member.node_id])
        return member

    def remove(self, node_id: int) -> None:
        """Removes the node from the plan. Its directory stays and its id is not reused."""
        self.folder.change(lambda plan: plan.without(node_id))

    def restart_crashed(self) -> None:
        """One round: restarts nodes that should be up and have ended, with exponential backoff."""
        plan = self.folder.read()
        for member in plan.members:
            if member.wanted != "up":
                self._taken_down.add(member.node_id)
            elif self.process(member.node_id) is None:
                self._restart(plan, member)

    def restarts(self, node_id: int) -> int:
        """How often the node was restarted because it had died."""
        return self._restarts[node_id].restarts if node_id in self._restarts else 0

    def all_stopped(self) -> bool:
        """Whether commands have stopped every node."""
        members = self.folder.read().members
        return all(each.wanted == "stopped" and self.process(each.node_id) is None for each in members)

    def _restart(self, plan: ClusterPlan, member: Member) -> None:
        if plan.cores and member.node_id in self._taken_down:
            self._taken_down.discard(member.node_id)
            self._spawn(plan, member)
            return
        restart = self._restarts.setdefault(member.node_id, _Restart())
        now = time.monotonic()
        if not restart.start_at:
            if restart.started_at and now - restart.started_at > _STABLE_S:
                restart.crashes = 0
            backoff_s = min(_MIN_BACKOFF_S * 2**restart.crashes, _MAX_BACKOFF_S)
            restart.crashes, restart.start_at = restart.crashes + 1, now + backoff_s
            log = "" if plan.cores else f" (its log: {self.folder.node(member.node_id)})"
            self._say(f"node {member.node_id} died; it is restarted in {backoff_s:.0f} s{log}")
        elif now >= restart.start_at:
            restart.start_at, restart.started_at = 0.0, now
            restart.restarts += 1
            self._spawn(plan, member)

    def _await_cores(self, plan: ClusterPlan, node_ids: Sequence[int], timeout_ms: int) -> None:
        """The `headrace serve` of the cores starts those that should be up."""
        if not self.folder.is_supervised():
            raise ClusterError(
                f"the cores of {self.folder.path} are not running",
                f"start them: headrace serve --cores {len(plan.members)} --data {self.folder.path}",
            )
        deadline = time.monotonic() + timeout_ms / 1000
        for node_id in node_ids:
            while read_ready(self.folder.node(node_id)) is None:
                if time.monotonic() > deadline:
                    raise EngineError(f"node {node_id} is not ready; its `headrace serve` logs why")
                time.sleep(_POLL_S)

    def _spawn(self, plan: ClusterPlan, member: Member) -> SpawnedNode:
        node = self._prepared(plan, member).spawn()
        self._children[member.node_id] = node
        write_pid_file(self.folder.node(member.node_id), node)
        return node

    def _prepared(self, plan: ClusterPlan, member: Member) -> Spawnable:
        engine = self._engine = self._engine or engine_of(plan.engine)
        folder = self.folder.node(member.node_id)
        folder.mkdir(parents=True, exist_ok=True)
        return engine.prepare_member(plan, member, folder)

    def _await_answer(self, member: Member, security: SecuritySettings, deadline: float) -> None:
        """Waits for a node that another process has started."""
        while not answers(member.host, member.port, security=security):
            if self.process(member.node_id) is None or time.monotonic() > deadline:
                raise EngineError(f"node {member.node_id} does not answer on {member.address}")
            time.sleep(_POLL_S)

    def _wait_end(self, node_id: int, process: NodeProcess, timeout_ms: int) -> bool:
        child = self._children.get(node_id)
        if child is not None:  # so that it is reaped
            deadline = time.monotonic() + timeout_ms / 1000
            while child.process.poll() is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        return process.wait_end(timeout_ms if child is None else 1)


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Of the process that supervises: SIGTERM raises KeyboardInterrupt, too."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def plan_cluster(
    *,
    engine: EngineName,
    nodes: int,
    coordination: str | None,
    settings: Mapping[str, str],
    folder: ClusterFolder,
    first_port: int | None,
) -> ClusterPlan:
    """A plan with nodes 0, 1, 2 … on consecutive ports from `first_port`, or on free ports."""
    controllers = nodes if engine == "kafka" else 0
    free = free_ports(nodes + controllers)
    ports = free[:nodes] if first_port is None else list(range(first_port, first_port + nodes))
    members = tuple(
        Member(node_id=index, port=port, controller_port=free[nodes + index] if controllers else None)
        for index, port in enumerate(ports)
    )
    return ClusterPlan(
        engine=engine,
        coordination=coordination or f"sqlite:{folder.path / 'coordination'}",
        cluster_id=new_cluster_id(),
        settings={**_ON_ONE_HOST, **settings} if engine == "headrace" else settings,
        members=members,
        next_id=nodes,
    )


def _all_stopped(plan: ClusterPlan) -> ClusterPlan:
    return _with_wanted(plan, [member.node_id for member in plan.members], "stopped")


def _session_ms(plan: ClusterPlan) -> int:
    """0: the default, or no number, which the nodes refuse."""
    text = plan.settings.get("broker.session.timeout.ms", "")
    return int(text) if text.isdecimal() else 0


def _with_wanted(plan: ClusterPlan, node_ids: Sequence[int], wanted: str) -> ClusterPlan:
    for node_id in node_ids:
        plan = plan.with_member(replace(plan.member(node_id), wanted=wanted))  # type: ignore[arg-type]
    return plan
