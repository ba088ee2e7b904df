"""Heartbeats of connected members, while a test moves the broker's time and not the clients'.

Read next: broker.py (`advance`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.machines.groups.consumer.events import ConsumerGroupHeartbeat
from headrace.machines.groups.events import Heartbeat
from headrace.machines.groups.group import Group
from headrace.machines.machine import Event, ReplyToken

MakeEvent = Callable[[ReplyToken], Event]
_HEARTBEAT, _CONSUMER_HEARTBEAT = 4, 1
"""API versions."""


def send_heartbeats(groups: GroupCoordinator, expired: Collection[str]) -> None:
    """For every member but those whose client id, member id or group id is in `expired`."""
    for group in list(groups.groups()):
        if group.group_id in expired:
            continue
        for make_event in (*_classic(group, expired), *_consumer(group, expired)):
            groups.submit(group.group_id, make_event, lambda _: None)


def _classic(group: Group, expired: Collection[str]) -> list[MakeEvent]:
    generation = group.classic.membership.generation

    def heartbeat(member_id: str, instance_id: str | None) -> MakeEvent:
        return lambda token: Heartbeat(
            token=token,
            version=_HEARTBEAT,
            member_id=member_id,
            group_instance_id=instance_id,
            generation=generation,
        )

    return [
        heartbeat(member.member_id, member.group_instance_id)
        for member in group.describe().members
        if not {member.client_id, member.member_id} & set(expired)
    ]


def _consumer(group: Group, expired: Collection[str]) -> list[MakeEvent]:
    described = group.describe_consumer_group()
    if described is None:
        return []

    def heartbeat(member_id: str, instance_id: str | None, epoch: int, classic: bool) -> MakeEvent:
        if classic:
            return lambda token: Heartbeat(
                token=token,
                version=_HEARTBEAT,
                member_id=member_id,
                group_instance_id=instance_id,
                generation=epoch,
            )
        return lambda token: ConsumerGroupHeartbeat(
            token=token,
            version=_CONSUMER_HEARTBEAT,
            member_id=member_id,
            instance_id=instance_id,
            member_epoch=epoch,
        )

    return [
        heartbeat(member.member_id, member.instance_id, member.member_epoch, member.member_type == 0)
        for member in described.members
        if not {member.client_id, member.member_id} & set(expired)
    ]
