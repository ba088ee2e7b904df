# SPDX-License-Identifier: Apache-2.0
"""Removes logs from a node's disk: of deleted topics, of partitions that moved, and what crashes left.

A directory is renamed at once and removed on a thread. Logs of unknown topics and damaged ones are renamed
and stay on the disk; those that a restored store did not have are taken back when it has them.
Read next: registry.py (which holds the open logs).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

from headrace.log.directory_names import (
    DELETED_SUFFIX,
    deleted_name,
    kept_log,
    kept_name,
    partition_in,
    stray_name,
)
from headrace.log.partition_metadata import may_be_of, topic_id_of
from headrace.machines.replication.reassignment import strays
from headrace.types import ClusterView, TopicPartition
from headrace.world import Files, Thread, World

logger = logging.getLogger(__name__)


class LogRemovals:
    def __init__(self, world: World, node_id: int, directory: Path) -> None:
        self._files = world.files
        self._clock = world.clock
        self._node_id = node_id
        self._directory = directory
        self._thread: Thread = world.tasks.thread("remove")

    def later(self, removal: Callable[[], None]) -> None:
        asyncio.ensure_future(self._thread.run(self._remove_tree, removal)).add_done_callback(_log_failure)

    def _remove_tree(self, removal: Callable[[], None]) -> None:
        """On the thread. First makes the rename durable: a power cut must not bring the topic back."""
        self._files.sync_directory(self._directory)
        removal()

    def of_unopened(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        files, directory = self._files, self._directory / str(topic_partition)
        renamed = directory.with_name(deleted_name(directory.name, topic_id.hex))
        try:
            if files.exists(directory) and may_be_of(files, directory, topic_id):
                files.rename(directory, renamed)
                self.later(partial(files.remove_tree, renamed))
        except OSError as error:
            logger.error("%s is deleted, but its files stay: %s", topic_partition, error)

    def leftovers(self, view: ClusterView, *, alone: bool) -> None:
        """At the start: removes what crashes left of deleted topics.

        A node that is `alone` sets logs of unknown topics aside; others call `strays` once registered.
        """
        for name in self._files.listdir(self._directory):
            if name.endswith(DELETED_SUFFIX):
                self.later(partial(self._files.remove_tree, self._directory / name))
            elif alone and (partition := partition_in(name)):
                topic, index = view.topics.get(partition[0]), partition[1]
                if topic is None or index >= len(topic.partitions):
                    self.set_aside(name)
                elif self._node_id not in topic.partitions[index].replicas:
                    # It was moved to other nodes, which hold all of it, while this one was down.
                    self.of_unopened(TopicPartition(topic.name, index), topic.topic_id)

    def strays(self, view: ClusterView) -> None:
        """Removes logs whose topic was deleted or moved to other nodes while this node was down."""
        for renamed in rename_strays(self._files, self._directory, self._node_id, view):
            self.later(partial(self._files.remove_tree, renamed))

    def keep_strays(self, view: ClusterView) -> None:
        """Instead of `strays` when the store was restored: it may lack what was created since (R27)."""
        stamp = self._clock.wall_ms()
        for name, partition, topic_id in list(_on_disk(self._files, self._directory)):
            if strays(self._node_id, {partition: topic_id}, view.topics):
                target = self._directory / kept_name(name, stamp)
                self._files.rename(self._directory / name, target)
                logger.warning("%s is not in the restored coordination store; it is kept as %s", name, target)
        self._files.sync_directory(self._directory)

    def take_back(self, view: ClusterView) -> dict[TopicPartition, UUID]:
        """At the start, before logs are opened: kept logs get their names back where the store has the topic.

        Where this node has a replica, and no other log of it. Nothing is known of how they were closed.
        """
        taken: dict[TopicPartition, UUID] = {}
        for name, index, topic_id in self._kept_logs():
            topic = view.topic_by_id(topic_id)
            if topic is None or index >= len(topic.partitions):
                continue
            partition = TopicPartition(topic.name, index)
            if self._node_id in topic.partitions[index].replicas and self._make_way(partition, topic_id):
                self._files.rename(self._directory / name, self._directory / str(partition))
                taken[partition] = topic_id
                logger.warning("%s is in the coordination store again, with its log from %s", partition, name)
        if taken:
            self._files.sync_directory(self._directory)
        return taken

    def _kept_logs(self) -> Iterator[tuple[str, int, UUID]]:
        """Name, partition and topic id: of several the one that was kept last; strays behind the others."""
        found = [(name, kept_log(name)) for name in self._files.listdir(self._directory)]
        kept = [(log.was_stray, -log.stamp, name, log.partition) for name, log in found if log is not None]
        for _, _, name, index in sorted(kept):
            if (topic_id := topic_id_of(self._files, self._directory / name)) is not None:
                yield name, index, topic_id

    def _make_way(self, partition: TopicPartition, topic_id: UUID) -> bool:
        """Keeps a log of another topic of that name; False when there is one of this topic."""
        directory = self._directory / str(partition)
        if not self._files.exists(directory):
            return True
        if may_be_of(self._files, directory, topic_id):
            return False
        self._files.rename(directory, self._directory / kept_name(directory.name, self._clock.wall_ms()))
        return True

    def set_aside(self, name: str, why: str = "belongs to no topic") -> None:
        """Renames a log of no known topic, or a damaged one, so that its records stay on the disk."""
        files, stamp = self._files, self._clock.wall_ms()
        source, target = self._directory / name, self._directory / stray_name(name, stamp)
        try:
            if files.exists(source):
                files.rename(source, target)
                logger.warning("%s %s; it is now %s (headrace log kept)", name, why, target)
        except OSError as error:
            logger.error("%s %s and could not be set aside: %s", name, why, error)


def _log_failure(removal: asyncio.Future[None]) -> None:
    if not removal.cancelled() and (error := removal.exception()) is not None:
        logger.error("the files of a deleted topic could not be removed: %s", error)


def rename_strays(files: Files, directory: Path, node_id: int, view: ClusterView) -> list[Path]:
    """Renames the logs of partitions that this node does not replicate any more; the caller removes them.

    Their topics were deleted or recreated, or the partitions reassigned, while the node was down. The next
    start removes what this one does not get to. Decided by machines/replication/reassignment.py `strays`.
    """
    renamed = []
    for name, partition, topic_id in _on_disk(files, directory):
        if not strays(node_id, {partition: topic_id}, view.topics):
            continue
        target = directory / deleted_name(str(partition), topic_id.hex)
        try:
            if files.exists(target):
                files.remove_tree(target)
            files.rename(directory / name, target)
        except OSError as error:
            logger.error("%s is no longer this node's, but its files stay: %s", name, error)
            continue
        logger.info("%s was deleted, or moved to other nodes, while this node was down: removed", name)
        renamed.append(target)
    return renamed


def _on_disk(files: Files, directory: Path) -> Iterator[tuple[str, TopicPartition, UUID]]:
    """Logs without a topic id in their metadata are skipped."""
    for name in sorted(files.listdir(directory)):
        partition = partition_in(name, strays=True)
        topic_id = topic_id_of(files, directory / name) if partition else None
        if partition and topic_id is not None:
            yield name, TopicPartition(*partition), topic_id
