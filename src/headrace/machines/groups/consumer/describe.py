# SPDX-License-Identifier: Apache-2.0
"""Builds the ConsumerGroupDescribe reply of a KIP-848 group; read-only. Read next: consumer/group.py."""

from __future__ import annotations

from headrace.machines.groups.consumer.events import ConsumerGroupDescription, DescribedConsumer
from headrace.machines.groups.consumer.member import Member, Partitions
from headrace.machines.groups.consumer.state import ConsumerGroupState
from headrace.machines.groups.topic_names import by_topic_name
from headrace.types import ClusterView


def describe(state: ConsumerGroupState, view: ClusterView, assignor: str) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        group_id=state.group_id,
        state=state.state,
        group_epoch=state.group_epoch,
        assignment_epoch=state.assignment_epoch,
        assignor=assignor,
        members=tuple(
            _described(member, state.target.get(member_id, {}), view)
            for member_id, member in sorted(state.members.items())
        ),
    )


def _described(member: Member, target: Partitions, view: ClusterView) -> DescribedConsumer:
    metadata = member.metadata
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.member_epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=metadata.subscribed_topic_names,
        subscribed_topic_regex=metadata.subscribed_topic_regex,
        assignment=by_topic_name(member.held, view),
        target=by_topic_name(target, view),
        member_type=0 if member.uses_classic_protocol else 1,
    )
