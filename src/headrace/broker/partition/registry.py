# SPDX-License-Identifier: Apache-2.0
"""The partitions this node holds: opened, reconfigured and removed to match the cluster's view.

Read next: partition.py; broker/node.py (which passes the view).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from headrace.broker.metrics import Metrics
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.checkpoints import LogOffsets, NodeCheckpoints, high_watermarks_in
from headrace.broker.partition.damaged_log import DamagedLog, NoRepairs, Repairs, damage_in, damage_of
from headrace.broker.partition.flusher import Flusher
from headrace.broker.partition.log_removals import LogRemovals
from headrace.broker.partition.opening_queue import OpeningQueue
from headrace.broker.partition.partition import UNKNOWN_EPOCH, Partition
from headrace.broker.partition.readers import ReaderPosition
from headrace.broker.partition.settings.topic_settings import TopicSettings
from headrace.broker.partition.storage_faults import will_pass
from headrace.broker.partition.validation.record_validation import TurnAllowance
from headrace.errors import ApiError, CorruptLogError, StorageError
from headrace.log.flush import Flush
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.partition_metadata import ForeignDirectoryError
from headrace.log.repair import marker
from headrace.log.segments.descriptors import DescriptorPool
from headrace.types import NO_NODE, ClusterView, Topic, TopicPartition
from headrace.wire.error_codes import ErrorCode
from headrace.world import World

logger = logging.getLogger(__name__)

MOST_SEGMENTS = 50
"""Listed of one partition."""
MOST_SLICES_PER_REPLY = 1024
CLOSED_TOGETHER = 64
"""Their files stay open until all are synced."""


class Partitions:
    def __init__(
        self,
        *,
        world: World,
        node_id: int,
        directory: Path,
        metrics: Metrics,
        flusher: Flusher,
        descriptors: DescriptorPool,
        settings_of: Callable[[ClusterView, Topic], TopicSettings],
        changed_topics: Callable[[ClusterView, ClusterView], Iterable[str]],
        checkpoints: NodeCheckpoints,
        persist_offsets: Callable[[], Awaitable[None]],
    ) -> None:
        self._take_role: Callable[[Partition, Topic, ClusterView], None] = _lead_alone
        self._removed: Callable[[Partition], None] = lambda partition: None
        self._opened_late: Callable[[TopicPartition], None] = lambda name: None
        self._disk_changed: Callable[[], None] = lambda: None
        self._repairs: Repairs = NoRepairs()
        self.writable = True
        """False while the disk is nearly full (R25)."""
        self._world = world
        self._node_id = node_id
        self._directory = directory
        self._metrics = metrics
        self._flusher = flusher
        self._descriptors = descriptors
        self._settings_of = settings_of
        self._changed_topics = changed_topics
        self._checkpoints = checkpoints
        self._allowance = TurnAllowance(world.tasks.call_soon)
        self._persist_offsets = persist_offsets
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[UUID, dict[int, Partition]] = {}
        self._offline: dict[tuple[str | UUID | None, int], str] = {}
        """Partitions whose log could not be opened, by name and by id, with the reason."""
        self._unopened: dict[TopicPartition, UUID] = {}
        """The same, with their topic ids."""
        self._begun_anew: set[TopicPartition] = set()
        """Those whose log was damaged: what the checkpoints say of it does not hold any more."""
        self._kept: dict[TopicPartition, tuple[LogOffsets, bool]] = {}
        """Of logs that went offline and will be opened again, and whether they were closed cleanly: what the
        checkpoints said at the start is old."""
        self._repaired_at: dict[TopicPartition, int] = {}
        """The segment that was just repaired of a log that is being opened again."""
        self._troubled: dict[Partition, None] = {}
        """Partitions that reported trouble with the disk and may not have recovered. Looking at all of them
        once a second would keep a node with thousands of partitions from its requests."""
        self.repaired: dict[Partition, None] = {}
        """Partitions whose log was repaired; the scrub checks them at once."""
        self._last_epochs: dict[TopicPartition, int] = {}
        """Of logs that went offline: the leader epoch in which this process fetched for them last. A fetch
        may still be under way, and would count for the log that takes their place (R27)."""
        self._to_begin_anew: set[TopicPartition] = set()
        """Those that were not repaired and wait for a leader to be fetched from as a whole."""
        self._openable: set[TopicPartition] = set()
        """Those of them that failed only for lack of disk space or file descriptors."""
        self._view: ClusterView | None = None
        self._closing = False
        """Then the view no longer matters: its logs are on their way to the disk."""
        self._opening = OpeningQueue(world, self._open_queued)
        self.removals = LogRemovals(world, node_id, directory)

    def connect(
        self,
        *,
        take_role: Callable[[Partition, Topic, ClusterView], None],
        removed: Callable[[Partition], None],
        opened_late: Callable[[TopicPartition], None],
        disk_changed: Callable[[], None],
        repairs: Repairs,
    ) -> None:
        """Sets the callbacks into components that are built on top of the partitions; once, before `follow`.

        `take_role`: at every change of a topic, for each of its partitions that this node holds.
        `removed`: a partition is deleted, or other nodes hold it now.
        `opened_late`: a log was opened after the callback with the view that brought it.
        `disk_changed`: `have_room` or `damaged` may have changed.
        """
        self._take_role, self._removed = take_role, removed
        self._opened_late, self._disk_changed = opened_late, disk_changed
        self._repairs = repairs

    # Look-up

    def get(self, topic: str, index: int) -> Partition | None:
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def readers(self, topic: str) -> dict[int, list[ReaderPosition]]:
        """Clients that fetch from the partitions of a topic that this node leads."""
        now, partitions = self._world.clock.monotonic(), self._by_name.get(topic, {})
        return {index: each.readers.listed(now) for index, each in sorted(partitions.items()) if each.leads}

    def segments(self, topic: str) -> dict[int, dict[str, Any]]:
        """The oldest segments of the partitions that this node leads, and how many more there are."""
        partitions = sorted(self._by_name.get(topic, {}).items())
        return {
            index: {
                "segments": (shown := each.log.segments_from_oldest(MOST_SEGMENTS)),
                "more": each.log.segment_count - len(shown),
            }
            for index, each in partitions
            if each.leads
        }

    def find(self, name: str | None, topic_id: UUID | None, index: int) -> Partition:
        """By name, or by id where there is one. Raises ApiError as Kafka would."""
        if topic_id is not None:
            partitions = self._by_id.get(topic_id)
            if partitions is None:
                raise ApiError(ErrorCode.unknown_topic_id)
        else:
            partitions = self._by_name.get(name)  # type: ignore[arg-type]
        partition = None if partitions is None else partitions.get(index)
        if partition is None:
            reason = self._offline.get((name if topic_id is None else topic_id, index))
            if reason is not None:
                raise ApiError(ErrorCode.kafka_storage_error, reason)
            raise ApiError(self._why_not_held(name, topic_id, index))
        return partition

    def _why_not_held(self, name: str | None, topic_id: UUID | None, index: int) -> ErrorCode:
        view = self._view
        topic = None if view is None else view.topics.get(name or view.topic_names.get(topic_id, ""))  # type: ignore[arg-type]
        if topic is None or not 0 <= index < len(topic.partitions):
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.not_leader_or_follower

    def find_led(self, topic_name: str, index: int) -> Partition:
        """The partition if this node leads it and can read it. Raises ApiError as Kafka would."""
        view = self._view
        topic = None if view is None else view.topics.get(topic_name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        if topic.partitions[index].leader != self._node_id:
            raise ApiError(ErrorCode.not_leader_or_follower)
        partition = self.find(topic_name, None, index)
        if not partition.online:
            raise ApiError(ErrorCode.kafka_storage_error, f"{topic_name}-{index} is offline")
        if not partition.leads:  # the coordination session may have expired (R7)
            raise ApiError(ErrorCode.not_leader_or_follower)
        return partition

    def all(self) -> Iterable[Partition]:
        for partitions in list(self._by_name.values()):
            yield from list(partitions.values())

    @property
    def have_room(self) -> bool:
        """Whether the disk has room for the partitions of this node."""
        fenced = any(each.log.fenced for each in self._in_trouble())
        return self.writable and not self._openable and not fenced

    def damaged(self) -> dict[tuple[UUID, int], tuple[TopicPartition, str]]:
        """Partitions whose log cannot be read or written (R27), and why."""
        found = {}
        for partition in self._in_trouble():
            if partition.damage is not None:
                name = partition.topic_partition
                found[partition.topic_id, name.partition] = name, partition.damage
        for name, topic_id in self._unopened.items():
            if name not in self._openable:
                found[topic_id, name.partition] = name, self._offline[topic_id, name.partition]
        return found

    def trouble_at(self, partition: Partition) -> None:
        """The disk refused to read or write its log, or does so no longer."""
        self._troubled[partition] = None
        self._disk_changed()

    def _in_trouble(self) -> Iterable[Partition]:
        for partition in list(self._troubled):
            held = self.get(*partition.topic_partition) is partition
            if not held or (partition.damage is None and not partition.log.fenced):
                del self._troubled[partition]
        return self._troubled

    def damaged_epochs(self) -> set[tuple[UUID, int, int]]:
        """Of those that this process has fetched for, the leader epoch in which it did so last."""
        found = set()
        for partition in self._in_trouble():
            if partition.damage is not None:
                index = partition.topic_partition.partition
                found.add((partition.topic_id, index, partition.leader_epoch))
        for name, topic_id in self._unopened.items():
            if name in self._last_epochs and name not in self._openable:
                found.add((topic_id, name.partition, self._last_epochs[name]))
        return found

    def log_dirs(self) -> list[Path]:
        return [self._directory]

    @property
    def slices_per_reply(self) -> int:
        """A fetch reply pins the files it is sent from; when many are pinned, it gets one slice."""
        if self._descriptors.under_pressure:
            return 1
        return min(MOST_SLICES_PER_REPLY, self._descriptors.limit // 4)

    async def log_offsets(self) -> dict[TopicPartition, LogOffsets]:
        """For the checkpoints. What is not open keeps what is known of it: no bit of it is cut.

        Yields to the event loop: logs may be opened, closed and replaced meanwhile.
        """
        offsets = self._offsets_of_closed()
        async for partition in yielding(self.all()):
            if self.get(*partition.topic_partition) is partition:
                offsets[partition.topic_partition] = _offsets_of(partition)
        offsets |= self._offsets_of_closed()
        for name in self._begun_anew:  # the offsets of the log that was there before do not hold
            if (partition_now := self.get(*name)) is not None:
                offsets[name] = _offsets_of(partition_now)
        return offsets

    async def high_watermarks(self) -> dict[TopicPartition, int]:
        """For the checkpoint that is written often; a sole replica has none. Yields like `log_offsets`."""
        known = high_watermarks_in(self._offsets_of_closed())
        async for partition in yielding(self.all()):
            if not partition.is_sole and self.get(*partition.topic_partition) is partition:
                known[partition.topic_partition] = partition.high_watermark
        return known | high_watermarks_in(self._offsets_of_closed())

    def _offsets_of_closed(self) -> dict[TopicPartition, LogOffsets]:
        """Of logs that could not be opened, or not yet."""
        offsets = {name: self._known(name, topic_id) for name, topic_id in self._unopened.items()}
        for name in self._opening.waiting():
            topic = None if self._view is None else self._view.topics.get(name.topic)
            if topic is not None:
                offsets[name] = self._known(name, topic.topic_id)
        return offsets

    def _known(self, name: TopicPartition, topic_id: UUID) -> LogOffsets:
        """Of a log that is not open."""
        offsets, _ = self._last_known(name, topic_id)
        return offsets

    def _last_known(self, name: TopicPartition, topic_id: UUID) -> tuple[LogOffsets, bool]:
        """With whether it was closed cleanly."""
        kept = self._kept.get(name)
        if kept is not None and kept[0].topic_id == topic_id:
            return kept
        return self._checkpoints.at_start(name, topic_id), self._checkpoints.stopped_cleanly

    # Following the view

    def take_back_kept_logs(self, view: ClusterView) -> None:
        """Once, before the first view: they are checked as after a crash when they are opened (R26)."""
        for name, topic_id in self.removals.take_back(view).items():
            self._kept[name] = LogOffsets(topic_id=topic_id), False

    def apply_view(self, old: ClusterView, new: ClusterView) -> None:
        """Called at every change of the view; handles only topics that changed."""
        if self._closing:
            return
        self._view = new
        if old.node_configs is not new.node_configs:
            names: Iterable[str] = dict.fromkeys((*old.topics, *new.topics))
        else:
            names = self._changed_topics(old, new)
        for name in names:
            before, after = old.topics.get(name), new.topics.get(name)
            if before is not None and (after is None or after.topic_id != before.topic_id):
                self._remove(before)
            if after is not None:
                self._match(new, after)

    def _match(self, view: ClusterView, topic: Topic) -> None:
        settings = self._settings_of(view, topic)
        held = self._by_name.setdefault(topic.name, {})
        self._by_id[topic.topic_id] = held
        for index, state in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            if self._node_id not in state.replicas:
                self._give_up(topic, index)
            elif (partition := held.get(index)) is not None:
                self._keep(partition, topic, settings, view)
            elif name in self._repairs:
                self._repairs.update(name, state)
            elif name not in self._opening and self._opening.now(name):
                self._open_and_take(topic, index, settings, view)

    def _keep(self, partition: Partition, topic: Topic, settings: TopicSettings, view: ClusterView) -> None:
        index = partition.topic_partition.partition
        if partition.damage is not None:
            self._last_epochs[partition.topic_partition] = partition.leader_epoch
        if partition.damage is not None and self._may_begin_anew(topic, index):
            del self._by_name[topic.name][index]
            self._removed(partition)
            if (damaged := damage_of(partition)) is not None:
                self._begin_repair(topic, damaged)
                return
            partition.log.close(clean=False)
            anew = self._open_anew(topic, index, settings)
            if anew is not None:
                self._take_role(anew, topic, view)
            return
        partition.reconfigure(settings)
        self._take_role(partition, topic, view)

    def _open_and_take(
        self, topic: Topic, index: int, settings: TopicSettings, view: ClusterView
    ) -> Partition | None:
        partition = self._open(topic, index, settings)
        if partition is not None:
            self._take_role(partition, topic, view)
        return partition

    def _open_queued(self, name: TopicPartition) -> None:
        """The view may have changed since it was queued."""
        view, topic = self._view, self._still_held(name)
        if view is None or topic is None or self.get(*name) is not None:
            return
        if self._open_and_take(topic, name.partition, self._settings_of(view, topic), view) is not None:
            self._opened_late(name)

    def _still_held(self, name: TopicPartition, topic_id: UUID | None = None) -> Topic | None:
        """The topic, if this node holds the partition by the present view; `topic_id`: of that topic only."""
        topic = None if self._view is None else self._view.topics.get(name.topic)
        if topic is None or self._closing or name.partition >= len(topic.partitions):
            return None
        if topic_id is not None and topic.topic_id != topic_id:
            return None
        return topic if self._node_id in topic.partitions[name.partition].replicas else None

    async def opened(self) -> None:
        """Returns when all that this node is to hold is open, as far as it can be opened."""
        await self._opening.done()

    def _may_begin_anew(self, topic: Topic, index: int) -> bool:
        """R27: another node leads, in a later epoch than the damaged log was fetched for in, and this replica
        is neither in the ISR nor eligible for leadership."""
        state = topic.partitions[index]
        last_epoch = self._last_epochs.get(TopicPartition(topic.name, index), UNKNOWN_EPOCH)
        if state.leader in (self._node_id, NO_NODE) or state.leader_epoch <= last_epoch:
            return False
        return self._node_id not in {*state.isr, *state.elr}

    def _open_anew(self, topic: Topic, index: int, settings: TopicSettings) -> Partition | None:
        """Renames the damaged log and opens an empty one, which is fetched from the leader."""
        logger.warning("%s-%d is damaged here, and is fetched from its leader", topic.name, index)
        self.removals.set_aside(f"{topic.name}-{index}", "is damaged")
        name = TopicPartition(topic.name, index)
        self._begun_anew.add(name)
        self._to_begin_anew.discard(name)
        self._kept.pop(name, None)
        self._metrics.scrub.refetched += 1
        return self._open(topic, index, settings)

    # Repairs

    def _begin_repair(self, topic: Topic, damaged: DamagedLog) -> None:
        """R27: the log stays offline until its damaged segment is whole."""
        name = damaged.topic_partition
        self.keep_offsets(damaged)
        self._stays_offline(topic, name.partition, CorruptLogError(damaged.reason))
        self._repairs.begin(damaged, topic.partitions[name.partition])

    def keep_offsets(self, damaged: DamagedLog) -> None:
        """Of a log under repair, for the checkpoints and for when it is opened again."""
        self._kept[damaged.topic_partition] = damaged.offsets, damaged.clean

    def _note_epoch(self, name: TopicPartition, last_epoch: int) -> None:
        """The leader epoch in which a repair fetched last; UNKNOWN_EPOCH: it did not."""
        if last_epoch > self._last_epochs.get(name, UNKNOWN_EPOCH):
            self._last_epochs[name] = last_epoch

    def open_repaired(self, damaged: DamagedLog, fetched_bytes: int, last_epoch: int) -> None:
        name = damaged.topic_partition
        self._metrics.scrub.repaired += 1
        self._metrics.scrub.bytes_repaired += fetched_bytes
        self.keep_offsets(damaged)
        self._note_epoch(name, last_epoch)
        self._repaired_at[name] = damaged.base_offset
        if self._still_held(name, damaged.offsets.topic_id) is not None:
            self._open_queued(name)
            partition = self.get(*name)
            if partition is not None:
                self.repaired[partition] = None
        self._repaired_at.pop(name, None)
        self._disk_changed()

    def begin_anew(self, damaged: DamagedLog, last_epoch: int) -> None:
        """The damaged segment cannot be made whole by itself: the whole log is fetched (R27)."""
        name = damaged.topic_partition
        if self._still_held(name, damaged.offsets.topic_id) is None:
            return
        self._note_epoch(name, last_epoch)
        self._to_begin_anew.add(name)
        self._open_queued(name)
        self._disk_changed()

    def _damage_found(
        self, topic: Topic, index: int, settings: TopicSettings, error: CorruptLogError
    ) -> DamagedLog | None:
        """Of a log that could not be opened; None when only the whole of it can be fetched."""
        name = TopicPartition(topic.name, index)
        if error.base_offset is None or self._repaired_at.get(name) == error.base_offset:
            return None
        offsets, clean = self._last_known(name, topic.topic_id)
        try:
            return damage_in(
                self._world.files,
                self._directory / str(name),
                name,
                error=error,
                offsets=offsets,
                config=settings.log,
                clean=clean,
            )
        except OSError:
            return None

    def _open(self, topic: Topic, index: int, settings: TopicSettings) -> Partition | None:
        name = TopicPartition(topic.name, index)
        if name in self._to_begin_anew:
            return self._open_anew(topic, index, settings) if self._may_begin_anew(topic, index) else None
        try:
            partition = self._open_partition(topic, index, settings)
        except CorruptLogError as error:
            if self._may_begin_anew(topic, index):
                damaged = self._damage_found(topic, index, settings, error)
                if damaged is None:
                    return self._open_anew(topic, index, settings)
                self._begin_repair(topic, damaged)
                return None
            self._stays_offline(topic, index, error)
            return None
        except (StorageError, OSError) as error:
            self._stays_offline(topic, index, error)
            return None
        self._forget_offline(topic, index)
        self._kept.pop(name, None)
        self._last_epochs.pop(name, None)
        self._by_name[topic.name][index] = partition
        return partition

    def _open_partition(self, topic: Topic, index: int, settings: TopicSettings) -> Partition:
        """Raises CorruptLogError, StorageError, OSError."""
        state = topic.partitions[index]
        topic_partition = TopicPartition(topic.name, index)
        known = self._known(topic_partition, topic.topic_id)
        return Partition(
            topic_partition=topic_partition,
            topic_id=topic.topic_id,
            leader_epoch=state.leader_epoch,
            log=self._open_log(topic_partition, topic.topic_id, settings.log),
            settings=settings,
            clock=self._world.clock,
            flusher=self._flusher,
            counters=self._metrics.topic(topic.name),
            disk=self,
            allowance=self._allowance,
            call_soon=self._world.tasks.call_soon,
            persist_offsets=self._persist_offsets,
            high_watermark=None if len(state.replicas) == 1 else known.high_watermark or 0,
            on_trouble=self.trouble_at,
        )

    def _stays_offline(self, topic: Topic, index: int, error: StorageError | OSError) -> None:
        topic_partition = TopicPartition(topic.name, index)
        if topic_partition not in self._unopened:
            logger.error("%s stays offline: %s", topic_partition, error)
        self._offline[topic.name, index] = self._offline[topic.topic_id, index] = str(error)
        self._unopened[topic_partition] = topic.topic_id
        self._disk_changed()
        if will_pass(error):
            self._openable.add(topic_partition)
        else:
            self._openable.discard(topic_partition)

    def open_again(self) -> None:
        """There may be room now for those that found none."""
        for name in list(self._openable):
            if name not in self._opening and self._opening.now(name):
                self._open_queued(name)

    def _open_log(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> PartitionLog:
        try:
            return self._open_directory(topic_partition, topic_id, config)
        except ForeignDirectoryError as error:
            if self._checkpoints.holds(topic_partition, topic_id):  # the file that names the topic is damaged
                raise CorruptLogError(str(error)) from error
            # A crash came between a topic's deletion and the end of its directory; the name is used again.
            self.removals.set_aside(str(topic_partition))
            return self._open_directory(topic_partition, topic_id, config)

    def _open_directory(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig
    ) -> PartitionLog:
        known, clean = self._last_known(topic_partition, topic_id)
        directory = self._directory / str(topic_partition)
        held = self._checkpoints.holds(topic_partition, topic_id) and topic_partition not in self._begun_anew
        if clean and held and not self._world.files.exists(directory):
            raise CorruptLogError(f"{directory} is missing, with records up to offset {known.recovery_point}")
        marker.check(self._world.files, directory)
        log = PartitionLog.open(
            self._world.files,
            self._world.clock,
            directory,
            config,
            descriptors=self._descriptors,
            clean=clean,
            recovery_point=known.recovery_point,
            log_start_offset=known.log_start,
            topic_id=topic_id,
        )
        if clean and held and log.log_start_offset > known.log_start:
            log.close(clean=False)
            missing = f"offsets {known.log_start} to {log.log_start_offset - 1}"
            error = CorruptLogError(f"{directory}: the files with {missing} are missing")
            error.base_offset = known.log_start
            raise error
        return log

    # The end of topics

    def _remove(self, topic: Topic) -> None:
        for index in range(len(topic.partitions)):
            self._give_up(topic, index)
        self._by_name.pop(topic.name, None)
        self._by_id.pop(topic.topic_id, None)
        self._metrics.forget_topic(topic.name)

    def _give_up(self, topic: Topic, index: int) -> None:
        name = TopicPartition(topic.name, index)
        partition = self._by_name.get(topic.name, {}).pop(index, None)
        was_to_open = self._opening.forget(name)
        self._repairs.forget(name)
        self._kept.pop(name, None)
        self._last_epochs.pop(name, None)
        self._to_begin_anew.discard(name)
        if partition is not None:
            self._delete(partition)
        elif self._forget_offline(topic, index) or was_to_open:
            self.removals.of_unopened(name, topic.topic_id)

    def _delete(self, partition: Partition) -> None:
        """The topic is gone, or other nodes hold the partition now."""
        self._removed(partition)
        partition.resign()
        try:
            self.removals.later(partition.log.delete())
        except OSError as error:
            logger.error("%s is deleted, but its files stay: %s", partition.topic_partition, error)

    def _forget_offline(self, topic: Topic, index: int) -> bool:
        self._offline.pop((topic.name, index), None)
        self._offline.pop((topic.topic_id, index), None)
        self._openable.discard(TopicPartition(topic.name, index))
        return self._unopened.pop(TopicPartition(topic.name, index), None) is not None

    async def close(self) -> bool:
        """Whether the next start may trust every log as it is, without a check."""
        partitions = list(self.all())
        clean = not self._unopened and not self._opening and all(each.online for each in partitions)
        self._opening.stop()
        self._closing = True
        for partition in partitions:
            partition.resign()
        for start in range(0, len(partitions), CLOSED_TOGETHER):
            clean = await self._close_some(partitions[start : start + CLOSED_TOGETHER]) and clean
        return clean

    async def _close_some(self, partitions: list[Partition]) -> bool:
        begun: list[tuple[Partition, Flush | None]] = []
        clean = True
        for partition in partitions:
            try:
                begun.append((partition, partition.log.begin_close()))
            except (StorageError, OSError) as error:
                clean = False
                logger.error("%s was not closed cleanly: %s", partition.topic_partition, error)
                partition.log.end_close(None)
        await self._flusher.sync_last([flush for _, flush in begun if flush is not None])
        for partition, flush in begun:
            try:
                partition.log.end_close(flush)
            except StorageError as error:
                clean = False
                logger.error("%s was not closed cleanly: %s", partition.topic_partition, error)
        return clean


def _offsets_of(partition: Partition) -> LogOffsets:
    return LogOffsets(
        topic_id=partition.topic_id,
        recovery_point=partition.recovery_point,
        log_start=partition.log_start_offset,
        high_watermark=None if partition.is_sole else partition.high_watermark,
    )


def _lead_alone(partition: Partition, topic: Topic, view: ClusterView) -> None:
    """The role of every partition on a node without replication."""
    partition.become_sole_replica(topic.partitions[partition.topic_partition.partition].leader_epoch)
