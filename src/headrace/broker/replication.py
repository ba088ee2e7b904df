"""Which part this node has in each partition that several nodes hold, as the view says it.

Level-triggered: every change of the view is the whole state, and a role is taken on in one step per leader
epoch (R4, R9). A node that is not in the view, or in doubt about its session, leads nothing (R7).
Read next: replica_role.py, replica_fetcher.py, isr_proposals.py; machines/leader.py says what is done when.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.broker.isr_proposals import IsrProposals
from headrace.broker.live_nodes import live_nodes
from headrace.broker.metrics import ReplicationFigures
from headrace.broker.min_insync import configured_min_insync
from headrace.broker.partition import Partition
from headrace.broker.replica_fetcher import ReplicaFetcher
from headrace.broker.replica_role import Following, Leading
from headrace.broker.topic_settings import FLUSH_ACK
from headrace.broker.unclean_audit import audit_loss
from headrace.machines.follower import Follower
from headrace.machines.leader import Follow, IsrProposal, Leader, LeaderSettings, OwnLog
from headrace.types import NO_NODE, ClusterView, PartitionState, Topic

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

DOUBT_CHECKS_PER_TTL = 24
ISR_CHECK_S = 1.0
EPOCH_THREADS = 4
FLUSH_POLL_S = 0.002
SAVE_AGAIN_S = 1.0


class Replication:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._world = broker.world
        self._node_id = broker.node_id
        self._cluster = broker.cluster
        self._peers = broker.peers
        self._partitions = broker.partitions
        self._config = broker.config
        self._nodes = live_nodes(broker.cluster.view)
        self._acting_epoch: int | None = None
        """Of this node, once it is in the view."""
        self._in_doubt = False
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._led: dict[Partition, None] = {}
        self._proposals = IsrProposals(
            broker.world, broker.peers, broker.cluster, broker.node_id, self._stored
        )
        self._epoch_threads = [broker.world.tasks.thread(f"epochs-{n}") for n in range(EPOCH_THREADS)]
        self._saves = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # Life

    def start(self) -> None:
        self._broker.metrics.replication = self.figures
        self._cluster.subscribe(self.follow)
        self._spawn(self._watch_session(), "session watch")
        self._spawn(self._check_insync(), "in-sync replicas")

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._proposals.stop()
        for fetcher in self._fetchers.values():
            await fetcher.stop()

    def _spawn(self, coroutine: Any, name: str) -> None:
        task: asyncio.Task[None] = self._world.tasks.spawn(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Following the view

    def follow(self, old: ClusterView, new: ClusterView) -> None:
        """Before the partitions follow: roles are judged by the nodes of the same view."""
        if new.nodes is old.nodes and self._acting_epoch == self._epoch_in(new):
            return
        self._nodes = live_nodes(new)
        acting_epoch = self._epoch_in(new)
        begins_anew = acting_epoch != self._acting_epoch
        self._acting_epoch = acting_epoch
        for partition in list(self._partitions.all()) if begins_anew else list(self._led):
            topic = new.topics.get(partition.topic_partition.topic)
            index = partition.topic_partition.partition
            if topic is None or topic.topic_id != partition.topic_id or index >= len(topic.partitions):
                continue  # it is about to be removed
            if begins_anew and (partition.leading is not None or partition.following is not None):
                self._drop_role(partition)
            self.take(partition, topic, new)

    def _epoch_in(self, view: ClusterView) -> int | None:
        """This node's epoch when the view names its present incarnation; other lives do not count (R3)."""
        node = view.nodes.get(self._node_id)
        return node.epoch if node is not None and node.epoch == self._cluster.node_epoch else None

    def take(self, partition: Partition, topic: Topic, view: ClusterView) -> None:
        """Gives the partition the role that its state in the view demands."""
        state = topic.partitions[partition.topic_partition.partition]
        if not partition.online:
            self._forget(partition)
        elif state.replicas == (self._node_id,) == (state.leader,):
            self._forget(partition)
            partition.lead_alone(state.leader_epoch)
        elif self._acting_epoch is None:
            self._drop_role(partition)
            partition.follow(None, state.leader_epoch)
        elif state.leader == self._node_id:
            self._lead(partition, topic, state, view)
        elif self._node_id in state.replicas:
            self._trail(partition, state)

    def forget(self, partition: Partition) -> None:
        """It is removed from this node."""
        self._forget(partition)

    # Leading

    def _lead(self, partition: Partition, topic: Topic, state: PartitionState, view: ClusterView) -> None:
        settings = LeaderSettings(
            min_insync=configured_min_insync(self._config, view, topic),
            lag_max_ms=self._config["replica.lag.time.max.ms"],
        )
        leading = partition.leading
        if leading is None:
            self._become_leader(partition, state, settings)
            return
        leading.machine.settings = settings
        self._follow_as_leader(leading, state)

    def _follow_as_leader(self, leading: Leading, state: PartitionState) -> None:
        outcome = leading.machine.follow(state, self._nodes, self._now_ms())
        if outcome is Follow.NEW_EPOCH:
            self._begin_epoch(leading)
        leading.show()
        self._proposals.consider(leading)

    def _become_leader(self, partition: Partition, state: PartitionState, settings: LeaderSettings) -> None:
        """R13: the high watermark is what this node knew before, never its log end."""
        self._stop_following(partition)
        log = partition.log
        following = partition.following
        heard = partition.high_watermark if following is None else following.machine.heard_committed
        if heard > log.log_end_offset:  # an unclean election (R19)
            audit_loss(
                self._broker,
                partition.topic_partition,
                first=log.log_end_offset,
                end=heard,
                epoch=state.leader_epoch,
                how=f"node {self._node_id} leads without them",
            )
        own = OwnLog(
            log_end=log.log_end_offset,
            durable_end=log.flushed_offset if partition.settings.flush == FLUSH_ACK else log.log_end_offset,
            high_watermark=partition.high_watermark,
            log_start=log.log_start_offset,
        )
        machine = Leader(self._node_id, state, self._nodes, own, settings, self._now_ms())
        leading = Leading(partition, machine, self._now_ms, self._proposals.consider)
        self._led[partition] = None
        self._begin_epoch(leading)
        partition.lead(leading, state.leader_epoch)
        if self._in_doubt:
            partition.step_aside()
        leading.show()
        self._proposals.consider(leading)
        if own.durable_end < own.log_end:
            partition.request_flush()

    def _begin_epoch(self, leading: Leading) -> None:
        """R13: a new leader has (epoch -> log end) on disk before its first append; reads go on meanwhile.

        Who led the epoch before goes on writing: its batches carry the new epoch, where recovery finds it.
        """
        partition, epoch = leading.partition, leading.machine.leader_epoch
        partition.log.epochs.assign(epoch, partition.log_end_offset)
        partition.leader_epoch = epoch
        self._spawn(self._save_epoch(leading, epoch), f"epoch of {partition.topic_partition}")

    async def _save_epoch(self, leading: Leading, epoch: int) -> None:
        partition = leading.partition
        while partition.leading is leading and leading.machine.leader_epoch == epoch:
            if partition.flushing or partition.saving_epoch:
                await self._world.tasks.sleep(FLUSH_POLL_S)
                continue
            if await self._write_epoch(partition):
                break
            await self._world.tasks.sleep(SAVE_AGAIN_S)
        if partition.leading is leading and leading.machine.leader_epoch == epoch and not self._in_doubt:
            partition.take_writes()

    async def _write_epoch(self, partition: Partition) -> bool:
        write = partition.begin_epoch_save()
        if write is None:
            return True
        self._saves += 1
        thread = self._epoch_threads[self._saves % EPOCH_THREADS]
        try:
            await thread.run(write)
        except asyncio.CancelledError:
            partition.log.epochs.dirty = True  # nobody hears whether it was written
            raise
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody writes before it is on disk
            logger.error("%s: its epoch cannot be written down: %r", partition.topic_partition, error)
            partition.log.epochs.dirty = True
            return False
        finally:
            partition.end_epoch_save()
        return not partition.log.epochs.dirty

    def _stored(self, leading: Leading, proposal: IsrProposal, answer: Any) -> None:
        """The controller's answer is news that the view will bring as well, only later."""
        partition, machine = leading.partition, leading.machine
        if partition.leading is not leading or answer.leader_epoch != machine.leader_epoch:
            return
        state = replace(
            machine.state, isr=tuple(map(int, answer.isr)), partition_epoch=int(answer.partition_epoch)
        )
        self._follow_as_leader(leading, state)

    async def _check_insync(self) -> None:
        while True:
            await self._world.tasks.sleep(ISR_CHECK_S)
            for partition in self._led:
                if partition.leading is not None:
                    self._proposals.consider(partition.leading)

    # Following

    def _trail(self, partition: Partition, state: PartitionState) -> None:
        following = partition.following
        if following is None:
            self._forget(partition)
            following = self._new_following(partition)
            partition.follow(following, state.leader_epoch)
            if partition.settings.flush == FLUSH_ACK and partition.flushed_offset < partition.log_end_offset:
                following.waits_for_disk = True
                self._spawn(self._begin_when_flushed(following), f"flush of {partition.topic_partition}")
        machine = following.machine
        leader_before, epoch_before = machine.leader, machine.leader_epoch
        machine.follow(state)
        if machine.leader_epoch == epoch_before:
            return
        partition.leader_epoch = machine.leader_epoch
        if leader_before not in (NO_NODE, machine.leader):
            self._leave_fetcher(following, leader_before)
        if machine.leader != NO_NODE:
            self._fetcher(machine.leader).add(following)

    async def _begin_when_flushed(self, following: Following) -> None:
        await following.partition.flushed()
        following.waits_for_disk = False
        self._moved(following)

    def _new_following(self, partition: Partition) -> Following:
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
        return Following(partition, machine, self._gives_up)

    def _gives_up(self, following: Following, offset: int) -> None:
        audit_loss(
            self._broker,
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
                persist_offsets=self._broker.offsets.persist,
                on_moved=self._moved,
            )
        return fetcher

    def _moved(self, following: Following) -> None:
        """It has something to ask of its leader now."""
        fetcher = self._fetchers.get(following.machine.leader)
        if fetcher is not None:
            fetcher.look_again()

    def _leave_fetcher(self, following: Following, leader: int) -> None:
        fetcher = self._fetchers.get(leader)
        if fetcher is not None:
            fetcher.remove(following)
            if not fetcher:
                del self._fetchers[leader]
                fetcher.retire()

    def _stop_following(self, partition: Partition) -> None:
        following = partition.following
        if following is not None:
            self._leave_fetcher(following, following.machine.leader)

    def _forget(self, partition: Partition) -> None:
        self._stop_following(partition)
        self._led.pop(partition, None)

    def _drop_role(self, partition: Partition) -> None:
        self._forget(partition)
        partition.follow(None, partition.leader_epoch)

    # The session

    async def _watch_session(self) -> None:
        """R7: two thirds of the session's time without an answer, and this node leads nothing."""
        pause_s = self._config["broker.session.timeout.ms"] / 1000 / DOUBT_CHECKS_PER_TTL
        while True:
            await self._world.tasks.sleep(pause_s)
            try:
                self.look()
            except Exception:
                logger.exception("the watch over the session failed, will look again")

    def look(self) -> None:
        """What no change of the view tells: doubt about the session, and an epoch that became known late."""
        view = self._cluster.view
        if self._acting_epoch != self._epoch_in(view):
            self.follow(view, view)
        in_doubt = self._acting_epoch is not None and self._cluster.session_in_doubt
        if in_doubt != self._in_doubt:
            self._in_doubt = in_doubt
            self._doubt_changed()

    def _doubt_changed(self) -> None:
        if self._in_doubt and self._led:
            logger.warning("the coordination store does not answer: this node leads nothing until it does")
        for partition in list(self._led):
            leading = partition.leading
            if leading is None or not partition.online:
                continue
            if self._in_doubt:
                partition.step_aside()
            else:
                partition.lead(leading, leading.machine.leader_epoch)
                self._begin_epoch(leading)

    # Looks

    def _now_ms(self) -> int:
        return int(self._world.clock.monotonic() * 1000)

    def figures(self) -> ReplicationFigures:
        """For metrics."""
        led = [partition.leading.machine for partition in self._led if partition.leading is not None]
        lags = [p.following.machine.lag for p in self._partitions.all() if p.following is not None]
        return ReplicationFigures(
            followed=len(lags),
            longest_lag=max(lags, default=0),
            below_min_insync=sum(machine.under_min_insync for machine in led),
        )
