# SPDX-License-Identifier: Apache-2.0
"""Detects the first fetch of a group member from a newly assigned partition (D21).

A fetch does not name its group. It is attributed to a member that owns the partition and has the client id
and address of the fetch, when no owner in another group has the same; otherwise to none. Only partitions
assigned within the last minute are considered; while there are none, a fetch costs one check.
Read next: group_timeline.py, handlers/fetch.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.broker.partition.fetch_sessions import FetchEntry
from headrace.machines.groups.group import Group
from headrace.types import TopicId, TopicPartition
from headrace.wire.coordinator.consumer_protocol import PROTOCOL_TYPE, assigned_partitions

WAIT_S = 60.0

Identity = tuple[str, str]
"""Client id and address of a member, and of a fetch."""


class Owner(NamedTuple):
    member_id: str
    identity: Identity


Holdings = Mapping[Owner, frozenset[TopicPartition]]


class FirstFetch(NamedTuple):
    """The partitions that a member fetched for the first time in one request, each with the offset."""

    group_id: str
    member_id: str
    partitions: list[tuple[TopicPartition, int]]


class FirstFetches:
    def __init__(self) -> None:
        self.waiting: dict[TopicPartition, dict[str, float]] = {}
        """By partition and group: until when a first fetch of its owner is expected."""
        self._owners: dict[TopicPartition, dict[str, Owner]] = {}
        self._held: dict[str, dict[str, frozenset[TopicPartition]]] = {}
        """By group and member."""
        self._timed_out: dict[Identity, float] = {}
        """Members that timed out may still fetch, which must not count as the fetch of their successor."""

    # Owners

    def assigned(self, group_id: str, held: Holdings, now: float | None) -> None:
        """The present assignment of these members; that of other members stays.

        `now` None: it dates from before this node started, and no first fetch is expected.
        """
        for owner, partitions in held.items():
            before = self._held.setdefault(group_id, {}).get(owner.member_id, frozenset())
            for partition in before - partitions:
                self._forget(group_id, partition, owner.member_id)
            for partition in partitions - before:
                self._owners.setdefault(partition, {})[group_id] = owner
                if now is not None:
                    self.waiting.setdefault(partition, {})[group_id] = now + WAIT_S
            self._held[group_id][owner.member_id] = partitions

    def left(self, group_id: str, member_id: str, *, timed_out: bool, now: float) -> None:
        for partition in self._held.get(group_id, {}).pop(member_id, ()):
            owner = self._owners.get(partition, {}).get(group_id)
            if owner is not None and owner.member_id == member_id and timed_out:
                self._timed_out[owner.identity] = now + WAIT_S
            self._forget(group_id, partition, member_id)

    def gone(self, group_id: str) -> None:
        for member_id in list(self._held.get(group_id, ())):
            self.left(group_id, member_id, timed_out=False, now=0.0)
        self._held.pop(group_id, None)

    def _forget(self, group_id: str, partition: TopicPartition, member_id: str) -> None:
        """Unless another member owns it now."""
        owners = self._owners.get(partition, {})
        if group_id in owners and owners[group_id].member_id == member_id:
            del owners[group_id]
            if not owners:
                del self._owners[partition]
            self._stop_waiting(partition, group_id)

    def _stop_waiting(self, partition: TopicPartition, group_id: str) -> None:
        groups = self.waiting.get(partition)
        if groups is not None:
            groups.pop(group_id, None)
            if not groups:
                del self.waiting[partition]

    def forget_old(self, now: float) -> None:
        for partition, groups in list(self.waiting.items()):
            for group_id in [group_id for group_id, until in groups.items() if until <= now]:
                self._stop_waiting(partition, group_id)
        self._timed_out = {who: until for who, until in self._timed_out.items() if until > now}

    # Fetches

    def fetched(
        self, identity: Identity, entries: Iterable[FetchEntry], topic_names: Mapping[TopicId, str]
    ) -> list[FirstFetch]:
        """The members for which this is the first fetch, with the partitions."""
        found: dict[tuple[str, str], FirstFetch] = {}
        for entry in entries if identity not in self._timed_out else ():
            name = entry.name if entry.topic_id is None else topic_names.get(entry.topic_id)
            partition = TopicPartition(name or "", entry.partition.index)
            if partition not in self.waiting:
                continue
            groups = [g for g, owner in self._owners[partition].items() if owner.identity == identity]
            if len(groups) == 1 and groups[0] in self.waiting[partition]:
                group_id, member_id = groups[0], self._owners[partition][groups[0]].member_id
                self._stop_waiting(partition, group_id)
                first = found.setdefault((group_id, member_id), FirstFetch(group_id, member_id, []))
                first.partitions.append((partition, entry.partition.fetch_offset))
        return list(found.values())


def holdings(group: Group, topic_names: Mapping[TopicId, str], member_id: str | None = None) -> Holdings:
    """Assigned partitions of the members of a group, or of one; empty for other protocol types."""
    state = group.consumer_state
    if state is not None:
        chosen = state.members.values() if member_id is None else filter(None, [state.members.get(member_id)])
        return {
            Owner(member.member_id, (member.metadata.client_id, member.metadata.client_host)): frozenset(
                TopicPartition(topic_names[topic_id], index)
                for topic_id, indexes in member.assigned.items()
                if topic_id in topic_names
                for index in indexes
            )
            for member in chosen
        }
    recorded = group.classic.state.recorded
    if recorded is None or recorded.protocol_type != PROTOCOL_TYPE:
        return {}
    return {
        Owner(member.member_id, (member.client_id, member.client_host)): frozenset(
            TopicPartition(topic, index)
            for topic, indexes in assigned_partitions(member.assignment).items()
            for index in indexes
        )
        for member in recorded.members
    }
