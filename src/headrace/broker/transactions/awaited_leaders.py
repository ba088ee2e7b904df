# SPDX-License-Identifier: Apache-2.0
"""Markers that wait to be sent again, by partition: a view with another leader of it ends their wait.

The backoff of a machine may be longer than an election took, and the transaction's producer and readers wait
for the marker. This only makes a retry earlier: what is forgotten here is sent when its backoff is over.
Read next: marker_sender.py, machines/transactions/markers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.machines.transactions.events import LeaderElected
from headrace.machines.transactions.markers import LONGEST_BACKOFF_MS
from headrace.types import ClusterView, TopicPartition
from headrace.world import Clock

OnElected = Callable[[LeaderElected], None]

_FORGOTTEN_AFTER_S = 2 * LONGEST_BACKOFF_MS / 1000
"""A machine that still exists has sent the marker again by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    number: int
    tell: OnElected
    since: float


class AwaitedLeaders:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[TopicPartition, dict[int, _Waiting]] = {}
        """By partition and producer id."""

    def add(self, name: TopicPartition, producer_id: int, number: int, tell: OnElected) -> None:
        waiting = _Waiting(number=number, tell=tell, since=self._clock.monotonic())
        self._waiting.setdefault(name, {})[producer_id] = waiting

    def remove(self, names: Iterable[TopicPartition], producer_id: int) -> None:
        """They are sent again."""
        if not self._waiting:
            return
        for name in names:
            of_partition = self._waiting.get(name, {})
            if of_partition.pop(producer_id, None) is not None and not of_partition:
                del self._waiting[name]

    def take_elected(self, old: ClusterView, new: ClusterView) -> list[tuple[OnElected, LeaderElected]]:
        """Those whose partition has another leader in the new view, and whom to tell."""
        found = []
        oldest = self._clock.monotonic() - _FORGOTTEN_AFTER_S
        for name, of_partition in list(self._waiting.items()):
            leader = live_leader(new, name)
            if leader is not None and leader != live_leader(old, name):
                found += [
                    (each.tell, LeaderElected(number=each.number, partition=name))
                    for each in of_partition.values()
                ]
                del self._waiting[name]
            elif all(each.since < oldest for each in of_partition.values()):
                del self._waiting[name]
        return found


def live_leader(view: ClusterView, name: TopicPartition) -> tuple[int, int, int] | None:
    """Node, leader epoch and node epoch; None: nobody leads it, or the leader is not registered."""
    topic = view.topics.get(name.topic)
    if topic is None or not 0 <= name.partition < len(topic.partitions):
        return None
    state = topic.partitions[name.partition]
    node = view.nodes.get(state.leader)
    return None if node is None else (state.leader, state.leader_epoch, node.epoch)
