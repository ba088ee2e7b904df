"""The end of logs on a node's disk: of deleted topics, of partitions that moved, and what crashes left.

Names are changed at once, files go on a thread. What is nobody's, or is damaged, is set aside and kept.
Read next: stray_logs.py, partitions.py (who holds the logs).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import UUID

from headrace.broker.stray_logs import doom_strays
from headrace.log.partition_metadata import may_be_of
from headrace.types import ClusterView, TopicPartition
from headrace.world import Thread, World

logger = logging.getLogger(__name__)

DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")


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
        """On the thread. The doomed name first becomes durable: a power cut must not bring the topic back."""
        self._files.sync_directory(self._directory)
        removal()

    def of_unopened(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        files, directory = self._files, self._directory / str(topic_partition)
        doomed = directory.with_name(f"{directory.name}.{topic_id.hex}{DELETED_SUFFIX}")
        try:
            if files.exists(directory) and may_be_of(files, directory, topic_id):
                files.rename(directory, doomed)
                self.later(partial(files.remove_tree, doomed))
        except OSError as error:
            logger.error("%s is deleted, but its files stay: %s", topic_partition, error)

    def leftovers(self, view: ClusterView, *, alone: bool) -> None:
        """At the start: what crashes left of topics that are gone. Only what had been deleted is removed.

        A node that is `alone` sets the rest aside; others come to `strays`, once they are let in.
        """
        for name in self._files.listdir(self._directory):
            if name.endswith(DELETED_SUFFIX):
                self.later(partial(self._files.remove_tree, self._directory / name))
            elif alone and (match := _PARTITION_DIRECTORY.fullmatch(name)):
                topic = view.topics.get(match[1])
                index = int(match[2])
                if topic is None or index >= len(topic.partitions):
                    self.set_aside(name)
                elif self._node_id not in topic.partitions[index].replicas:
                    # It was moved to other nodes, which hold all of it, while this one was down.
                    self.of_unopened(TopicPartition(topic.name, index), topic.topic_id)

    def strays(self, view: ClusterView) -> None:
        """As a member of a cluster: what others decided about this node's logs while it was down."""
        for doomed in doom_strays(self._files, self._directory, self._node_id, view):
            self.later(partial(self._files.remove_tree, doomed))

    def set_aside(self, name: str, why: str = "belongs to no topic") -> None:
        """Its records are nobody's; they are kept under a name that is in nobody's way."""
        files, stamp = self._files, self._clock.wall_ms()
        source, target = self._directory / name, self._directory / f"{name}.{stamp}{STRAY_SUFFIX}"
        try:
            if files.exists(source):
                files.rename(source, target)
                logger.warning("%s %s; it is now %s, to be removed by hand", name, why, target)
        except OSError as error:
            logger.error("%s %s and could not be set aside: %s", name, why, error)


def _log_failure(removal: asyncio.Future[None]) -> None:
    if not removal.cancelled() and (error := removal.exception()) is not None:
        logger.error("what is left of a deleted topic could not be removed: %s", error)
