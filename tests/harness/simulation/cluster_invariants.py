# SPDX-License-Identifier: Apache-2.0
"""Invariants of a simulated cluster, checked after every step: in the store and in each node's state.

What any node shows as committed is the same on all and stays so; every possible leader has it; one leader
for each leader epoch; no epoch and no high watermark goes back. Read next: several_nodes.py, clients.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from headrace.broker.node import Broker
from headrace.broker.partition.leader_role import LeaderRole
from headrace.broker.partition.partition import Partition
from headrace.coordination.projection import Projection
from headrace.machines.replication.leader import effective_min_insync
from headrace.testing.simloop import SimLoop
from headrace.types import NO_NODE, ClusterView, PartitionState, Topic, TopicId, TopicPartition
from headrace.wire.batch import read_header
from tests.harness.simulation.clients import BrokenPromise
from tests.harness.simulation.node import SimNode
from tests.harness.simulation.store import StoreServer

_READ_BYTES = 1 << 20
_LOOK_S = 0.05
_PAUSED_S = 0.4
_NOTICED_S = 0.3


class _Batch(NamedTuple):
    last_offset: int
    leader_epoch: int
    crc: int


class _Identity(NamedTuple):
    """Of a partition: a topic that is created again has another id."""

    topic_id: TopicId
    partition: int


class _Shown(NamedTuple):
    log_start: int
    high_watermark: int


class LogWatch(Protocol):
    """Checks of a topic whose logs lose records. `batches_are_kept`: compaction does not rewrite them."""

    batches_are_kept: bool

    def committed(self, name: TopicPartition, node: SimNode, batches: memoryview) -> None:
        """Batches below the high watermark, as this node has them, when it first shows them."""
        ...

    def log_start_moved(self, partition: Partition, node: SimNode, before: int) -> None: ...


def _identity(partition: Partition) -> _Identity:
    return _Identity(partition.topic_id, partition.topic_partition.partition)


def needed_insync(topic: Topic) -> int:
    """How many replicas hold what is acknowledged, at the least."""
    text = topic.configs.get("min.insync.replicas")
    fewest = min(len(state.replicas) for state in topic.partitions)
    return effective_min_insync(None if text is None else int(text), fewest)


class _Terms:
    """R7: a node whose session has ended leads nothing, from the time on by which it must have noticed."""

    def __init__(self, store: StoreServer, loop: SimLoop) -> None:
        self._store = store
        self._loop = loop
        self._stepped_at: dict[Broker, float] = {}
        self._runs_since: dict[Broker, float] = {}
        self._ended_at: dict[Broker, float] = {}

    def check(self, node: SimNode, broker: Broker) -> None:
        now = self._loop.time()
        since_s = now - self._stepped_at.get(broker, -1.0)
        if since_s < _LOOK_S:
            return
        if since_s > _PAUSED_S:
            self._runs_since[broker] = now  # it was paused, and needs a moment
        self._stepped_at[broker] = now
        world = node.world
        if world is None or self._store.has_session(world.process):
            self._ended_at.pop(broker, None)
            return
        ended_at = self._ended_at.setdefault(broker, now)
        ttl_s = broker.config["broker.session.timeout.ms"] / 1000
        if now < max(ended_at + ttl_s, self._runs_since[broker]) + _NOTICED_S:
            return
        replicas = [p for p in broker.partitions.all() if isinstance(p.role, LeaderRole)]
        led = [str(p.topic_partition) for p in replicas if p.leads]
        if led:
            raise BrokenPromise(f"{node.machine.name} leads {led}; its session ended at {ended_at:.3f} (R7)")


class ClusterInvariants:
    """`view` is the store's truth at this moment, which the nodes may not have heard of yet."""

    def __init__(
        self,
        nodes: Sequence[SimNode],
        store: StoreServer,
        loop: SimLoop,
        *,
        flush: str,
        watched: Mapping[str, LogWatch] | None = None,
    ) -> None:
        self._nodes = {node.machine.name: node for node in nodes}
        self._by_id = dict(enumerate(nodes))
        self._store = store.state
        self._loop = loop
        self._flush = flush
        self._watched = watched or {}
        """By topic."""
        self._distrusted: set[SimNode] = set()
        """Their files were damaged: what they show is not checked until all has healed."""
        self._projection = Projection(store.state.view())
        self._terms = _Terms(store, loop)
        self._seen: dict[Partition, tuple[int, int, int]] = {}
        """Log start, high watermark and log end at the last check: for most steps nothing has changed."""
        self._shown: dict[Partition, _Shown] = {}
        self._log_ends: dict[Partition, int] = {}
        self._committed: dict[_Identity, dict[int, _Batch]] = {}
        self._committed_end: dict[_Identity, int] = {}
        self.elections = 0
        self._leader_of: dict[tuple[_Identity, int], int] = {}

    @property
    def view(self) -> ClusterView:
        if self._store.version != self._projection.view.version:
            self._take_changes()
        return self._projection.view

    def check(self) -> None:
        if self._store.version != self._projection.view.version:
            self._take_changes()
        process = self._loop.stepped
        node = self._nodes.get(process.host) if process is not None else None
        if node is None or node.broker is None:
            return
        self._terms.check(node, node.broker)
        if node in self._distrusted:
            return
        for partition in node.broker.partitions.all():
            log = partition.log
            offsets = (log.log_start_offset, partition.commits.high_watermark, log.log_end_offset)
            if self._seen.get(partition) != offsets and partition.online:
                self._seen[partition] = offsets
                self._check_partition(node, partition)
                self._check_log_end(node, partition)

    def forget_what_was_committed(self) -> None:
        """After a power cut of all nodes: what was left to the page cache is no promise any more."""
        self._committed.clear()
        self._committed_end.clear()

    def store_was_put_back(self) -> None:
        """What is committed stays so. An epoch in which nothing was committed may be given out again."""
        self._projection = Projection(self._store.view())
        self._leader_of = {
            (identity, epoch): leader
            for (identity, epoch), leader in self._leader_of.items()
            if any(batch.leader_epoch == epoch for batch in self._committed.get(identity, {}).values())
        }

    def distrust(self, node: SimNode) -> None:
        self._distrusted.add(node)

    def trust_all(self) -> None:
        self._distrusted.clear()

    def disk_was_replaced(self, node_id: int) -> None:
        """What one replica alone had promised is gone with its disk."""
        for topic in self.view.topics.values():
            for index, state in enumerate(topic.partitions):
                if needed_insync(topic) == 1 and node_id in (*state.isr, *state.elr):
                    self._committed.pop(_Identity(topic.topic_id, index), None)
                    self._committed_end.pop(_Identity(topic.topic_id, index), None)

    # -- one node -----------------------------------------------------------------------------------------

    def _check_partition(self, node: SimNode, partition: Partition) -> None:
        start, high_watermark = partition.log_start_offset, partition.high_watermark
        shown = self._shown.get(partition)
        if shown is not None and shown == (start, high_watermark):
            return
        name, where = partition.topic_partition, f"{partition.topic_partition} on {node.machine.name}"
        if not start <= high_watermark <= partition.log_end_offset:
            raise BrokenPromise(
                f"{where}: log start {start}, high watermark {high_watermark}, "
                f"log end {partition.log_end_offset}"
            )
        if shown is not None and high_watermark < shown.high_watermark:
            raise BrokenPromise(
                f"{where}: the high watermark went back from {shown.high_watermark} to {high_watermark} (R14)"
            )
        # An empty log may start anywhere.
        if self._flush == "ack" and high_watermark > max(start, partition.flushed_offset):
            raise BrokenPromise(f"{where}: high watermark {high_watermark} over bytes not synced (R23)")
        self._shown[partition] = _Shown(start, high_watermark)
        watch = self._watched.get(name.topic)
        if shown is not None and start != shown.log_start:
            if start < shown.log_start:
                raise BrokenPromise(
                    f"{where}: the log start went back from {shown.log_start} to {start} (R29b)"
                )
            if watch is not None:
                watch.log_start_moved(partition, node, shown.log_start)
        if self._keeps_its_word(partition):
            self._compare(
                node, partition, start if shown is None else max(start, shown.high_watermark), watch
            )

    def _check_log_end(self, node: SimNode, partition: Partition) -> None:
        """R12: who is in sync cuts nothing that was ever shown as committed."""
        end, before = partition.log_end_offset, self._log_ends.get(partition)
        if end == before:
            return
        self._log_ends[partition] = end
        name = partition.topic_partition
        topic = self._projection.view.topics.get(name.topic)
        committed = self._committed_end.get(_identity(partition), 0)
        if before is None or before < end or end >= committed or topic is None:
            return
        if topic.topic_id != partition.topic_id:
            return
        state = topic.partitions[name.partition]
        if any(self._by_id[member] is node for member in state.isr):
            raise BrokenPromise(
                f"{name} on {node.machine.name}: cut from {before} to {end} while in sync, "
                f"{committed} is committed: {state} (R12)"
            )

    def _keeps_its_word(self, partition: Partition) -> bool:
        """A power cut may take what one replica alone had promised, unless it syncs before it promises."""
        topic = self._projection.view.topics.get(partition.topic_partition.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            return False
        return self._flush == "ack" or needed_insync(topic) > 1

    def _compare(self, node: SimNode, partition: Partition, offset: int, watch: LogWatch | None) -> None:
        """R18, log matching: below a high watermark every replica holds the same batches."""
        name, end = partition.topic_partition, partition.high_watermark
        where = f"{name} on {node.machine.name}"
        known = self._committed.setdefault(_identity(partition), {})
        while offset < end:
            piece = partition.log.read(offset, _READ_BYTES, end, at_least_one=True, wait=True)
            if piece is None:
                break
            data = memoryview(piece.bytes())
            offset = piece.next_offset
            piece.release()
            if watch is None or watch.batches_are_kept:
                self._compare_batches(where, data, known)
            if watch is not None:
                watch.committed(name, node, data)
        identity = _identity(partition)
        self._committed_end[identity] = max(end, self._committed_end.get(identity, 0))

    def _compare_batches(self, where: str, data: memoryview, known: dict[int, _Batch]) -> None:
        position = 0
        while position < len(data):
            header = read_header(data, position)
            batch = _Batch(header.next_offset - 1, header.leader_epoch, header.crc)
            other = known.setdefault(header.base_offset, batch)
            if other != batch:
                raise BrokenPromise(
                    f"{where}: committed at {header.base_offset} is {batch}, and was {other} (R12, R18)"
                )
            position += header.size

    # -- the store ----------------------------------------------------------------------------------------

    def _take_changes(self) -> None:
        before = self._projection.view
        changes = self._store.changes_since(before.version)
        view = self._projection.apply(changes)
        if view.controller_epoch < before.controller_epoch:
            raise BrokenPromise(f"the controller epoch went back to {view.controller_epoch} (R2)")
        for name, topic in view.topics.items():
            old = before.topics.get(name)
            if old is topic:
                continue
            for index, state in enumerate(topic.partitions):
                same = old is not None and old.topic_id == topic.topic_id and index < len(old.partitions)
                was = old.partitions[index] if old is not None and same else None
                identity = _Identity(topic.topic_id, index)
                self._check_state(TopicPartition(name, index), identity, was, state)

    def _check_state(
        self, name: TopicPartition, identity: _Identity, was: PartitionState | None, state: PartitionState
    ) -> None:
        in_office = self._projection.view.controller_epoch
        if state != was and state.controller_epoch != in_office:
            raise BrokenPromise(
                f"{name}: written by controller {state.controller_epoch} under {in_office}: {state} (R2)"
            )
        if state.leader != NO_NODE and state.leader not in state.isr:
            raise BrokenPromise(f"{name}: leader {state.leader} is not in sync: {state}")
        if was is not None and (
            state.leader_epoch < was.leader_epoch
            or state.partition_epoch < was.partition_epoch
            or state.controller_epoch < was.controller_epoch
        ):
            raise BrokenPromise(f"{name}: an epoch went back: {was} to {state} (R5)")
        if was is not None and state.leader not in (NO_NODE, was.leader):
            self.elections += 1
        if state.leader != NO_NODE:
            leader = self._leader_of.setdefault((identity, state.leader_epoch), state.leader)
            if leader != state.leader:
                raise BrokenPromise(
                    f"{name}: {leader} and {state.leader} lead in epoch {state.leader_epoch} (R5)"
                )
        self._check_electable(name, identity, state)

    def _check_electable(self, name: TopicPartition, identity: _Identity, state: PartitionState) -> None:
        """StrongIsr: whoever may lead holds all that was ever shown as committed."""
        committed = self._committed_end.get(identity, 0)
        for node_id in (*state.isr, *state.elr):
            broker = self._by_id[node_id].broker
            partition = None if broker is None else broker.partitions.get(*name)
            if self._by_id[node_id] in self._distrusted:
                continue
            if partition is not None and partition.topic_id != identity.topic_id:
                continue
            if partition is not None and partition.online and partition.log_end_offset < committed:
                raise BrokenPromise(
                    f"{name}: node {node_id} may lead and ends at {partition.log_end_offset}, "
                    f"{committed} is committed: {state} (R15, R16)"
                )
