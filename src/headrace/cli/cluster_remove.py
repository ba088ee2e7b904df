"""`headrace cluster remove`: every partition off the node, told as it goes, before the node may leave."""

from __future__ import annotations

from headrace.cli.move_progress import MoveProgress
from headrace.cli.output import Output
from headrace.client.reassignments import read_replicas, reassign
from headrace.client.replica_plan import without_node


def move_away(bootstrap: str, node: int, output: Output) -> int:
    """How many partitions were moved."""
    found = read_replicas(bootstrap)
    targets = without_node(found.replicas, node, found.hosts)
    if targets:
        with MoveProgress(output) as progress:
            reassign(bootstrap, targets, progress.show)
    return len(targets)
