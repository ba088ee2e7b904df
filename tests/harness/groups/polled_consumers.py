# SPDX-License-Identifier: Apache-2.0
"""Consumers of one group (confluent-kafka), polled in turn by one thread; all callbacks in one order.

A partition that is given to a second consumer while the first one has it fails at once. Works against any
Kafka; knows no node. Used by the drawn cases and the compatibility tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

TIMEOUT_S = 30
QUIET_S = 0.3
"""A group is stable when nothing has changed for this long."""
_POLL_S = 0.01
_NOT_DOTTED = frozenset({"on_commit"})
"""A setting of the Python client itself."""

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
}
"""Settings of a node whose groups do not make tests wait."""

PartitionKey = tuple[str, int]


class RebalanceEvent(NamedTuple):
    """A call of a rebalance listener."""

    consumer: str
    kind: str
    """assigned, revoked or lost."""
    keys: frozenset[PartitionKey]


@dataclass(slots=True, kw_only=True)
class PolledConsumer:
    name: str
    consumer: Consumer
    owned: set[PartitionKey] = field(default_factory=set)
    records: list[Message] = field(default_factory=list)

    @property
    def partitions(self) -> list[int]:
        """Of a consumer of one topic."""
        return sorted(partition for _, partition in self.owned)


class PolledGroup:
    """Use as a context manager: whoever is still there leaves at the end."""

    def __init__(self, bootstrap: str, group: str, **settings: Any) -> None:
        """Dots in names of settings are written as underscores."""
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 300,
            **_dotted(settings),
        }
        self.members: dict[str, PolledConsumer] = {}
        self.rebalances: list[RebalanceEvent] = []
        self._owners: dict[PartitionKey, str] = {}

    def __enter__(self) -> PolledGroup:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.members):
            self.leave(name)

    # -- who is in it --------------------------------------------------------------------------------------

    def join(self, name: str, topics: Sequence[str], **settings: Any) -> PolledConsumer:
        consumer = Consumer({**self._settings, "client.id": name, **_dotted(settings)})
        member = PolledConsumer(name=name, consumer=consumer)
        self.members[name] = member

        def records_as(kind: str) -> Callable[[Consumer, list[TopicPartition]], None]:
            return lambda _, partitions: self._record_rebalance(member, kind, partitions)

        consumer.subscribe(
            list(topics),
            on_assign=records_as("assigned"),
            on_revoke=records_as("revoked"),
            on_lost=records_as("lost"),
        )
        return member

    def leave(self, name: str) -> PolledConsumer:
        member = self.members.pop(name)
        member.consumer.close()
        self._release(member, set(member.owned))
        return member

    def _record_rebalance(self, member: PolledConsumer, kind: str, partitions: list[TopicPartition]) -> None:
        keys = {(partition.topic, partition.partition) for partition in partitions}
        self.rebalances.append(RebalanceEvent(member.name, kind, frozenset(keys)))
        if kind == "assigned":
            self._assign(member, keys)
        else:
            self._release(member, keys)

    def _assign(self, member: PolledConsumer, keys: set[PartitionKey]) -> None:
        for key in keys:
            owner = self._owners.setdefault(key, member.name)
            if owner != member.name:
                raise AssertionError(f"{key} was assigned to {member.name} while {owner} owned it")
        member.owned |= keys

    def _release(self, member: PolledConsumer, keys: set[PartitionKey]) -> None:
        for key in keys:
            if self._owners.get(key) == member.name:
                del self._owners[key]
        member.owned -= keys

    # -- what they do --------------------------------------------------------------------------------------

    def poll_all(self) -> None:
        for member in list(self.members.values()):
            message = member.consumer.poll(_POLL_S)
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            member.records.append(message)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Polls until it holds."""
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {TIMEOUT_S} s: {what}; owned: {self.owned()}")
            self.poll_all()

    def wait_until_stable(self, *keys: PartitionKey) -> dict[str, set[PartitionKey]]:
        """Polls until just these partitions have owners, everybody has a fair share, and nothing changes."""
        wanted = set(keys)
        since, seen = time.monotonic(), -1

        def is_stable() -> bool:
            nonlocal since, seen
            if len(self.rebalances) != seen or not self._is_fair(wanted):
                since, seen = time.monotonic(), len(self.rebalances)
            return time.monotonic() - since > QUIET_S

        self.until(is_stable, f"a stable group over {sorted(wanted)}")
        return self.owned()

    def _is_fair(self, wanted: set[PartitionKey]) -> bool:
        sizes = [len(member.owned) for member in self.members.values()]
        return self._owners.keys() == wanted and max(sizes) - min(sizes) <= 1

    # -- what they have ------------------------------------------------------------------------------------

    def owned(self) -> dict[str, set[PartitionKey]]:
        return {name: set(member.owned) for name, member in self.members.items()}

    def shares(self) -> dict[str, list[int]]:
        """Of a group over one topic: the partitions of each."""
        return {name: member.partitions for name, member in self.members.items()}

    def values(self) -> list[bytes]:
        """What all have received, in no order."""
        return [message.value() or b"" for member in self.members.values() for message in member.records]


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        name if name in _NOT_DOTTED else name.replace("_", "."): value for name, value in settings.items()
    }
