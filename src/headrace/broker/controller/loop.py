# SPDX-License-Identifier: Apache-2.0
"""The controller loop: stands for election as controller and, once elected, keeps partitions led (R2, R4).

Level-triggered: each round compares the view with what it should be and writes the difference, so a lost
notification does no harm. Decisions are pure functions in partition_reconciler.py; requests to the controller
are in controller.py. A round covers all topics after an election and when nodes changed, else changed topics.
Read next: partition_reconciler.py, isr_updater.py, replication/log_ends.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headrace.broker.controller.controller import Controller
from headrace.broker.controller.election_audit import audit_election
from headrace.broker.controller.feature_levels import FeatureLevels
from headrace.broker.controller.isr_updater import IsrUpdater
from headrace.broker.controller.metadata_cache import MetadataCache
from headrace.broker.controller.partition_reconciler import (
    PartitionReconciler,
    StateChange,
    TopicRules,
    awaits_recovery,
    with_changes,
)
from headrace.broker.controller.view_waits import ViewWaits
from headrace.broker.metrics import ControllerCounters
from headrace.broker.partition.registry import Partitions
from headrace.broker.partition.settings.min_insync import configured_min_insync
from headrace.broker.partition.settings.topic_settings import FLUSH_ACK, TopicSettings
from headrace.broker.replication.event_queue import EventQueue
from headrace.broker.replication.log_ends import log_ends, own_log_end
from headrace.broker.replication.peers import Peers
from headrace.config import NodeConfig
from headrace.coordination.cluster_metadata import Changed, ClusterMetadata
from headrace.errors import HeadraceError
from headrace.machines.replication.election import LogEnd
from headrace.types import NO_NODE, ClusterView, Node, Topic, TopicPartition
from headrace.world import World

logger = logging.getLogger(__name__)

_TOPICS_PER_WRITE = 500
_RETRY_S = 0.2
"""After a failure of the store, or while replicas whose log end is needed are down."""
_DETECTION_S = 0.003
_FAILOVER_TIMEOUT_S = 0.5
_SHOWN_AFTER_DEATH_S = 1.5
"""librdkafka refreshes metadata once a second, and connects without backoff to a node that it dropped."""
UNCLEAN = "unclean.leader.election.enable"


class ControllerLoop:
    def __init__(
        self,
        *,
        world: World,
        config: NodeConfig,
        cluster: ClusterMetadata,
        controller: Controller,
        partitions: Partitions,
        peers: Peers,
        view_waits: ViewWaits,
        metadata_cache: MetadataCache,
        events: EventQueue,
        counters: ControllerCounters,
        settings_of: Callable[[ClusterView, Topic], TopicSettings],
    ) -> None:
        self._config = config
        self._node_id: int = config["node.id"]
        self._cluster = cluster
        self._controller = controller
        self._partitions = partitions
        self._peers = peers
        self._view_waits = view_waits
        self._metadata_cache = metadata_cache
        self._events = events
        self._counters = counters
        self._tasks = world.tasks
        self._clock = world.clock
        self._settings_of = settings_of
        self._wake = asyncio.Event()
        self._dirty: set[str] | None = None
        """Topics to reconcile; None: all."""
        self._dead: dict[int, int] = {}
        """Nodes that refuse connections, with their node epoch."""
        self._failing_over: dict[int, int] = {}
        """The same, until other nodes lead their partitions; for _FAILOVER_TIMEOUT_S at most."""
        self._lost_at: dict[int, float] = {}
        """When a node was first found to refuse connections, for the time that a failover took."""
        self._rules: dict[str, tuple[tuple[Mapping[str, str], int], Any, TopicRules]] = {}
        """By topic: its configs and replica count, the configs of nodes, and the rules made of both."""
        self._task: asyncio.Task[None] | None = None
        self.isr = IsrUpdater(cluster, world, self.rules_of, self.record_change)
        self._features = FeatureLevels(
            cluster=cluster, config=config, replica_holders=controller.replica_holders
        )

    def start(self) -> None:
        self._cluster.subscribe(self._on_view_change)
        self._peers.on_refused(self.presume_dead)
        self._task = self._tasks.spawn(self._work(), name="controller")
        self._wake.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def rules_of(self, topic: Topic) -> TopicRules:
        """Cached until configs change: an election of all partitions needs those of every topic."""
        node_configs = self._cluster.view.node_configs
        of_topic = topic.configs, len(topic.partitions[0].replicas)
        known = self._rules.get(topic.name)
        if known is not None and known[0] == of_topic and known[1] is node_configs:
            return known[2]
        rules = self._make_rules(topic)
        self._rules[topic.name] = of_topic, node_configs, rules
        return rules

    def _make_rules(self, topic: Topic) -> TopicRules:
        view = self._cluster.view
        config = self._config
        unclean = topic.configs.get(UNCLEAN, view.node_configs.get("", {}).get(UNCLEAN))
        return TopicRules(
            min_insync=configured_min_insync(config, view, topic),
            unclean=config[UNCLEAN] if unclean is None else unclean == "true",
            flushes_before_ack=self._settings_of(view, topic).flush == FLUSH_ACK,
        )

    # Triggers

    def _on_view_change(self, old: ClusterView, new: ClusterView) -> None:
        same_nodes = old.nodes is new.nodes and old.joining is new.joining
        if not same_nodes or _terms(old) != _terms(new) or old.node_configs is not new.node_configs:
            self._dirty = None
            self._dead = {node: epoch for node, epoch in self._dead.items() if _is_live(new, node, epoch)}
            for node_id in old.nodes.keys() - new.nodes.keys():
                self._departed(old.nodes[node_id])
            for node_id in new.nodes.keys() - old.nodes.keys():
                self._lost_at.pop(node_id, None)
            self._peers.watch(node_id for node_id in new.nodes if node_id != self._node_id)
        elif self._dirty is not None:
            self._dirty.update(self._cluster.changed_topics(old, new))
        if self._dirty is None or self._dirty:
            self._wake.set()

    def _departed(self, node: Node) -> None:
        cache = self._metadata_cache
        cache.add_departed(node)
        self._tasks.call_later(_SHOWN_AFTER_DEATH_S, cache.remove_departed, node)

    def presume_dead(self, node_id: int, node_epoch: int) -> None:
        """Its connection ended and it refuses new ones: fences it before its session expires."""
        if node_id == self._node_id:
            return
        if self._dead.get(node_id) != node_epoch:
            self._lost_at[node_id] = self._clock.monotonic()
        self._dead[node_id] = self._failing_over[node_id] = node_epoch
        self._tasks.call_later(_FAILOVER_TIMEOUT_S, self._failing_over.pop, node_id, None)
        self._wake.set()

    async def wait_for_failover(self) -> None:
        """For Metadata: waits while a failover is under way, which would name a dead leader; librdkafka asks
        again only after a second. It asks as soon as its connection ended, at the same moment at which the
        other nodes notice: hence the pause. A single node does not wait."""
        if len(self._cluster.view.nodes) > 1:
            await self._tasks.sleep(_DETECTION_S)
        if self._peers.has_pending_checks:
            await self._peers.wait_for_checks(_FAILOVER_TIMEOUT_S)
        if self._failing_over:
            await self._view_waits.until(self._failover_done, int(_FAILOVER_TIMEOUT_S * 1000))

    def _failover_done(self, view: ClusterView) -> bool:
        led = {state.leader for topic in view.topics.values() for state in topic.partitions}
        for node_id, epoch in list(self._failing_over.items()):
            node = view.nodes.get(node_id)
            if (node is None and node_id not in led) or (node is not None and node.epoch != epoch):
                del self._failing_over[node_id]
        return not self._failing_over

    # Rounds

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._round()
            except (HeadraceError, OSError) as error:
                logger.warning("a round of the controller failed, will be retried: %s", error)
                self._schedule_round(at=None)
            except Exception:
                logger.exception("a round of the controller failed, will be retried")
                self._schedule_round(at=None)

    def _schedule_round(self, at: Iterable[str] | None = ()) -> None:
        """Runs another round after _RETRY_S, with these topics in it; None: with all."""
        if at is None:
            self._dirty = None
        elif self._dirty is not None:
            self._dirty.update(at)
        self._tasks.call_later(_RETRY_S, self._wake.set)

    async def _round(self) -> None:
        await self._stand_for_election()
        if not self._cluster.is_controller:
            return
        if self._cluster.session_may_have_expired:  # the view does not change when that is over
            self._schedule_round()
            return
        await self._fence_the_dead()
        dirty, self._dirty = self._dirty, set()
        if len(self._rules) > len(self._cluster.view.topics):
            self._rules.clear()  # some are of deleted topics
        joined = tuple(self._cluster.view.joining.values()) if dirty is None else ()
        await self._features.finalize()  # before a node of an earlier release is admitted
        awaiting = await self._reconcile(dirty)
        for node in joined:
            await self._admit(node)
        if awaiting:
            await self._recover(awaiting)
        await self._require_logins()

    async def _require_logins(self) -> None:
        """Requests of nodes need a login (S3) once no node of an earlier release is registered."""
        view = self._cluster.view
        if not view.node_login_required and all(node.logs_in for node in view.registered.values()):
            with contextlib.suppress(Changed):
                await self._cluster.require_node_login()
                logger.info("every node logs in: requests between nodes need a login from now on")

    async def _stand_for_election(self) -> None:
        view, node_id = self._cluster.view, self._node_id
        if view.controller_id == NO_NODE:
            await self._cluster.become_controller(node_id)
        elif _is_live(view, view.controller_id, self._dead.get(view.controller_id, NO_NODE)):
            await self._cluster.become_controller(node_id, instead_of=view.controller_epoch)

    async def _fence_the_dead(self) -> None:
        for node_id, epoch in list(self._dead.items()):
            node = self._cluster.view.nodes.get(node_id)
            if node is not None and node.epoch == epoch:
                level = logging.INFO if node.leaving else logging.WARNING
                logger.log(level, "node %d (%s) is down and fenced", node_id, node.hostname)
                with contextlib.suppress(Changed):  # a new incarnation of it was admitted meanwhile
                    await self._cluster.set_admission(node, fenced=True)

    async def _reconcile(self, dirty: set[str] | None) -> list[TopicPartition]:
        """Returns the partitions whose election needs the log end offsets of their replicas (R19b)."""
        names = list(self._cluster.view.topics) if dirty is None else sorted(dirty)
        leading = {kind: self._controller.leading(internal=kind) for kind in (False, True)}
        awaiting: list[TopicPartition] = []
        for start in range(0, len(names), _TOPICS_PER_WRITE):
            await self._reconcile_some(names[start : start + _TOPICS_PER_WRITE], leading, awaiting)
        return awaiting

    async def _reconcile_some(
        self, names: Sequence[str], leading: Mapping[bool, Counter[int]], awaiting: list[TopicPartition]
    ) -> None:
        """There is no `await` between reading the view and the commit."""
        view = self._cluster.view
        reconciler = PartitionReconciler.of(view)
        wanted: list[tuple[Topic, list[StateChange]]] = []
        for name in names:
            topic = view.topics.get(name)
            if topic is None:
                continue
            after, changes = reconciler.reconciled(topic, self.rules_of, leading[topic.internal])
            if after is not topic:
                wanted.append((after, changes))
            awaiting += [
                TopicPartition(name, index)
                for index, state in enumerate(after.partitions)
                if state.leader == NO_NODE and awaits_recovery(state)
            ]
        await self._write(wanted)

    async def _write(self, wanted: Sequence[tuple[Topic, list[StateChange]]]) -> None:
        if not wanted:
            await self._tasks.sleep(0)
            return
        outcomes = await self._cluster.write_topics([topic for topic, _ in wanted])
        for (_, changes), refusal in zip(wanted, outcomes, strict=True):
            if refusal is None:
                for change in changes:
                    self.record_change(change)
        failures = [refusal for refusal in outcomes if refusal is not None]
        if failures:
            raise failures[0]  # the next round reconciles all topics

    async def _admit(self, node: Node) -> None:
        """Called when no partition counts on records that the node may have lost (R20)."""
        if self._cluster.view.joining.get(node.node_id) is node:
            await self._cluster.set_admission(node, fenced=False)
            logger.info("node %d (%s) joined the cluster", node.node_id, node.hostname)

    # Elections after all in-sync replicas may have lost records

    async def _recover(self, awaiting: Sequence[TopicPartition]) -> None:
        view = self._cluster.view
        asked: dict[int, list[TopicPartition]] = {}
        for partition in awaiting:
            state = view.topics[partition.topic].partitions[partition.partition]
            if all(node in view.nodes for node in state.last_known_elr):
                for node in state.last_known_elr:
                    asked.setdefault(node, []).append(partition)
        ends: dict[TopicPartition, dict[int, LogEnd]] = {}
        for node, partitions in asked.items():
            for partition, end in (await self._log_ends(node, partitions)).items():
                ends.setdefault(partition, {})[node] = end
        view = self._cluster.view
        reconciler = PartitionReconciler.of(view)
        wanted = []
        for name in dict.fromkeys(partition.topic for partition in ends):
            if (topic := view.topics.get(name)) is None:
                continue
            changes = []
            for partition in (each for each in ends if each.topic == name):
                before = topic.partitions[partition.partition]
                after = reconciler.recovered(before, ends[partition])
                if after is not None:
                    changes.append(StateChange(partition, before, after, lossy=True))
            if changes:
                wanted.append((with_changes(topic, changes), changes))
        await self._write(wanted)
        if len(ends) < len(awaiting) and self._dirty is not None:
            self._schedule_round(at=[partition.topic for partition in awaiting if partition not in ends])

    async def _log_ends(
        self, node_id: int, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, LogEnd]:
        if node_id != self._node_id:
            return await log_ends(self._peers, node_id, partitions)
        ends = ((each, own_log_end(self._partitions, each)) for each in partitions)
        return {each: end for each, end in ends if end is not None}

    # Counters and events

    def record_change(self, change: StateChange) -> None:
        self._counters.count(change.before, change.after, lossy=change.lossy)
        kind = "leader" if change.after.leader != change.before.leader else "isr"
        self._events.note_partition(change.partition, kind, {**_details(change), **self._took(change)})
        if change.lossy:
            audit = audit_election(change, peers=self._peers, tasks=self._tasks, events=self._events)
            self._tasks.spawn(audit, name=f"audit of {change.partition}")

    def _took(self, change: StateChange) -> dict[str, int]:
        """From the moment at which the old leader was found dead to the new one."""
        old = change.before.leader
        lost_at = self._lost_at.get(old)
        if lost_at is None or old in self._cluster.view.nodes or change.after.leader in (old, NO_NODE):
            return {}
        return {"took_ms": round((self._clock.monotonic() - lost_at) * 1000)}


def _details(change: StateChange) -> dict[str, Any]:
    before, after = change.before, change.after
    details = {"leader": after.leader, "epoch": after.leader_epoch, "isr": after.isr}
    details |= {"replicas": after.replicas}
    details |= {"leader_before": before.leader, "isr_before": before.isr, "epoch_before": before.leader_epoch}
    return {**details, "unclean": True} if change.lossy else details


def _is_live(view: ClusterView, node_id: int, epoch: int) -> bool:
    node = view.nodes.get(node_id)
    return node is not None and node.epoch == epoch


def _terms(view: ClusterView) -> tuple[int, int]:
    return view.controller_id, view.controller_epoch
