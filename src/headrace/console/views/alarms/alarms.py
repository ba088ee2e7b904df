# SPDX-License-Identifier: Apache-2.0
"""What needs somebody's attention, each with what to do and the command that does it or shows more.

Pure: made from the snapshot. Read next: group_alarms.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.console.state.model import NodeState, Snapshot, TopicState
from headrace.console.views.admin_document import alarm
from headrace.console.views.alarms.group_alarms import group_alarms
from headrace.console.views.durations import duration
from headrace.console.views.paths import topic_path
from headrace.console.views.view import Document

MOST_ALARMS = 50
_NAMED = 3
_NEARLY_FULL = 0.05


def cluster_alarms(snapshot: Snapshot) -> list[Document]:
    found = [*_nodes(snapshot), *_partitions(snapshot)]
    for group in snapshot.groups.values():
        found += group_alarms(snapshot, group)
        if len(found) >= 4 * MOST_ALARMS:
            break
    order = ("error", "warning", "info")
    return sorted(found, key=lambda each: order.index(each["level"]))[:MOST_ALARMS]


def topic_alarms(snapshot: Snapshot, topic: TopicState) -> list[Document]:
    return [*_without_leader([topic]), *_under_replicated([topic]), *_open_transactions(snapshot, topic)]


def _nodes(snapshot: Snapshot) -> Iterator[Document]:
    for node in snapshot.nodes.values():
        if not node.up:
            address = f" ({node.host}:{node.port})" if node.host else ""
            yield alarm(
                "error",
                f"Node {node.node_id}{address} is down",
                "Start it again; the end of its log file says why it ended.",
                command=f"headrace cluster start {node.node_id}",
                since=node.since_ms,
                path="/",
            )
        elif node.problem:
            yield alarm(
                "warning",
                f"Node {node.node_id} does not answer: {node.problem}",
                "See whether its process runs and whether it can be reached from here.",
                command="headrace cluster status",
                path="/",
            )
        yield from _disk(node)


def _disk(node: NodeState) -> Iterator[Document]:
    command = "headrace topics list"
    if node.disk_problem:
        yield alarm(
            "error",
            f"Node {node.node_id}: {node.disk_problem}",
            "Make room: shorten the retention of large topics (retention.ms, retention.bytes), or add disk.",
            command=command,
            path="/topics",
        )
    elif node.up and _is_nearly_full(node):
        yield alarm(
            "warning",
            f"The disk of node {node.node_id} is nearly full",
            "Shorten the retention of large topics, or give it more disk, before it refuses records.",
            command=command,
            path="/topics",
        )


def _is_nearly_full(node: NodeState) -> bool:
    free, total = node.disk_free_bytes, node.disk_total_bytes
    return free is not None and bool(total) and free / (total or 1) < _NEARLY_FULL


def _partitions(snapshot: Snapshot) -> Iterator[Document]:
    topics = list(snapshot.topics.values())
    yield from _without_leader(topics)
    yield from _under_replicated(topics)


def _without_leader(topics: Sequence[TopicState]) -> Iterator[Document]:
    found = [
        (topic.name, partition.partition)
        for topic in topics
        for partition in topic.partitions.values()
        if partition.leader is None
    ]
    if found:
        yield alarm(
            "error",
            f"{_count(found)} without a leader: nothing can be written to or read from {_names(found)}",
            "Start a node that holds an in-sync replica; those are in the description of the topic.",
            command=f"headrace topics describe {found[0][0]}",
            path=topic_path(found[0][0]),
        )


def _under_replicated(topics: Sequence[TopicState]) -> Iterator[Document]:
    found = [
        (topic.name, partition.partition)
        for topic in sorted(topics, key=lambda each: each.internal or each.name.startswith("__"))
        for partition in topic.partitions.values()
        if partition.under_replicated and partition.leader is not None
    ]
    if found:
        missing = sorted(
            {
                node_id
                for topic in topics
                for partition in topic.partitions.values()
                for node_id in set(partition.replicas) - set(partition.isr)
            }
        )
        nodes = "node " + ", ".join(map(str, missing[:10]))
        yield alarm(
            "warning",
            f"{_count(found)} with fewer in-sync replicas than replicas: {_names(found)}",
            f"See whether {nodes} runs and catches up; until then another failure may make them unavailable.",
            command=f"headrace topics describe {found[0][0]}",
            path=topic_path(found[0][0]),
        )


def _open_transactions(snapshot: Snapshot, topic: TopicState) -> Iterator[Document]:
    for index, details in topic.details.items():
        for producer in details.producers or ():
            seen = producer.last_seen_ms
            if producer.transaction_start is None or seen is None:
                continue
            open_ms = snapshot.at_ms - seen
            if open_ms > _TRANSACTION_LONG_MS:
                yield alarm(
                    "warning",
                    f"A transaction is open in {topic.name} {index} and nothing was written in it for "
                    f"{duration(open_ms)}: read_committed readers stand still at offset "
                    f"{producer.transaction_start}",
                    "See whose it is; abort it when its producer is gone.",
                    command=f"headrace transactions explain {topic.name}",
                    since=seen,
                    path="/transactions",
                )


_TRANSACTION_LONG_MS = 5 * 60_000


def _count(found: Sequence[tuple[str, int]]) -> str:
    return "1 partition" if len(found) == 1 else f"{len(found)} partitions"


def _names(found: Sequence[tuple[str, int]]) -> str:
    words = ", ".join(f"{topic} {partition}" for topic, partition in found[:_NAMED])
    return words + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
