"""Consumers of a group (confluent-kafka), polled in turn by one thread: what listeners hear is one history.

A partition that is given to a second consumer while the first one has it fails at once. Works against any
Kafka; knows no node. Used by the drawn cases and the compatibility tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

PATIENCE_S = 30
QUIET_S = 0.3
"""So long nothing may change before a group counts as settled."""
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

Place = tuple[str, int]


class Told(NamedTuple):
    """A call of a rebalance listener."""

    consumer: str
    kind: str
    """assigned, revoked or lost."""
    places: frozenset[Place]


@dataclass(slots=True, kw_only=True)
class CrowdConsumer:
    name: str
    consumer: Consumer
    owned: set[Place] = field(default_factory=set)
    records: list[Message] = field(default_factory=list)

    @property
    def partitions(self) -> list[int]:
        """Of a consumer of one topic."""
        return sorted(partition for _, partition in self.owned)


class ConsumerCrowd:
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
        self.members: dict[str, CrowdConsumer] = {}
        self.told: list[Told] = []
        self._owners: dict[Place, str] = {}

    def __enter__(self) -> ConsumerCrowd:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.members):
            self.leave(name)

    # -- who is in it --------------------------------------------------------------------------------------

    def join(self, name: str, topics: Sequence[str], **settings: Any) -> CrowdConsumer:
        consumer = Consumer({**self._settings, "client.id": name, **_dotted(settings)})
        member = CrowdConsumer(name=name, consumer=consumer)
        self.members[name] = member

        def hears(kind: str) -> Callable[[Consumer, list[TopicPartition]], None]:
            return lambda _, partitions: self._hear(member, kind, partitions)

        consumer.subscribe(
            list(topics), on_assign=hears("assigned"), on_revoke=hears("revoked"), on_lost=hears("lost")
        )
        return member

    def leave(self, name: str) -> CrowdConsumer:
        member = self.members.pop(name)
        member.consumer.close()
        self._give_up(member, set(member.owned))
        return member

    def _hear(self, member: CrowdConsumer, kind: str, partitions: list[TopicPartition]) -> None:
        places = {(partition.topic, partition.partition) for partition in partitions}
        self.told.append(Told(member.name, kind, frozenset(places)))
        if kind == "assigned":
            self._give(member, places)
        else:
            self._give_up(member, places)

    def _give(self, member: CrowdConsumer, places: set[Place]) -> None:
        for place in places:
            owner = self._owners.setdefault(place, member.name)
            if owner != member.name:
                raise AssertionError(f"{place} was given to {member.name} while {owner} had it")
        member.owned |= places

    def _give_up(self, member: CrowdConsumer, places: set[Place]) -> None:
        for place in places:
            if self._owners.get(place) == member.name:
                del self._owners[place]
        member.owned -= places

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
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {PATIENCE_S} s: {what}; owned: {self.owned()}")
            self.poll_all()

    def settle(self, *places: Place) -> dict[str, set[Place]]:
        """Polls until just these partitions have owners, everybody has a fair share, and nothing changes."""
        wanted = set(places)
        since, seen = time.monotonic(), -1

        def settled() -> bool:
            nonlocal since, seen
            if len(self.told) != seen or not self._is_fair(wanted):
                since, seen = time.monotonic(), len(self.told)
            return time.monotonic() - since > QUIET_S

        self.until(settled, f"a settled group over {sorted(wanted)}")
        return self.owned()

    def _is_fair(self, wanted: set[Place]) -> bool:
        sizes = [len(member.owned) for member in self.members.values()]
        return self._owners.keys() == wanted and max(sizes) - min(sizes) <= 1

    # -- what they have ------------------------------------------------------------------------------------

    def owned(self) -> dict[str, set[Place]]:
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
