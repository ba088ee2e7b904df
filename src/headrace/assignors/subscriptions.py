# SPDX-License-Identifier: Apache-2.0
"""Input and output of the assignors. Topics are names (clients) or ids (the broker).

Assignors are pure functions `assign(subscribers, partition_counts) -> Assignment` and import nothing of ours.
Read next: range.py, round_robin.py, sticky.py, uniform.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=Any)

NO_GENERATION = -1


@dataclass(slots=True, kw_only=True)  # not frozen, for speed: the coordinator makes one of every member
class Subscriber(Generic[T]):
    """A member of the group. `owned` and `generation` are used by the sticky assignors."""

    member_id: str
    topics: Collection[T]
    instance_id: str | None = None
    owned: Mapping[T, Collection[int]] = field(default_factory=dict)
    generation: int = NO_GENERATION
    """Generation of `owned`; an older claim to a partition loses."""


Assignment = dict[str, dict[T, list[int]]]
"""By member id, then topic: partitions in rising order. Every member has an entry, no topic an empty one."""


def in_kafka_order(subscribers: Iterable[Subscriber[T]]) -> list[Subscriber[T]]:
    """Static members first, by instance id; then the others by member id, compared as Java compares."""
    return sorted(
        subscribers,
        key=lambda member: (
            (0, _java_order(member.instance_id))
            if member.instance_id is not None
            else (1, _java_order(member.member_id))
        ),
    )


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def subscribers_by_topic(
    subscribers: Sequence[Subscriber[T]], partition_counts: Mapping[T, int]
) -> dict[T, list[Subscriber[T]]]:
    """Existing topics with subscribers, in order, each with its subscribers in order."""
    found: dict[T, list[Subscriber[T]]] = {}
    for member in subscribers:
        for topic in set(member.topics):
            if topic in partition_counts:
                found.setdefault(topic, []).append(member)
    return {topic: found[topic] for topic in sorted(found)}


def as_assignment(
    subscribers: Iterable[Subscriber[T]], holders: Mapping[str, Iterable[tuple[T, int]]]
) -> Assignment[T]:
    assignment: Assignment[T] = {}
    for member in subscribers:
        topics = assignment[member.member_id] = {}
        for topic, partition in sorted(holders[member.member_id]):
            topics.setdefault(topic, []).append(partition)
    return assignment
