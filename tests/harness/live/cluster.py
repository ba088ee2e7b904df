# SPDX-License-Identifier: Apache-2.0
"""A cluster of real processes under test: start, kill, pause nodes; find leaders and coordinators.

Built on the supervisor that `headrace cluster` uses; both engines. Read next: load.py (who uses it).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from headrace.cli.cluster.secure import secure_plan
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.acls import create_acls
from headrace.client.tools.brokers import Brokers, run
from headrace.cluster.engines.engine import PreparedNode
from headrace.cluster.engines.headrace import HeadraceEngine
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterPlan, EngineName, Member
from headrace.cluster.security import USER, SecurityFolder, plan_security
from headrace.cluster.status import ClusterMetadata, read_metadata
from headrace.cluster.supervisor import Supervisor, plan_cluster
from headrace.wire.api_key import ApiKey
from tests.harness.live.lan import Lan
from tests.harness.waiting import poll

_TIMEOUT_S = 30
_POLL_S = 0.02
_LOG_LINES_SHOWN = 15
_GROUP, _TRANSACTION = 0, 1
_FACING_OTHERS = {"listeners.allow.anonymous": "true"}

Role = Literal["leader", "follower", "controller", "coordinator"]
Dress = Callable[[int, PreparedNode], PreparedNode]


class Network(Protocol):
    """OnALan, or proxied_links.ProxiedLinks."""

    def place(self, member: Member) -> Member:
        """Where clients and other nodes reach it."""

    def dress(self, node_id: int, prepared: PreparedNode) -> PreparedNode:
        """What has to be otherwise when it starts."""


class LiveCluster:
    """Use it as a context manager: what is left running at its end is killed."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        engine: EngineName = "headrace",
        coordination: str | None = None,
        settings: Mapping[str, str] | None = None,
        network: Network | None = None,
        dress: Dress | None = None,
        secure: bool = False,
    ) -> None:
        """`network`: how nodes are reached; left out, each has a port of the loopback.

        `dress`: a change to how each of them, by its id, is started; a network brings its own.
        `secure`: as by `cluster up --secure`; load clients log in as its ordinary user (`grant_user`).
        """
        if network is not None:
            dress = network.dress
        self.folder = ClusterFolder(directory)
        self.supervisor = Supervisor(self.folder, engine=None if dress is None else _Dressed(engine, dress))
        plan = plan_cluster(
            engine=engine,
            nodes=nodes,
            coordination=coordination,
            settings={**(settings or {}), **({} if network is None else _FACING_OTHERS)},
            folder=self.folder,
            first_port=None,
        )
        if network is not None:
            plan = replace(plan, members=tuple(network.place(member) for member in plan.members))
        if secure:
            plan = secure_plan(plan, self.folder)
        self.folder.create(plan)
        self.as_admin = Cluster(bootstrap=plan.bootstrap, security=plan_security(plan))
        self.client_options = {} if plan.security is None else client_options(Path(plan.security), USER)
        """Settings of librdkafka for whoever is not an admin."""
        self.node_ids = [member.node_id for member in plan.members]
        self.bootstrap = plan.bootstrap
        self.ready_after_s = 0.0

    def __enter__(self) -> LiveCluster:
        """`ready_after_s` is the time from the start of the processes until every node answers."""
        try:
            plan = self.folder.read()
            self.supervisor.prepare(plan, plan.members)
            started = time.monotonic()
            self.supervisor.start(self.node_ids)
            self.ready_after_s = time.monotonic() - started
        except BaseException:
            self.kill_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()

    # -- start and stop ------------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """SIGKILL."""
        self.supervisor.kill(node_id)

    def start(self, *node_ids: int) -> None:
        self.supervisor.start(node_ids)

    def stop(self, node_id: int) -> None:
        """Cleanly."""
        self.supervisor.stop(node_id)

    def pause(self, node_id: int) -> None:
        self._signal(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._signal(node_id, signal.SIGCONT)

    def kill_all(self) -> None:
        for node_id in self.node_ids:
            process = self.supervisor.process(node_id)
            if process is not None:
                process.kill()
                self.supervisor.process(node_id)

    def pid(self, node_id: int) -> int | None:
        process = self.supervisor.process(node_id)
        return None if process is None else process.pid

    def alive(self) -> list[int]:
        return [node_id for node_id in self.node_ids if self.supervisor.process(node_id) is not None]

    def _all_tails(self) -> str:
        logs = [path for node_id in self.node_ids for path in self.folder.node(node_id).glob("*.log")]
        return "\n".join(
            "\n".join((str(path), *path.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]))
            for path in logs
        )

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        process = self.supervisor.process(node_id)
        assert process is not None, f"node {node_id} is not running"
        process.signal(number)

    # -- questions -----------------------------------------------------------------------------------------

    def create_topic(self, name: str, replicas: list[list[int]], **configs: str) -> None:
        """A partition for each list of nodes; the first of each is its preferred leader."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **self.as_admin.security.librdkafka()})
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(name, len(replicas), replica_assignment=replicas, config=settings)
        try:
            admin.create_topics([new], operation_timeout=_TIMEOUT_S)[name].result(_TIMEOUT_S)
        except KafkaException as error:
            raise AssertionError(f"{name} was not created: {error}") from error
        self.wait_until(lambda seen: sum(each.topic == name for each in seen.partitions) == len(replicas))

    def grant_user(self, topic: str) -> None:
        """Everything on the topic and on all groups to the ordinary user of a secure cluster."""
        rights = ((ResourceType.TOPIC, topic), (ResourceType.GROUP, "*"))
        create_acls(self.as_admin, [_allowed(kind, name) for kind, name in rights])

    def metadata(self, *, of: int | None = None) -> ClusterMetadata | None:
        """As a node that answers sees the cluster; None when nobody does."""
        plan = self.folder.read()
        asked = self.alive() if of is None else [of]
        addresses = [plan.member(node_id).address for node_id in asked]
        return read_metadata(addresses, self.as_admin.security)

    def leader(self, topic: str, partition: int) -> int:
        """-1: nobody leads it now."""
        metadata = self.metadata()
        for each in () if metadata is None else metadata.partitions:
            if (each.topic, each.index) == (topic, partition):
                return each.leader
        return -1

    def coordinator(self, group: str) -> int:
        """-1: nobody is at the moment."""
        return self._find_coordinator(group, _GROUP)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """-1: nobody is at the moment."""
        return self._find_coordinator(transactional_id, _TRANSACTION)

    def _find_coordinator(self, key: str, key_type: int) -> int:
        async def ask() -> int:
            async with Brokers(self.as_admin) as brokers:
                fields = {"key": key, "key_type": key_type, "coordinator_keys": [key]}
                reply = await brokers.call_any(ApiKey.FIND_COORDINATOR, fields)
            return int(reply.coordinators[0].node_id if reply.coordinators else reply.node_id)

        try:
            return run(ask())
        except ClientError:
            return -1

    def holder(self, role: Role, topic: str, partition: int, group: str) -> int:
        """A node in this role now; -1 when there is none."""
        metadata = self.metadata()
        if metadata is None:
            return -1
        if role == "controller":
            return -1 if metadata.controller is None else metadata.controller
        if role == "coordinator":
            return self.coordinator(group)
        found = [each for each in metadata.partitions if (each.topic, each.index) == (topic, partition)]
        if not found:
            return -1
        if role == "leader":
            return found[0].leader
        return next((node for node in found[0].isr if node != found[0].leader), -1)

    def wait_until(self, true: Callable[[ClusterMetadata], bool], *, timeout_s: float = _TIMEOUT_S) -> float:
        """How long it took, in seconds, until the metadata that the cluster gives was so."""
        started = time.monotonic()

        def holds(metadata: ClusterMetadata | None) -> bool:
            return metadata is not None and true(metadata)

        metadata = poll(self.metadata, holds, timeout_s=timeout_s, poll_s=_POLL_S)
        assert holds(metadata), f"not within {timeout_s} s; {_summary(metadata)}\n{self._all_tails()}"
        return time.monotonic() - started

    def wait_in_sync(self, *, timeout_s: float = 60) -> float:
        """Until every partition has a leader and all of its replicas are in sync."""
        return self.wait_until(
            lambda metadata: not metadata.under_replicated and not metadata.without_leader,
            timeout_s=timeout_s,
        )


def host_name(node_id: int) -> str:
    """Of a node on a Lan."""
    return f"node{node_id}"


def client_options(security: Path, user: str) -> dict[str, str]:
    """The user's ready file for librdkafka, as the arguments of a client."""
    lines = SecurityFolder(security).librdkafka(user).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def _allowed(kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal=f"User:{USER}",
        host="*",
        operation=Operation.ALL,
        permission=Permission.ALLOW,
    )


class _Dressed:
    """An engine, with something about each node's process changed."""

    def __init__(self, engine: EngineName, dress: Dress) -> None:
        self._dress = dress
        self._engine = KafkaEngine() if engine == "kafka" else HeadraceEngine()

    def prepare_member(self, plan: ClusterPlan, member: Member, folder: Path) -> PreparedNode:
        return self._dress(member.node_id, self._engine.prepare_member(plan, member, folder))


class OnALan:
    """Each node on the host of its name."""

    def __init__(self, lan: Lan) -> None:
        self._lan = lan

    def place(self, member: Member) -> Member:
        return replace(member, host=self._lan.address(host_name(member.node_id)))

    def dress(self, node_id: int, prepared: PreparedNode) -> PreparedNode:
        return replace(prepared, command=self._lan.command(host_name(node_id), prepared.command))


def _summary(metadata: ClusterMetadata | None) -> str:
    if metadata is None:
        return "no node answers"
    return (
        f"nodes {sorted(metadata.addresses)}, controller {metadata.controller}, without leader "
        f"{[str(each) for each in metadata.without_leader]}, under-replicated {metadata.under_replicated}"
    )
