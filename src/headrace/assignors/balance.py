# SPDX-License-Identifier: Apache-2.0
"""Balancing for the sticky assignors: as even as the subscriptions allow, with few moved partitions.

When all members subscribe to the same topics, no balanced assignment moves fewer partitions. Otherwise,
loads are still as even as possible (no chain of moves from a member to one with two fewer remains), and a
chain moves partitions that have to move anyway before others. Read next: sticky.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic

from headrace.assignors.subscriptions import (
    Assignment,
    Subscriber,
    T,
    as_assignment,
    subscribers_by_topic,
)


def balance(
    members: Sequence[Subscriber[T]], partition_counts: Mapping[T, int], owners: Mapping[tuple[T, int], str]
) -> Assignment[T]:
    """Balance the partitions. `members` in order of preference; `owners`: current owner by partition."""
    topics = subscribers_by_topic(members, partition_counts)
    if not topics:
        return {member.member_id: {} for member in members}
    kept = _still_valid(topics, partition_counts, owners)
    free = [
        (topic, partition)
        for topic in topics
        for partition in range(partition_counts[topic])
        if (topic, partition) not in kept
    ]
    if all(len(topic_members) == len(members) for topic_members in topics.values()):
        return _share_evenly(members, kept, free)
    return _Uneven(members, topics, kept).assign(free)


def _still_valid(
    topics: Mapping[T, Sequence[Subscriber[T]]],
    partition_counts: Mapping[T, int],
    owners: Mapping[tuple[T, int], str],
) -> dict[tuple[T, int], str]:
    subscribed = {topic: {member.member_id for member in members} for topic, members in topics.items()}
    return {
        (topic, partition): owner
        for (topic, partition), owner in owners.items()
        if topic in topics and partition < partition_counts[topic] and owner in subscribed[topic]
    }


def _share_evenly(
    members: Sequence[Subscriber[T]], kept: Mapping[tuple[T, int], str], free: list[tuple[T, int]]
) -> Assignment[T]:
    held: dict[str, list[tuple[T, int]]] = {member.member_id: [] for member in members}
    for partition in sorted(kept):
        held[kept[partition]].append(partition)
    quotas = _quotas({member_id: len(owned) for member_id, owned in held.items()}, len(kept) + len(free))
    for member_id, owned in held.items():
        free.extend(owned[quotas[member_id] :])
        del owned[quotas[member_id] :]
    _hand_out(free, held, quotas)
    return as_assignment(members, held)


def changed_shares(
    members: Sequence[Subscriber[T]], partition_counts: Mapping[T, int]
) -> Assignment[T] | None:
    """What `balance` gives to those who do not keep what they have, or have nothing, where all want the same
    and nothing is claimed twice. Set by set instead of partition by partition. None elsewhere."""
    if not members:
        return None
    topics = members[0].topics
    if any(member.topics is not topics and member.topics != topics for member in members):
        return None
    wanted = {topic for topic in topics if topic in partition_counts}
    if any(not member.owned.keys() <= wanted for member in members):
        return None
    free: list[tuple[T, int]] = []
    for topic in wanted:
        shares = [member.owned[topic] for member in members if topic in member.owned]
        claimed, existing = set[int]().union(*shares), set(range(partition_counts[topic]))
        if len(claimed) < sum(map(len, shares)) or not claimed <= existing:
            return None
        free += [(topic, partition) for partition in existing - claimed]
    loads = {member.member_id: sum(map(len, member.owned.values())) for member in members}
    quotas = _quotas(loads, sum(loads.values()) + len(free))
    changed = [
        member
        for member in members
        if loads[member.member_id] != quotas[member.member_id] or not loads[member.member_id]
    ]
    held: dict[str, list[tuple[T, int]]] = {}
    for member in changed:
        quota = quotas[member.member_id]
        owned = sorted([(topic, part) for topic, parts in member.owned.items() for part in parts])
        free += owned[quota:]
        held[member.member_id] = owned[:quota]
    _hand_out(free, held, quotas)
    return as_assignment(changed, held)


def _hand_out(
    free: list[tuple[T, int]], held: dict[str, list[tuple[T, int]]], quotas: Mapping[str, int]
) -> None:
    """Assign in turn, so that adjacent partitions of a topic go to different members."""
    waiting = [member_id for member_id in held if len(held[member_id]) < quotas[member_id]]
    turn = 0
    for partition in sorted(free):
        turn %= len(waiting)
        member_id = waiting[turn]
        held[member_id].append(partition)
        if len(held[member_id]) == quotas[member_id]:
            del waiting[turn]
        else:
            turn += 1


def _quotas(loads: Mapping[str, int], total: int) -> dict[str, int]:
    """Quota of each member. Members that own more than the even share get the larger quotas first."""
    share, extra = divmod(total, len(loads))
    quotas = dict.fromkeys(loads, share)
    fuller_first = sorted(loads, key=lambda member_id: loads[member_id] <= share)
    for member_id in fuller_first[:extra]:
        quotas[member_id] += 1
    return quotas


class _Uneven(Generic[T]):
    """Members with different subscriptions: assign to the least loaded, then balance by chains of moves."""

    def __init__(
        self,
        members: Sequence[Subscriber[T]],
        topics: Mapping[T, Sequence[Subscriber[T]]],
        kept: Mapping[tuple[T, int], str],
    ) -> None:
        self._members = members
        self._home = kept
        self._subscribers = {topic: [m.member_id for m in found] for topic, found in topics.items()}
        self._held: dict[str, dict[T, set[int]]] = {member.member_id: {} for member in members}
        self._loads = dict.fromkeys(self._held, 0)
        self._rank = {member.member_id: rank for rank, member in enumerate(members)}
        for (topic, partition), owner in kept.items():
            self._give(owner, topic, partition)

    def assign(self, free: list[tuple[T, int]]) -> Assignment[T]:
        # Topics with few subscribers leave no choice, so they come first.
        for topic, partition in sorted(free, key=lambda item: (len(self._subscribers[item[0]]), item)):
            self._give(min(self._subscribers[topic], key=self._emptiest), topic, partition)
        while self._even_out_once():
            pass
        while self._bring_one_home():
            pass
        holders = {member_id: list(self._partitions_of(member_id)) for member_id in self._held}
        return as_assignment(self._members, holders)

    def _partitions_of(self, member_id: str) -> Iterator[tuple[T, int]]:
        return ((topic, part) for topic, found in self._held[member_id].items() for part in found)

    def _emptiest(self, member_id: str) -> tuple[int, int]:
        return self._loads[member_id], self._rank[member_id]

    def _give(self, member_id: str, topic: T, partition: int) -> None:
        self._held[member_id].setdefault(topic, set()).add(partition)
        self._loads[member_id] += 1

    def _take(self, member_id: str, topic: T, partition: int) -> None:
        self._held[member_id][topic].remove(partition)
        if not self._held[member_id][topic]:
            del self._held[member_id][topic]
        self._loads[member_id] -= 1

    def _even_out_once(self) -> bool:
        """Move along one chain from the most loaded member that has one; False when none remains."""
        fewest = min(self._loads.values())
        exhausted: set[str] = set()
        for giver in sorted(self._loads, key=self._emptiest, reverse=True):
            if self._loads[giver] - fewest < 2:
                return False
            if giver in exhausted:
                continue
            chain = self._chain_from(giver, exhausted)
            if chain:
                for holder, receiver, topic, partition in chain:
                    self._take(holder, topic, partition)
                    self._give(receiver, topic, partition)
                return True
        return False

    def _bring_one_home(self) -> bool:
        """Swap two partitions, with unchanged loads, if that returns one to its former owner."""
        for holder in self._held:
            for topic, partition in self._partitions_of(holder):
                home = self._home.get((topic, partition), holder)
                if home != holder and self._swap(holder, home, topic, partition):
                    return True
        return False

    def _swap(self, holder: str, home: str, topic: T, partition: int) -> bool:
        for other_topic, other in self._partitions_of(home):
            if holder in self._subscribers[other_topic] and self._home.get((other_topic, other)) != home:
                self._take(holder, topic, partition)
                self._take(home, other_topic, other)
                self._give(holder, other_topic, other)
                self._give(home, topic, partition)
                return True
        return False

    def _chain_from(self, giver: str, exhausted: set[str]) -> list[tuple[str, str, T, int]]:
        """The cheapest chain of moves to a member that has two fewer partitions, first move first.

        Where there is none, everyone it led to is exhausted too: from there one gets no further, and they
        have no more to give than the giver.
        """
        enough = self._loads[giver] - 2
        reached: dict[str, tuple[str, T, int]] = {}
        queue: list[tuple[int, int, int, str]] = [(0, 0, 0, giver)]
        costs = {giver: 0}
        while queue:
            cost, _load, _rank, member_id = heapq.heappop(queue)
            if cost > costs[member_id]:
                continue
            if self._loads[member_id] <= enough:
                return self._walk_back(giver, member_id, reached)
            for receiver, topic, partition, price in self._moves_from(member_id):
                if cost + price < costs.get(receiver, cost + price + 1):
                    costs[receiver] = cost + price
                    reached[receiver] = (member_id, topic, partition)
                    load, rank = self._emptiest(receiver)
                    heapq.heappush(queue, (cost + price, load, rank, receiver))
        exhausted.update(costs)
        return []

    def _moves_from(self, member_id: str) -> list[tuple[str, T, int, int]]:
        """For each possible receiver: the cheapest partition to move to it, and its cost."""
        best: dict[str, tuple[int, T, int]] = {}
        for topic, partitions in self._held[member_id].items():
            away = [partition for partition in partitions if self._home.get((topic, partition)) != member_id]
            offer = (1, topic, max(away)) if away else (2, topic, max(partitions))
            for receiver in self._subscribers[topic]:
                if receiver != member_id and offer < best.get(receiver, (3, topic, 0)):
                    best[receiver] = offer
        return [(receiver, topic, partition, price) for receiver, (price, topic, partition) in best.items()]

    @staticmethod
    def _walk_back(
        giver: str, last: str, reached: Mapping[str, tuple[str, T, int]]
    ) -> list[tuple[str, str, T, int]]:
        chain = []
        while last != giver:
            holder, topic, partition = reached[last]
            chain.append((holder, last, topic, partition))
            last = holder
        return chain[::-1]
