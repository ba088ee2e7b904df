# SPDX-License-Identifier: Apache-2.0
"""Heartbeats of connected members, while a test moves the broker's time and not the clients'.

Read next: broker.py (`advance`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.machines.groups.consumer.events import ConsumerGroupHeartbeat, DescribedConsumer
from headrace.machines.groups.events import Heartbeat
from headrace.machines.groups.group import Group
from headrace.machines.machine import Event, ReplyToken

MakeEvent = Callable[[ReplyToken], Event]
_CLASSIC_VERSION, _CONSUMER_VERSION = 4, 1
_CLASSIC_MEMBER = 0


def send_heartbeats(groups: GroupCoordinator, expired: Collection[str]) -> None:
    """For every member but those whose client id, member id or group id is in `expired`."""
    for group in list(groups.groups()):
        if group.group_id not in expired:
            for make_event in (*_classic(group, expired), *_consumer(group, expired)):
                groups.submit(group.group_id, make_event, lambda _: None)


def client_ids(group: Group) -> Iterator[str]:
    """Of the members."""
    described = group.describe_consumer_group()
    for member in described.members if described is not None else group.describe().members:
        yield member.client_id


def _classic(group: Group, expired: Collection[str]) -> Iterator[MakeEvent]:
    generation = group.classic.membership.generation
    for member in group.describe().members:
        if member.client_id not in expired and member.member_id not in expired:
            yield _heartbeat(member.member_id, member.group_instance_id, generation)


def _consumer(group: Group, expired: Collection[str]) -> Iterator[MakeEvent]:
    described = group.describe_consumer_group()
    for member in described.members if described is not None else ():
        if member.client_id in expired or member.member_id in expired:
            continue
        if member.member_type == _CLASSIC_MEMBER:
            yield _heartbeat(member.member_id, member.instance_id, member.member_epoch)
        else:
            yield _consumer_heartbeat(member)


def _heartbeat(member_id: str, instance_id: str | None, generation: int) -> MakeEvent:
    return lambda token: Heartbeat(
        token=token,
        version=_CLASSIC_VERSION,
        member_id=member_id,
        group_instance_id=instance_id,
        generation=generation,
    )


def _consumer_heartbeat(member: DescribedConsumer) -> MakeEvent:
    return lambda token: ConsumerGroupHeartbeat(
        token=token,
        version=_CONSUMER_VERSION,
        member_id=member.member_id,
        instance_id=member.instance_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
    )
