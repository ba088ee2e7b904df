"""The partitions this node holds: opened, reconfigured and removed to match the cluster's view.

Read next: partition.py; node.py (who hands over the view).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from uuid import UUID

from headrace.broker.flusher import Flusher
from headrace.broker.metrics import Metrics
from headrace.broker.node_checkpoints import NodeCheckpoints
from headrace.broker.partition import Partition
from headrace.broker.topic_settings import TopicSettings
from headrace.errors import ApiError, StorageError
from headrace.log.descriptors import DescriptorPool
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.types import ClusterView, Topic, TopicPartition
from headrace.wire.error_codes import ErrorCode
from headrace.world import Thread, World

logger = logging.getLogger(__name__)

DELETED_SUFFIX = "-delete"


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
        checkpoints: NodeCheckpoints,
        persist_offsets: Callable[[], Awaitable[None]],
    ) -> None:
        self.writable = True
        """False while the disk is nearly full (R25)."""
        self._world = world
        self._node_id = node_id
        self._directory = directory
        self._metrics = metrics
        self._flusher = flusher
        self._descriptors = descriptors
        self._settings_of = settings_of
        self._checkpoints = checkpoints
        self._persist_offsets = persist_offsets
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[UUID, dict[int, Partition]] = {}
        self._offline: dict[tuple[str | UUID | None, int], str] = {}
        """Partitions whose log could not be opened, by name and by id, with the reason."""
        self._removals: Thread = world.tasks.thread("remove")

    # Look-up

    def get(self, topic: str, index: int) -> Partition | None:
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(index)

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
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        return partition

    def all(self) -> Iterable[Partition]:
        for partitions in list(self._by_name.values()):
            yield from list(partitions.values())

    def log_dirs(self) -> list[Path]:
        return [self._directory]

    # Following the view

    def follow(self, old: ClusterView, new: ClusterView) -> None:
        """Called at every change of the view; does nothing for topics that did not change."""
        defaults_changed = old.node_configs is not new.node_configs
        if old.topics is new.topics and not defaults_changed:
            return
        before = old.topics.get
        changed = [t for t in new.topics.values() if defaults_changed or before(t.name) is not t]
        for name in old.topics.keys() - new.topics.keys():
            self._remove(old.topics[name])
        for topic in changed:
            former = before(topic.name)
            if former is not None and former.topic_id != topic.topic_id:
                self._remove(former)
            self._match(new, topic)

    def _match(self, view: ClusterView, topic: Topic) -> None:
        settings = self._settings_of(view, topic)
        held = self._by_name.setdefault(topic.name, {})
        self._by_id[topic.topic_id] = held
        for index, state in enumerate(topic.partitions):
            partition = held.get(index)
            if partition is not None:
                partition.leader_epoch = state.leader_epoch
                partition.reconfigure(settings)
            elif self._node_id in state.replicas:
                self._open(topic, index, state.leader_epoch, settings)

    def _open(self, topic: Topic, index: int, leader_epoch: int, settings: TopicSettings) -> None:
        topic_partition = TopicPartition(topic.name, index)
        try:
            log = self._open_log(topic_partition, topic.topic_id, settings.log)
        except (StorageError, OSError) as error:
            logger.error("%s stays offline: %s", topic_partition, error)
            self._offline[topic.name, index] = self._offline[topic.topic_id, index] = str(error)
            return
        self._by_name[topic.name][index] = Partition(
            topic_partition=topic_partition,
            topic_id=topic.topic_id,
            leader_epoch=leader_epoch,
            log=log,
            settings=settings,
            clock=self._world.clock,
            flusher=self._flusher,
            counters=self._metrics.topic(topic.name),
            accepts_writes=lambda: self.writable,
            call_soon=self._world.tasks.call_soon,
            persist_offsets=self._persist_offsets,
        )

    def _open_log(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> PartitionLog:
        last = self._checkpoints.last
        return PartitionLog.open(
            self._world.files,
            self._world.clock,
            self._directory / str(topic_partition),
            config,
            descriptors=self._descriptors,
            clean=self._checkpoints.stopped_cleanly,
            recovery_point=last.recovery_points.get(topic_partition, 0),
            log_start_offset=last.log_starts.get(topic_partition, 0),
            topic_id=topic_id,
        )

    def _remove(self, topic: Topic) -> None:
        held = self._by_name.pop(topic.name, {})
        self._by_id.pop(topic.topic_id, None)
        self._metrics.forget_topic(topic.name)
        for index in range(len(topic.partitions)):
            self._offline.pop((topic.name, index), None)
            self._offline.pop((topic.topic_id, index), None)
        for partition in held.values():
            partition.resign()
            self._removals.run(partition.log.delete())

    def remove_leftovers(self) -> None:
        """Folders whose removal was cut short by a crash."""
        files = self._world.files
        for name in files.listdir(self._directory):
            if name.endswith(DELETED_SUFFIX):
                self._removals.run(files.remove_tree, self._directory / name)

    def close(self) -> None:
        for partition in self.all():
            partition.resign()
            try:
                partition.log.close(clean=True)
            except (StorageError, OSError) as error:
                logger.error("%s was not closed cleanly: %s", partition.topic_partition, error)
