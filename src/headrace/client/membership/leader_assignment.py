# SPDX-License-Identifier: Apache-2.0
"""The group leader's assignment in a classic group, by the assignor that the group chose.

Decodes subscriptions and encodes assignments; the assignors are in ../../assignors. Read next: classic.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.assignors import range as range_assignor
from headrace.assignors import round_robin, sticky
from headrace.assignors.subscriptions import Assignment, Subscriber
from headrace.client.errors import ClientError
from headrace.client.membership.topic_watch import TopicWatch
from headrace.errors import DecodeError
from headrace.wire.coordinator.consumer_protocol import decode_subscription, encode_assignment

COOPERATIVE = sticky.COOPERATIVE_NAME

_ASSIGNORS: Mapping[str, Callable[[list[Subscriber[str]], Mapping[str, int]], Assignment[str]]] = {
    range_assignor.NAME: range_assignor.assign,
    round_robin.NAME: round_robin.assign,
    COOPERATIVE: sticky.assign_cooperatively,
}
_OFFERED = (range_assignor.NAME, round_robin.NAME)
"""Offered by default: nearly every client has them, so members can agree on one."""


def offered_assignors(chosen: str | None) -> tuple[str, ...]:
    if chosen is None:
        return _OFFERED
    if chosen not in _ASSIGNORS:
        raise ClientError(
            f"{chosen!r} is not an assignor of classic groups",
            next_step=f"use one of {', '.join(_ASSIGNORS)}",
        )
    return (chosen,)


async def assign_for_all(joined: Any, watch: TopicWatch) -> tuple[dict[str, bytes], dict[str, int]]:
    """(assignments by member id; partition counts of all subscribed topics)."""
    subscribers = [_subscriber(member) for member in joined.members]
    wanted = {topic for subscriber in subscribers for topic in subscriber.topics}
    watch.also(wanted)
    await watch.refresh()
    counts = watch.counts(wanted)
    assignments = _ASSIGNORS[str(joined.protocol_name)](subscribers, counts)
    return {member_id: encode_assignment(assigned) for member_id, assigned in assignments.items()}, counts


def _subscriber(member: Any) -> Subscriber[str]:
    try:
        subscription = decode_subscription(bytes(member.metadata))
    except DecodeError as error:
        raise ClientError(f"member {member.member_id!r} of the group sent {error}") from error
    return Subscriber(
        member_id=str(member.member_id),
        instance_id=getattr(member, "group_instance_id", None),
        topics=subscription.topics,
        owned=subscription.owned,
        generation=subscription.generation,
    )
