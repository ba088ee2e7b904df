# SPDX-License-Identifier: Apache-2.0
"""Partition reassignment for `topics alter --replication-factor`, `cluster remove` and `cluster balance`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headrace.cli.output import Output
from headrace.client.cluster import Cluster
from headrace.client.tools.reassignments import Targets, elect_preferred, read_replicas, reassign
from headrace.client.tools.replica_plan import balanced, with_replication_factor, without_node

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


def plan_replication_factor(bootstrap: str | Cluster, topic: str, factor: int) -> Targets:
    """New replicas of the partitions that change. Raises ClientError when there are too few nodes."""
    found = read_replicas(bootstrap)
    return with_replication_factor(found.of_topic(topic), factor, found.hosts, found.load)


def change_replication_factor(bootstrap: str | Cluster, topic: str, factor: int, output: Output) -> None:
    """Reassign the topic's partitions; returns when every new replica is in sync."""
    _reassign(bootstrap, plan_replication_factor(bootstrap, topic, factor), output)


def plan_without_node(bootstrap: str | Cluster, node: int) -> Targets:
    """New replicas of all partitions that the node holds. Raises ClientError when there are too few nodes."""
    found = read_replicas(bootstrap)
    return without_node(found.replicas, node, found.hosts)


def move_off_node(bootstrap: str | Cluster, node: int, output: Output) -> int:
    """Move all partitions off the node; returns how many."""
    targets = plan_without_node(bootstrap, node)
    _reassign(bootstrap, targets, output)
    return len(targets)


def plan_balance(bootstrap: str | Cluster, topic: str | None) -> Targets:
    """New replicas of the partitions that change: of one topic, or of all."""
    found = read_replicas(bootstrap)
    return balanced(found.replicas if topic is None else found.of_topic(topic), found.hosts)


def balance(bootstrap: str | Cluster, topic: str | None, output: Output) -> int:
    """Move partitions until every node leads as many, and elect the new leaders; returns how many moved."""
    targets = plan_balance(bootstrap, topic)
    _reassign(bootstrap, targets, output)
    if targets:
        elect_preferred(bootstrap, topic)
    return len(targets)


def _reassign(bootstrap: str | Cluster, targets: Targets, output: Output) -> None:
    if targets:
        with _Progress(output) as progress:
            reassign(bootstrap, targets, progress.show)


class _Progress:
    """A progress bar on a terminal, a line per change in a pipe, nothing with --json."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last = -1

    def __enter__(self) -> _Progress:
        if sys.stderr.isatty() and not self._output.as_json:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("moving partitions", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, moved: int, total: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=moved, total=total)
        elif moved != self._last and not self._output.as_json:
            self._output.note(f"{moved} of {total} partitions are in place")
        self._last = moved
