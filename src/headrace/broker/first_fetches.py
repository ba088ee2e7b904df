"""When a member of a group first reads from a partition that it was given (D21).

A fetch does not say for which group it reads. It is taken for a member's when the member owns the partition
and its client id and address are those of the fetch, and no owner in another group has the same; where that
cannot be told apart, nothing is told. Only partitions that were given out within the last minute are looked
at; while there are none, a fetch pays for one test. Read next: group_timeline.py, handlers/fetch.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.broker.fetch_sessions import FetchEntry
from headrace.machines.consumer_protocol import PROTOCOL_TYPE, assigned_partitions
from headrace.machines.group import Group
from headrace.types import TopicId, TopicPartition

WAIT_S = 60.0

Identity = tuple[str, str]
"""Client id and address, as a member joins with them and as a fetch comes with them."""


class Owner(NamedTuple):
    member_id: str
    identity: Identity


Holdings = Mapping[Owner, frozenset[TopicPartition]]


class FirstFetch(NamedTuple):
    """The partitions that one fetch of a member read for the first time, each with the offset."""

    group_id: str
    member_id: str
    partitions: list[tuple[TopicPartition, int]]


class FirstFetches:
    def __init__(self) -> None:
        self.waiting: dict[TopicPartition, dict[str, float]] = {}
        """By group: when it is waited no longer for its owner to fetch."""
        self._owners: dict[TopicPartition, dict[str, Owner]] = {}
        self._held: dict[str, dict[str, frozenset[TopicPartition]]] = {}
        """By group and member."""
        self._doubtful: dict[Identity, float] = {}
        """Who timed out may live on and go on fetching, and is not to be taken for its successor."""

    # Who owns what

    def given(self, group_id: str, held: Holdings, now: float | None) -> None:
        """What these members of the group hold now; members that are not named hold what they held.

        Without a time: they have held it since before this node started, and no first fetch is waited for.
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
                self._doubtful[owner.identity] = now + WAIT_S
            self._forget(group_id, partition, member_id)

    def gone(self, group_id: str) -> None:
        for member_id in list(self._held.get(group_id, ())):
            self.left(group_id, member_id, timed_out=False, now=0.0)
        self._held.pop(group_id, None)

    def _forget(self, group_id: str, partition: TopicPartition, member_id: str) -> None:
        """Unless it is somebody else's by now."""
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
        self._doubtful = {who: until for who, until in self._doubtful.items() if until > now}

    # Fetches

    def fetched(
        self, identity: Identity, entries: Iterable[FetchEntry], topic_names: Mapping[TopicId, str]
    ) -> list[FirstFetch]:
        """Which members this fetch was the first of, and for what."""
        found: dict[tuple[str, str], FirstFetch] = {}
        for entry in entries if identity not in self._doubtful else ():
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
    """What each member of a group holds, or one of them. Nothing where the protocol is not the consumers'."""
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
