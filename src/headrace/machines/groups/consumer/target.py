# SPDX-License-Identifier: Apache-2.0
"""Computes the target assignment from subscriptions and topics.

Pure functions over a group's state and the cluster metadata. Read next: assignors/uniform.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from headrace.assignors import range as range_assignor
from headrace.assignors import uniform
from headrace.assignors.subscriptions import Assignment, Subscriber
from headrace.machines.groups.consumer.member import Member, Partitions
from headrace.machines.groups.consumer.state import ConsumerGroupState
from headrace.types import ClusterView, TopicId

Assignor = Callable[[Iterable[Subscriber[int]], Mapping[int, int]], Assignment[int]]

ASSIGNORS: Mapping[str, Assignor] = {
    uniform.NAME: uniform.reassign,
    range_assignor.NAME: range_assignor.assign,
}
"""What they do not name stays as it is."""

_NOTHING: Partitions = {}
_GONE = -1
"""In place of the rank of a topic that does not exist any more, or that nobody subscribes to."""


def metadata_hash(topics: Iterable[str], view: ClusterView) -> int:
    """Changes when a subscribed topic appears, goes, comes back as another one, or gets partitions.

    0 when none exists. Not Apache Kafka's function: a group taken over from its log has one rebalance more.
    """
    digest = hashlib.blake2b(digest_size=8)
    nothing = True
    for name in sorted(topics):
        topic = view.topics.get(name)
        if topic is not None:
            nothing = False
            digest.update(topic.topic_id.bytes + len(topic.partitions).to_bytes(4, "big"))
    return 0 if nothing else int.from_bytes(digest.digest(), "big", signed=True)


def subscribed_topic_ids(member: Member, state: ConsumerGroupState, view: ClusterView) -> frozenset[TopicId]:
    """The existing topics a member subscribes to; an expression not yet resolved matches none."""
    names = set(member.metadata.subscribed_topic_names)
    if member.regex is not None and (resolved := state.resolved.get(member.regex)) is not None:
        names.update(resolved.topics)
    return frozenset(view.topics[name].topic_id for name in names if name in view.topics)


def preferred_assignor(state: ConsumerGroupState, configured: Sequence[str]) -> str:
    """The assignor most members request, ties by name; the first configured one when none is requested."""
    counts = {name: count for name, count in state.server_assignors().items() if name in configured}
    return min(counts, key=lambda name: (-counts[name], name)) if counts else configured[0]


def compute_target(state: ConsumerGroupState, view: ClusterView, assignor: str) -> dict[str, Partitions]:
    """The targets that differ from the last ones."""
    subscriptions = [
        (member.metadata.subscribed_topic_names, member.regex) for member in state.members.values()
    ]
    topics_of: dict[tuple[tuple[str, ...], str | None], frozenset[TopicId]] = {}
    for subscription, member in zip(subscriptions, state.members.values(), strict=True):
        if subscription not in topics_of:
            topics_of[subscription] = subscribed_topic_ids(member, state, view)
    # Assignors compare and hash topics often: ranks are far cheaper than ids.
    ids = sorted(frozenset[TopicId]().union(*topics_of.values()))
    ranks = {topic_id: rank for rank, topic_id in enumerate(ids)}
    ranked = {subscription: {ranks[topic] for topic in topics} for subscription, topics in topics_of.items()}
    target = state.target
    subscribers = [
        Subscriber(
            member_id=member_id,
            topics=ranked[subscription],
            instance_id=member.instance_id,
            owned={
                ranks.get(topic_id, _GONE): partitions
                for topic_id, partitions in target.get(member_id, _NOTHING).items()
            },
        )
        for subscription, (member_id, member) in zip(subscriptions, state.members.items(), strict=True)
    ]
    counts = {
        rank: len(view.topics[view.topic_names[topic_id]].partitions) for topic_id, rank in ranks.items()
    }
    found = {
        member_id: {ids[rank]: frozenset(partitions) for rank, partitions in topics.items()}
        for member_id, topics in ASSIGNORS[assignor](subscribers, counts).items()
    }
    return {member_id: share for member_id, share in found.items() if target.get(member_id) != share}
