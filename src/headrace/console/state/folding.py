# SPDX-License-Identifier: Apache-2.0
"""Answers of brokers about nodes, topics and offsets, folded into a snapshot. Pure: times are arguments.

Parts that did not change are the same objects afterwards. Read next: event_folding.py, group_folding.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headrace.console.state.model import NodeState, PartitionState, Snapshot, TopicState
from headrace.console.state.polls import DiskPoll, Offsets, TopologyPoll
from headrace.console.state.rates import Rates
from headrace.types import TopicPartition

_NAMED_WHEN_DEAD_MS = 2_000
"""Headrace's Metadata goes on naming a dead node for that long; its events say when it died."""
_NODE_SEEN_LONG_MS = 3_600_000
"""A node that is down and holds no replica is forgotten after an hour."""


def fold_topology(before: Snapshot, poll: TopologyPoll, at_ms: int) -> Snapshot:
    topics = _topics(before.topics, poll)
    return replace(
        before,
        at_ms=at_ms,
        cluster_id=poll.cluster_id or before.cluster_id,
        controller=poll.controller if before.engine == "headrace" else None,
        nodes=_nodes(before, poll, topics, at_ms),
        topics=topics,
        problem=None,
    )


def _topics(before: Mapping[str, TopicState], poll: TopologyPoll) -> Mapping[str, TopicState]:
    merged = {name: _topic(before.get(name), polled) for name, polled in poll.topics.items()}
    if not poll.whole:
        merged = {**before, **merged}
    same = merged.keys() == before.keys() and all(merged[name] is before[name] for name in merged)
    return before if same else dict(sorted(merged.items()))


def _topic(old: TopicState | None, new: TopicState) -> TopicState:
    if old is None or (old.topic_id != new.topic_id and old.topic_id is not None):
        return new
    partitions = {
        index: _partition(old.partitions.get(index), partition) for index, partition in new.partitions.items()
    }
    unchanged = len(partitions) == len(old.partitions) and all(
        partition is old.partitions.get(index) for index, partition in partitions.items()
    )
    if unchanged and old.topic_id == new.topic_id and old.internal == new.internal:
        return old
    return replace(old, topic_id=new.topic_id, internal=new.internal, partitions=partitions)


def _partition(old: PartitionState | None, new: PartitionState) -> PartitionState:
    if old is None:
        return new
    if (old.leader_epoch or -1) > (new.leader_epoch or -1):
        return old  # a node that had not heard of the election yet
    if (old.leader, old.isr, old.replicas, old.offline, old.leader_epoch) == (
        new.leader,
        new.isr,
        new.replicas,
        new.offline,
        new.leader_epoch,
    ):
        return old
    return replace(
        old,
        leader=new.leader,
        leader_epoch=new.leader_epoch,
        replicas=new.replicas,
        isr=new.isr,
        offline=new.offline,
    )


def _nodes(
    before: Snapshot, poll: TopologyPoll, topics: Mapping[str, TopicState], at_ms: int
) -> Mapping[int, NodeState]:
    """Live ones; those seen before; and those that hold replicas, which are down when Metadata lacks them."""
    found = {}
    for node_id, node in poll.nodes.items():
        old = before.nodes.get(node_id)
        just_died = (
            before.records_events and old is not None and _died_after(old, at_ms - _NAMED_WHEN_DEAD_MS)
        )
        found[node_id] = old if old is not None and just_died else _live(old, node, at_ms)
    holding = replica_holders(topics)
    for node_id, node in before.nodes.items():
        recent = node.since_ms is not None and at_ms - node.since_ms < _NODE_SEEN_LONG_MS
        if node_id not in found and (node_id in holding or node.up or recent):
            found[node_id] = node_down(node, at_ms)
    for node_id in holding - found.keys():
        found[node_id] = NodeState(node_id=node_id, host="", port=0, up=False)
    return dict(sorted(found.items()))


def _died_after(node: NodeState | None, at_ms: int) -> bool:
    return node is not None and not node.up and node.since_ms is not None and node.since_ms > at_ms


def replica_holders(topics: Mapping[str, TopicState]) -> set[int]:
    found: set[int] = set()
    for topic in topics.values():
        for partition in topic.partitions.values():
            found.update(partition.replicas)
    return found


def _live(old: NodeState | None, new: NodeState, at_ms: int) -> NodeState:
    if old is None:
        return new
    came_back = not old.up
    return replace(
        old,
        host=new.host,
        port=new.port,
        rack=new.rack,
        up=True,
        since_ms=at_ms if came_back else old.since_ms,
        problem=None if came_back else old.problem,
    )


def node_down(node: NodeState, at_ms: int) -> NodeState:
    return node if not node.up else replace(node, up=False, since_ms=at_ms)


def fold_problems(before: Snapshot, asked: Mapping[int, str | None]) -> Snapshot:
    """What is wrong with nodes that were asked; None: they answered."""
    changed = {
        node_id: replace(node, problem=problem)
        for node_id, problem in asked.items()
        if (node := before.nodes.get(node_id)) is not None and node.problem != problem
    }
    return replace(before, nodes={**before.nodes, **changed}) if changed else before


def fold_disk(before: Snapshot, node_id: int, poll: DiskPoll) -> Snapshot:
    node = before.nodes.get(node_id)
    if node is None:
        return before
    total, free = poll.total_bytes, poll.free_bytes
    used = sum(poll.sizes.values()) if total is None or free is None else total - free
    node = replace(
        node,
        disk_used_bytes=used,
        disk_free_bytes=free,
        disk_total_bytes=total,
        disk_problem=poll.problem or (node.disk_problem if free == 0 or free is None else None),
    )
    led = {
        where: size
        for where, size in poll.sizes.items()
        if (partition := find_partition(before, where)) is not None
        and partition.leader == node_id
        and partition.size_bytes != size
    }
    changed = _changed_partitions(
        before, led, lambda partition, where: replace(partition, size_bytes=led[where])
    )
    return replace(before, nodes={**before.nodes, node_id: node}, topics=changed)


def find_partition(snapshot: Snapshot, where: TopicPartition) -> PartitionState | None:
    topic = snapshot.topics.get(where.topic)
    return None if topic is None else topic.partitions.get(where.partition)


def fold_ends(before: Snapshot, ends: Offsets, at_ms: int, rates: Rates[TopicPartition]) -> Snapshot:
    """Ends of logs and, from those seen before, the records that come in each second."""
    rates.note(ends, at_ms)

    def with_end(partition: PartitionState, where: TopicPartition) -> PartitionState:
        end, rate = ends[where], rates.rate(where)
        if partition.end == end and partition.rate_in == rate:
            return partition
        return replace(partition, end=end, rate_in=rate)

    return replace(before, at_ms=at_ms, topics=_changed_partitions(before, ends, with_end))


def fold_starts(before: Snapshot, starts: Offsets) -> Snapshot:
    def with_start(partition: PartitionState, where: TopicPartition) -> PartitionState:
        return partition if partition.start == starts[where] else replace(partition, start=starts[where])

    return replace(before, topics=_changed_partitions(before, starts, with_start))


def fold_last_stable(before: Snapshot, offsets: Offsets) -> Snapshot:
    def with_offset(partition: PartitionState, where: TopicPartition) -> PartitionState:
        same = partition.last_stable == offsets[where]
        return partition if same else replace(partition, last_stable=offsets[where])

    return replace(before, topics=_changed_partitions(before, offsets, with_offset))


def _changed_partitions(
    before: Snapshot, wanted: Offsets, change: Callable[[PartitionState, TopicPartition], PartitionState]
) -> Mapping[str, TopicState]:
    """The topics, with a changed copy of each partition for which `change` returns another object."""
    by_topic: dict[str, dict[int, PartitionState]] = {}
    for where in wanted:
        partition = find_partition(before, where)
        if partition is not None and (new := change(partition, where)) is not partition:
            by_topic.setdefault(where.topic, {})[where.partition] = new
    if not by_topic:
        return before.topics
    changed = {
        name: replace(before.topics[name], partitions={**before.topics[name].partitions, **partitions})
        for name, partitions in by_topic.items()
    }
    return {**before.topics, **changed}
