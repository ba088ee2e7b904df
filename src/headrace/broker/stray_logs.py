"""Logs on a node's disk that no partition of the cluster counts on any more: found when the node returns.

Of topics that were deleted, or made anew, while it was down, and of partitions that moved elsewhere. Only in
a cluster that several nodes can share, after the cluster's id was compared and the view read as its member.
Decisions: machines/reassignment.py `strays`. Read next: partitions.py, node.py.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from headrace.log.partition_metadata import topic_id_of
from headrace.machines.reassignment import strays
from headrace.types import ClusterView, TopicPartition
from headrace.world import Files

logger = logging.getLogger(__name__)

DOOMED_SUFFIX = "-delete"
_LOG_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})(?:\.[0-9]+-stray)?")


def doom_strays(files: Files, directory: Path, node_id: int, view: ClusterView) -> list[Path]:
    """Renamed, so that the next start removes what this one does not get to; they are to be removed now."""
    doomed = []
    for name, partition, topic_id in _on_disk(files, directory):
        if not strays(node_id, {partition: topic_id}, view.topics):
            continue
        target = directory / f"{partition}.{topic_id.hex}{DOOMED_SUFFIX}"
        try:
            if files.exists(target):
                files.remove_tree(target)
            files.rename(directory / name, target)
        except OSError as error:
            logger.error("%s is no longer this node's, but its files stay: %s", name, error)
            continue
        logger.info("%s was deleted, or moved to other nodes, while this node was down: removed", name)
        doomed.append(target)
    return doomed


def _on_disk(files: Files, directory: Path) -> Iterator[tuple[str, TopicPartition, UUID]]:
    """A log that does not say of which topic it is stays where it is."""
    for name in sorted(files.listdir(directory)):
        match = _LOG_DIRECTORY.fullmatch(name)
        topic_id = topic_id_of(files, directory / name) if match else None
        if match and topic_id is not None:
            yield name, TopicPartition(match[1], int(match[2])), topic_id
