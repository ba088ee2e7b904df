# SPDX-License-Identifier: Apache-2.0
"""Assigns leader and follower roles to this node's replicas, as the cluster view says.

Level-triggered: a change of the view carries the whole state, and a role is assumed in one step per leader
epoch (R4, R9). A node that is not in the view, or whose session may have expired, leads no replicated
partition (R7). Read next: partition/leader_role.py, partition/follower_role.py, fetcher.py, isr_proposals.py,
machines/replication/leader.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from headrace.broker.metrics import Histogram
from headrace.broker.partition.follower_role import FollowerRole
from headrace.broker.partition.leader_role import LeaderRole
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.registry import Partitions
from headrace.broker.partition.settings.min_insync import configured_min_insync
from headrace.broker.replication.event_queue import EventQueue
from headrace.broker.replication.fetcher import ReplicaFetcher
from headrace.broker.replication.isr_proposals import IsrProposals
from headrace.broker.replication.live_nodes import damaged_logs, live_nodes
from headrace.broker.replication.log_repairs import LogRepairs
from headrace.broker.replication.peers import Peers
from headrace.broker.replication.slow_replicas import SlowReplicas
from headrace.broker.replication.unclean_audit import audit_loss
from headrace.config import NodeConfig
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.machines.replication.follower import Follower
from headrace.machines.replication.leader import (
    EpochChange,
    IsrProposal,
    Leader,
    LeaderSettings,
    Nodes,
    OwnLog,
)
from headrace.types import NO_NODE, ClusterView, PartitionState, Topic
from headrace.world import World

logger = logging.getLogger(__name__)

DOUBT_CHECKS_PER_TTL = 24
ISR_CHECK_S = 1.0
EPOCH_THREADS = 4
FLUSH_POLL_S = 0.002
SAVE_RETRY_S = 1.0


class ReplicationFigures(NamedTuple):
    """Gauges of the partitions that this node leads or follows."""

    followed: int
    longest_lag: int
    below_min_insync: int
    slow: frozenset[int] = frozenset()
    """Nodes that this one finds slow."""
    ack_ms: Mapping[int, float] = {}
    """By replica of the led partitions, what it takes to acknowledge an append."""
    slow_moves: Mapping[int, int] = {}
    """By node, how often it was found slow."""


class Replication:
    def __init__(
        self,
        *,
        world: World,
        config: NodeConfig,
        cluster: ClusterMetadata,
        peers: Peers,
        partitions: Partitions,
        persist_offsets: Callable[[], Awaitable[None]],
        events: EventQueue,
        fsync: Histogram,
    ) -> None:
        self._world = world
        self._node_id: int = config["node.id"]
        self._cluster = cluster
        self._peers = peers
        self._partitions = partitions
        self._persist_offsets = persist_offsets
        self._events = events
        self._config = config
        self._slow = SlowReplicas(
            world=world,
            config=config,
            cluster=cluster,
            fsync=fsync,
            events=events,
            on_change=self._slow_changed,
        )
        self._nodes = self._nodes_in(cluster.view)
        self._damaged = damaged_logs(cluster.view)
        self._acting_epoch: int | None = None
        """This node's epoch, once it is in the view."""
        self._suspended = False
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._led: dict[Partition, None] = {}
        self.repairs = LogRepairs(
            world=world,
            node_id=self._node_id,
            cluster=cluster,
            peers=peers,
            partitions=partitions,
            persist_offsets=persist_offsets,
            events=events,
        )
        self._proposals = IsrProposals(world, peers, cluster, self._node_id, self._stored)
        self._epoch_threads = [world.tasks.thread(f"epochs-{n}") for n in range(EPOCH_THREADS)]
        self._saves = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # Start and stop

    def start(self) -> None:
        self._cluster.subscribe(self.apply_view)
        self._spawn(self._watch_session(), "session watch")
        self._spawn(self._check_insync(), "in-sync replicas")
        self._slow.start()

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.repairs.stop()
        await self._slow.stop()
        await self._proposals.stop()
        for fetcher in self._fetchers.values():
            await fetcher.stop()

    def _spawn(self, coroutine: Any, name: str) -> None:
        task: asyncio.Task[None] = self._world.tasks.spawn(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Changes of the view

    def apply_view(self, old: ClusterView, new: ClusterView) -> None:
        """Called before the registry gets the view: roles depend on the nodes of the same view."""
        if new.nodes is old.nodes and self._acting_epoch == self._epoch_in(new):
            return
        self._nodes, self._damaged = self._nodes_in(new), damaged_logs(new)
        acting_epoch = self._epoch_in(new)
        new_epoch = acting_epoch != self._acting_epoch
        self._acting_epoch = acting_epoch
        for partition in list(self._partitions.all()) if new_epoch else list(self._led):
            topic = new.topics.get(partition.topic_partition.topic)
            index = partition.topic_partition.partition
            if topic is None or topic.topic_id != partition.topic_id or index >= len(topic.partitions):
                continue  # it is about to be removed
            if new_epoch and isinstance(partition.role, LeaderRole | FollowerRole):
                self._drop_role(partition)
            self.assign_role(partition, topic, new)

    def _nodes_in(self, view: ClusterView) -> Nodes:
        """With those that this node alone finds slow: they leave the ISR of what it leads."""
        nodes = live_nodes(view)
        return nodes._replace(slow={*nodes.slow, *self._slow.slow})

    def _slow_changed(self) -> None:
        self._nodes = self._nodes_in(self._cluster.view)
        for partition in self._led:
            if isinstance(partition.role, LeaderRole):
                self._update_leader(partition.role, partition.role.machine.state)

    def _epoch_in(self, view: ClusterView) -> int | None:
        """This node's epoch when the view has its present incarnation, not an earlier one (R3)."""
        node = view.nodes.get(self._node_id)
        return node.epoch if node is not None and node.epoch == self._cluster.node_epoch else None

    def assign_role(self, partition: Partition, topic: Topic, view: ClusterView) -> None:
        """Assigns the role that the partition's state in the view requires."""
        state = topic.partitions[partition.topic_partition.partition]
        if not partition.online:
            self._forget(partition)
        elif state.replicas == (self._node_id,) == (state.leader,):
            self._forget(partition)
            partition.become_sole_replica(state.leader_epoch)
        elif self._acting_epoch is None:
            self._drop_role(partition)
            partition.drop_role(state.leader_epoch)
        elif state.leader == self._node_id:
            self._lead(partition, topic, state, view)
        elif self._node_id in state.replicas:
            self._follow_leader(partition, state)

    def forget(self, partition: Partition) -> None:
        """The partition is removed from this node."""
        self._forget(partition)

    # Leader

    def _lead(self, partition: Partition, topic: Topic, state: PartitionState, view: ClusterView) -> None:
        settings = LeaderSettings(
            min_insync=configured_min_insync(self._config, view, topic),
            lag_max_ms=self._config["replica.lag.time.max.ms"],
        )
        role = partition.role
        if not isinstance(role, LeaderRole):
            self._become_leader(partition, state, settings)
            return
        role.machine.settings = settings
        self._update_leader(role, state)

    def _update_leader(self, leading: LeaderRole, state: PartitionState) -> None:
        outcome = leading.machine.update(state, self._nodes_for(leading.partition), self._now_ms())
        leading.acks.set_replicas(leading.machine.state.replicas)
        if outcome is EpochChange.NEW_EPOCH:
            self._begin_epoch(leading)
        leading.update_high_watermark()
        self._proposals.consider(leading)

    def _nodes_for(self, partition: Partition) -> Nodes:
        """Without those on which its log is damaged: with one of them a whole proposal is refused (R27)."""
        key = partition.topic_id, partition.topic_partition.partition
        return self._nodes.without(self._damaged.get(key, ()))

    def _become_leader(self, partition: Partition, state: PartitionState, settings: LeaderSettings) -> None:
        """R13: the high watermark stays what this node knew before, never its log end offset."""
        self._stop_following(partition)
        log = partition.log
        role = partition.role
        committed = partition.high_watermark
        if isinstance(role, FollowerRole):
            committed = role.machine.heard_committed
        if committed > log.log_end_offset:  # an unclean election (R19)
            audit_loss(
                self._events,
                self._node_id,
                partition.topic_partition,
                first=log.log_end_offset,
                end=committed,
                epoch=state.leader_epoch,
                how=f"node {self._node_id} leads without them",
            )
        own = OwnLog(
            log_end=log.log_end_offset,
            durable_end=partition.commits.durable_end,
            high_watermark=partition.high_watermark,
            log_start=log.log_start_offset,
        )
        nodes = self._nodes_for(partition)
        machine = Leader(self._node_id, state, nodes, own, settings, self._now_ms())
        leading = LeaderRole(
            partition, machine, self._now_ms, self._proposals.consider, self._slow.machine.acknowledged
        )
        self._led[partition] = None
        self._begin_epoch(leading)
        partition.become_leader(leading, state.leader_epoch)
        if self._suspended:
            partition.suspend()
        leading.update_high_watermark()
        self._proposals.consider(leading)
        if own.durable_end < own.log_end:
            partition.request_flush()

    def _begin_epoch(self, leading: LeaderRole) -> None:
        """R13: a new leader has (epoch -> log end offset) on disk before its first append; it serves reads.

        A leader that led the previous epoch too keeps appending: recovery finds the epoch in its batches.
        """
        partition, epoch = leading.partition, leading.machine.leader_epoch
        partition.log.epochs.assign(epoch, partition.log_end_offset)
        partition.leader_epoch = epoch
        self._spawn(self._save_epoch(leading, epoch), f"epoch of {partition.topic_partition}")

    async def _save_epoch(self, leading: LeaderRole, epoch: int) -> None:
        partition = leading.partition
        while leading.is_current and leading.machine.leader_epoch == epoch:
            if partition.flushing or partition.saving_epoch:
                await self._world.tasks.sleep(FLUSH_POLL_S)
                continue
            if await self._write_epoch(partition):
                break
            await self._world.tasks.sleep(SAVE_RETRY_S)
        if leading.is_current and leading.machine.leader_epoch == epoch and not self._suspended:
            partition.open_for_writes()

    async def _write_epoch(self, partition: Partition) -> bool:
        write = partition.begin_epoch_save()
        if write is None:
            return True
        self._saves += 1
        thread = self._epoch_threads[self._saves % EPOCH_THREADS]
        try:
            await thread.run(write)
        except asyncio.CancelledError:
            partition.log.epochs.dirty = True  # it is not known whether it was written
            raise
        except Exception as error:  # noqa: BLE001 - whatever the error, no append before it is on disk
            logger.error("%s: its leader epoch cannot be written: %r", partition.topic_partition, error)
            partition.log.epochs.dirty = True
            return False
        finally:
            partition.end_epoch_save()
        return not partition.log.epochs.dirty

    def _stored(self, leading: LeaderRole, proposal: IsrProposal, answer: Any) -> None:
        """The controller accepted the proposal; the view will have the new state later."""
        machine = leading.machine
        if not leading.is_current or answer.leader_epoch != machine.leader_epoch:
            return
        state = replace(
            machine.state, isr=tuple(map(int, answer.isr)), partition_epoch=int(answer.partition_epoch)
        )
        self._update_leader(leading, state)

    async def _check_insync(self) -> None:
        while True:
            await self._world.tasks.sleep(ISR_CHECK_S)
            for partition in self._led:
                if isinstance(partition.role, LeaderRole):
                    self._proposals.consider(partition.role)

    # Follower

    def _follow_leader(self, partition: Partition, state: PartitionState) -> None:
        role = partition.role
        following = role if isinstance(role, FollowerRole) else self._become_follower(partition, state)
        machine = following.machine
        leader_before, epoch_before = machine.leader, machine.leader_epoch
        machine.update(state)
        if machine.leader_epoch == epoch_before:
            return
        partition.leader_epoch = machine.leader_epoch
        if leader_before not in (NO_NODE, machine.leader):
            self._leave_fetcher(following, leader_before)
        if machine.leader != NO_NODE:
            self._fetcher(machine.leader).add(following)

    def _become_follower(self, partition: Partition, state: PartitionState) -> FollowerRole:
        self._forget(partition)
        following = self._make_follower(partition)
        partition.become_follower(following, state.leader_epoch)
        if partition.commits.durable_end < partition.log_end_offset:
            following.waits_for_flush = True
            self._spawn(self._fetch_when_flushed(following), f"flush of {partition.topic_partition}")
        return following

    async def _fetch_when_flushed(self, following: FollowerRole) -> None:
        await following.partition.flushed()
        following.waits_for_flush = False
        self._moved(following)

    def _make_follower(self, partition: Partition) -> FollowerRole:
        assert self._acting_epoch is not None
        log = partition.log
        machine = Follower(
            self._node_id,
            self._acting_epoch,
            log.epochs,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            high_watermark=partition.high_watermark,
        )
        return FollowerRole(partition, machine, self._audit_truncation)

    def _audit_truncation(self, following: FollowerRole, offset: int) -> None:
        audit_loss(
            self._events,
            self._node_id,
            following.partition.topic_partition,
            first=offset,
            end=following.partition.log_end_offset,
            epoch=following.machine.leader_epoch,
            how=f"node {self._node_id} had them, and node {following.machine.leader} leads without them",
        )

    def _fetcher(self, leader: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = ReplicaFetcher(
                self._world,
                self._peers,
                leader,
                max_wait_ms=self._config["replica.fetch.wait.max.ms"],
                persist_offsets=self._persist_offsets,
                on_moved=self._moved,
            )
        return fetcher

    def _moved(self, following: FollowerRole) -> None:
        """It can fetch from its leader now."""
        fetcher = self._fetchers.get(following.machine.leader)
        if fetcher is not None:
            fetcher.wake()

    def _leave_fetcher(self, following: FollowerRole, leader: int) -> None:
        fetcher = self._fetchers.get(leader)
        if fetcher is not None:
            fetcher.remove(following)
            self._retire_if_empty(leader, fetcher)

    def _retire_if_empty(self, leader: int, fetcher: ReplicaFetcher) -> None:
        if not fetcher:
            del self._fetchers[leader]
            fetcher.retire()

    def _stop_following(self, partition: Partition) -> None:
        role = partition.role
        if isinstance(role, FollowerRole):
            self._leave_fetcher(role, role.machine.leader)
        elif not partition.online:  # its log went offline, and its role with it
            for leader, fetcher in list(self._fetchers.items()):
                fetcher.forget(partition)
                self._retire_if_empty(leader, fetcher)

    def _forget(self, partition: Partition) -> None:
        self._stop_following(partition)
        self._led.pop(partition, None)

    def _drop_role(self, partition: Partition) -> None:
        self._forget(partition)
        partition.drop_role(partition.leader_epoch)

    # The session

    async def _watch_session(self) -> None:
        """R7: after two thirds of the session timeout without a renewal, this node leads nothing."""
        pause_s = self._config["broker.session.timeout.ms"] / 1000 / DOUBT_CHECKS_PER_TTL
        while True:
            await self._world.tasks.sleep(pause_s)
            try:
                self.check_session()
            except Exception:
                logger.exception("checking the session failed, will be retried")

    def check_session(self) -> None:
        """Handles what the view does not show: a session that may have expired, a node epoch known late."""
        view = self._cluster.view
        if self._acting_epoch != self._epoch_in(view):
            self.apply_view(view, view)
        suspended = self._acting_epoch is not None and self._cluster.session_may_have_expired
        if suspended != self._suspended:
            self._suspended = suspended
            self._suspend_or_resume()

    def _suspend_or_resume(self) -> None:
        if self._suspended and self._led:
            logger.warning("the session may have expired: no replicated partition is led until it is renewed")
        for partition in list(self._led):
            leading = partition.role
            if not isinstance(leading, LeaderRole) or not partition.online:
                continue
            if self._suspended:
                partition.suspend()
            else:
                partition.become_leader(leading, leading.machine.leader_epoch)
                self._begin_epoch(leading)

    # Clock and metrics

    def _now_ms(self) -> int:
        return int(self._world.clock.monotonic() * 1000)

    def figures(self) -> ReplicationFigures:
        """For metrics."""
        led = [each.role.machine for each in self._led if isinstance(each.role, LeaderRole)]
        lags = [each.role.lag for each in self._partitions.all() if isinstance(each.role, FollowerRole)]
        return ReplicationFigures(
            followed=len(lags),
            longest_lag=max(lags, default=0),
            below_min_insync=sum(machine.under_min_insync for machine in led),
            slow=self._slow.slow,
            ack_ms=self._slow.machine.typical(),
            slow_moves=self._slow.moves,
        )
