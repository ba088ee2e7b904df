"""The controller at work: every node stands for it, and whoever holds it keeps the partitions led (R2, R4).

Level-triggered: each round looks at the view and writes what should be otherwise, so a lost notice never
matters. Decisions are pure and live in partition_care.py; requests to the controller are controller.py's.
Rounds: on taking office and when nodes changed, all topics; else those that changed.
Read next: partition_care.py, isr_desk.py, log_ends.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.cluster_metrics import ClusterMetrics
from headrace.broker.isr_desk import IsrDesk
from headrace.broker.log_ends import log_ends
from headrace.broker.min_insync import configured_min_insync
from headrace.broker.partition_care import Care, StateChange, TopicRules, awaits_recovery, with_changes
from headrace.broker.topic_settings import FLUSH_ACK, TopicSettings
from headrace.broker.unclean_audit import audit_election
from headrace.coordination.cluster import Changed
from headrace.errors import HeadraceError
from headrace.machines.election import LogEnd
from headrace.types import NO_NODE, ClusterView, Node, Topic, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

_TOPICS_PER_WRITE = 500
_AGAIN_S = 0.2
"""After a failure of the store, or while replicas that must be asked are missing."""
_OTHERS_NOTICE_TOO_S = 0.003
_TAKEN_OVER_WITHIN_S = 0.5
_SHOWN_AFTER_DEATH_S = 1.5
"""librdkafka looks for leaders once a second; a node it forgot, it later connects to without delay."""
UNCLEAN = "unclean.leader.election.enable"


class ControllerOffice:
    def __init__(self, broker: Broker, settings_of: Callable[[ClusterView, Topic], TopicSettings]) -> None:
        self._broker = broker
        self._cluster = broker.cluster
        self._tasks = broker.world.tasks
        self._settings_of = settings_of
        self._wake = asyncio.Event()
        self._dirty: set[str] | None = None
        """Topics to look at; None: all."""
        self._dead: dict[int, int] = {}
        """Nodes that let nobody in any more, with the epoch they had."""
        self._replacing: dict[int, int] = {}
        """The same, until others lead what they led; not for long."""
        self._rules: dict[str, tuple[tuple[Mapping[str, str], int], Any, TopicRules]] = {}
        """By topic, with the settings of the topic, its replicas, and the settings of nodes behind them."""
        self._task: asyncio.Task[None] | None = None
        self.metrics = ClusterMetrics(lambda: self._cluster.view, lambda: self._cluster.is_controller)
        broker.metrics.cluster = self.metrics
        self.isr = IsrDesk(self._cluster, broker.world, self.rules_of, self.note)

    def start(self) -> None:
        self._cluster.subscribe(self._follow)
        self._broker.peers.on_refused(self.presume_dead)
        self._task = self._tasks.spawn(self._work(), name="controller")
        self._wake.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def rules_of(self, topic: Topic) -> TopicRules:
        """Worked out once per change of settings: elections ask for those of every topic."""
        node_configs = self._cluster.view.node_configs
        of_topic = topic.configs, len(topic.partitions[0].replicas)
        known = self._rules.get(topic.name)
        if known is not None and known[0] == of_topic and known[1] is node_configs:
            return known[2]
        rules = self._worked_out(topic)
        self._rules[topic.name] = of_topic, node_configs, rules
        return rules

    def _worked_out(self, topic: Topic) -> TopicRules:
        view = self._cluster.view
        config = self._broker.config
        unclean = topic.configs.get(UNCLEAN, view.node_configs.get("", {}).get(UNCLEAN))
        return TopicRules(
            min_insync=configured_min_insync(config, view, topic),
            unclean=config[UNCLEAN] if unclean is None else unclean == "true",
            flushes_before_ack=self._settings_of(view, topic).flush == FLUSH_ACK,
        )

    # What wakes it

    def _follow(self, old: ClusterView, new: ClusterView) -> None:
        same_nodes = old.nodes is new.nodes and old.joining is new.joining
        if not same_nodes or _terms(old) != _terms(new) or old.node_configs is not new.node_configs:
            self._dirty = None
            self._dead = {node: epoch for node, epoch in self._dead.items() if _is_live(new, node, epoch)}
            for node_id in old.nodes.keys() - new.nodes.keys():
                self._departed(old.nodes[node_id])
            self._broker.peers.watch(node_id for node_id in new.nodes if node_id != self._broker.node_id)
        elif self._dirty is not None:
            self._dirty.update(self._cluster.changed_topics(old, new))
        if self._dirty is None or self._dirty:
            self._wake.set()

    def _departed(self, node: Node) -> None:
        replies = self._broker.metadata_replies
        replies.departed(node)
        self._tasks.call_later(_SHOWN_AFTER_DEATH_S, replies.forget, node)

    def presume_dead(self, node_id: int, node_epoch: int) -> None:
        """Its connection ended and it lets nobody in: fencing it is always safe, and much sooner."""
        if node_id == self._broker.node_id:
            return
        self._dead[node_id] = self._replacing[node_id] = node_epoch
        self._tasks.call_later(_TAKEN_OVER_WITHIN_S, self._replacing.pop, node_id, None)
        self._wake.set()

    async def others_have_taken_over(self) -> None:
        """For Metadata: what clients are told before that would send them back to a dead node, and librdkafka
        asks again only after a second. It asks as soon as its connection ended, in the very moment in which
        the other nodes notice the same: hence the pause. A node that is alone waits for nothing."""
        if len(self._cluster.view.nodes) > 1:
            await self._tasks.sleep(_OTHERS_NOTICE_TOO_S)
        if self._broker.peers.in_doubt:
            await self._broker.peers.be_sure(_TAKEN_OVER_WITHIN_S)
        if self._replacing:
            await self._broker.view_waits.until(self._all_replaced, int(_TAKEN_OVER_WITHIN_S * 1000))

    def _all_replaced(self, view: ClusterView) -> bool:
        led = {state.leader for topic in view.topics.values() for state in topic.partitions}
        for node_id, epoch in list(self._replacing.items()):
            node = view.nodes.get(node_id)
            if (node is None and node_id not in led) or (node is not None and node.epoch != epoch):
                del self._replacing[node_id]
        return not self._replacing

    # Rounds

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._round()
            except (HeadraceError, OSError) as error:
                logger.warning("the controller will try again: %s", error)
                self._look_again(at=None)
            except Exception:
                logger.exception("a round of the controller failed")
                self._look_again(at=None)

    def _look_again(self, at: Iterable[str] | None = ()) -> None:
        """In a moment, also at these topics; None: at all of them."""
        if at is None:
            self._dirty = None
        elif self._dirty is not None:
            self._dirty.update(at)
        self._tasks.call_later(_AGAIN_S, self._wake.set)

    async def _round(self) -> None:
        await self._stand_for_office()
        if not self._cluster.is_controller:
            return
        if self._cluster.session_in_doubt:  # no change of the view tells when that is over
            self._look_again()
            return
        await self._fence_the_dead()
        dirty, self._dirty = self._dirty, set()
        if len(self._rules) > len(self._cluster.view.topics):
            self._rules.clear()  # of topics that are gone
        joined = tuple(self._cluster.view.joining.values()) if dirty is None else ()
        awaiting = await self._tend(dirty)
        for node in joined:
            await self._let_in(node)
        if awaiting:
            await self._recover(awaiting)

    async def _stand_for_office(self) -> None:
        view, node_id = self._cluster.view, self._broker.node_id
        if view.controller_id == NO_NODE:
            await self._cluster.become_controller(node_id)
        elif _is_live(view, view.controller_id, self._dead.get(view.controller_id, NO_NODE)):
            await self._cluster.become_controller(node_id, instead_of=view.controller_epoch)

    async def _fence_the_dead(self) -> None:
        for node_id, epoch in list(self._dead.items()):
            node = self._cluster.view.nodes.get(node_id)
            if node is not None and node.epoch == epoch:
                level = logging.INFO if node.leaving else logging.WARNING
                logger.log(level, "node %d (%s) ended; others lead what it led", node_id, node.hostname)
                with contextlib.suppress(Changed):  # its new incarnation was judged meanwhile
                    await self._cluster.judge_node(node, fenced=True)

    async def _tend(self, dirty: set[str] | None) -> list[TopicPartition]:
        """Returns the partitions that wait for the ends of their replicas' logs (R19b)."""
        names = list(self._cluster.view.topics) if dirty is None else list(dirty)
        leading = {kind: self._broker.controller.leading(internal=kind) for kind in (False, True)}
        awaiting: list[TopicPartition] = []
        for start in range(0, len(names), _TOPICS_PER_WRITE):
            await self._tend_some(names[start : start + _TOPICS_PER_WRITE], leading, awaiting)
        return awaiting

    async def _tend_some(
        self, names: Sequence[str], leading: Mapping[bool, Counter[int]], awaiting: list[TopicPartition]
    ) -> None:
        """From the look at the view to the commit there is no `await`."""
        view = self._cluster.view
        care = Care.of(view)
        wanted: list[tuple[Topic, list[StateChange]]] = []
        for name in names:
            topic = view.topics.get(name)
            if topic is None:
                continue
            after, changes = care.tended(topic, self.rules_of, leading[topic.internal])
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
                    self.note(change)
        failures = [refusal for refusal in outcomes if refusal is not None]
        if failures:
            raise failures[0]  # the next round looks at everything again

    async def _let_in(self, node: Node) -> None:
        """All is written, so that no partition counts on what it may have lost (R20)."""
        if self._cluster.view.joining.get(node.node_id) is node:
            await self._cluster.judge_node(node, fenced=False)
            logger.info("node %d (%s) is in the cluster", node.node_id, node.hostname)

    # Everyone who was in sync may have lost records

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
            for partition, end in (await log_ends(self._broker, node, partitions)).items():
                ends.setdefault(partition, {})[node] = end
        view = self._cluster.view
        care = Care.of(view)
        wanted = []
        for name in dict.fromkeys(partition.topic for partition in ends):
            if (topic := view.topics.get(name)) is None:
                continue
            changes = []
            for partition in (each for each in ends if each.topic == name):
                before = topic.partitions[partition.partition]
                after = care.recovered(before, ends[partition])
                if after is not None:
                    changes.append(StateChange(partition, before, after, lossy=True))
            if changes:
                wanted.append((with_changes(topic, changes), changes))
        await self._write(wanted)
        if len(ends) < len(awaiting) and self._dirty is not None:
            self._look_again(at=[partition.topic for partition in awaiting if partition not in ends])

    # What happened

    def note(self, change: StateChange) -> None:
        self.metrics.note(change.before, change.after, lossy=change.lossy)
        kind = "leader" if change.after.leader != change.before.leader else "isr"
        self._broker.timeline.note_partition(change.partition, kind, _told(change))
        if change.lossy:
            self._tasks.spawn(audit_election(self._broker, change), name=f"audit of {change.partition}")


def _told(change: StateChange) -> dict[str, Any]:
    before, after = change.before, change.after
    told = {"leader": after.leader, "epoch": after.leader_epoch, "isr": after.isr, "replicas": after.replicas}
    told |= {"leader_before": before.leader, "isr_before": before.isr, "epoch_before": before.leader_epoch}
    return {**told, "unclean": True} if change.lossy else told


def _is_live(view: ClusterView, node_id: int, epoch: int) -> bool:
    node = view.nodes.get(node_id)
    return node is not None and node.epoch == epoch


def _terms(view: ClusterView) -> tuple[int, int]:
    return view.controller_id, view.controller_epoch
