"""`headrace topics alter --replication-factor`: where the copies go, and the wait until they are there."""

from __future__ import annotations

from headrace.cli.move_progress import MoveProgress
from headrace.cli.output import Output
from headrace.client.reassignments import Targets, read_replicas, reassign
from headrace.client.replica_plan import with_replication_factor


def planned_replicas(bootstrap: str, topic: str, factor: int) -> Targets:
    """Only the partitions that change. Raises ClientError when there are too few nodes."""
    found = read_replicas(bootstrap)
    return with_replication_factor(found.of_topic(topic), factor, found.hosts, found.load)


def change_replicas(bootstrap: str, topic: str, factor: int, output: Output) -> None:
    """Returns when every new copy is in sync."""
    targets = planned_replicas(bootstrap, topic, factor)
    if targets:
        with MoveProgress(output) as progress:
            reassign(bootstrap, targets, progress.show)
