# SPDX-License-Identifier: Apache-2.0
"""Drives one KIP-848 group machine without a broker: time, timers, its log, and correct consumers.

Each step is checked: every request answered once, no partition held twice, epochs never fall, and a machine
that only applied the encoded records is equal to the live one (R33). Used by unit and property tests.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Protocol, cast

from headrace.machines.groups.consumer.events import (
    ConsumerGroupConfig,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    MetadataChanged,
    RegexResolved,
    ResolveRegex,
)
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.member import Partitions
from headrace.machines.groups.events import GroupRequest
from headrace.machines.machine import (
    Effects,
    Event,
    Loaded,
    Now,
    ReplyToken,
    SetTimer,
    TimelineEvent,
    TimerFired,
    TimerKey,
)
from headrace.types import ClusterView, PartitionState, Topic
from headrace.wire.coordinator.group_records import GroupRecord, decode, encode
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.error_codes import ErrorCode

WALL_START_MS = 1_700_000_000_000
CLIENT = {"client_id": "client", "client_host": "/127.0.0.1"}


def topic_id(name: str, *, incarnation: int = 0) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}/{incarnation}")


def cluster_view(version: int, counts: Mapping[str, int], *, incarnation: int = 0) -> ClusterView:
    state = PartitionState(replicas=(0,), leader=0, leader_epoch=0, isr=(0,))
    topics = {
        name: Topic(name=name, topic_id=topic_id(name, incarnation=incarnation), partitions=(state,) * count)
        for name, count in counts.items()
    }
    return ClusterView(
        version=version,
        cluster_id="cluster",
        topics=topics,
        topic_names={topic.topic_id: name for name, topic in topics.items()},
    )


class GroupDriver:
    """What broker/coordinators/machine_driver.py does for a machine, at the pace of the test."""

    def __init__(self, counts: Mapping[str, int], **config: Any) -> None:
        self.counts = dict(counts)
        self.config = ConsumerGroupConfig(**{"assignment_interval_ms": 0, **config})
        self.version = 1
        self.machine = self._new_machine()
        self.now_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[TimerKey, int] = {}
        self.questions: list[ResolveRegex] = []
        self.timeline: list[TimelineEvent] = []
        self._tokens = 0
        self._replayed = self._new_machine()
        self._last_epochs = (0, 0)

    def _new_machine(self) -> ConsumerGroup:
        return ConsumerGroup("group", config=self.config, view=cluster_view(self.version, self.counts))

    def new_token(self) -> ReplyToken:
        self._tokens += 1
        return ReplyToken(self._tokens)

    # --- events ------------------------------------------------------------------------------------------

    def step(self, event: Event) -> Effects:
        may_write = self.machine.may_write(event)
        effects = self.machine.step(event, Now(self.now_ms, WALL_START_MS + self.now_ms))
        assert may_write or not effects.records, f"{event} wrote, which the driver could not know (R17)"
        expected = [event.token] if isinstance(event, GroupRequest) else []
        assert [reply.token for reply in effects.replies] == expected
        for record in effects.records:
            self._append(record)
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.deadline_ms
            else:
                self.timers.pop(timer.key, None)
        self.questions.extend(q for q in effects.questions if isinstance(q, ResolveRegex))
        self.timeline += effects.timeline
        self.check()
        return effects

    def _append(self, record: CoordinatorRecord) -> None:
        key, value = encode(cast(GroupRecord, record))
        self.log.append((key, value))
        read_back = decode(key, value)
        assert read_back == record
        self._replayed.apply(read_back)

    def write(self, record: CoordinatorRecord) -> None:
        """A record that somebody else wrote, an older or newer release perhaps."""
        self._append(record)
        self.machine.apply(record)

    def check(self) -> None:
        state = self.machine.state
        assert self.machine.snapshot() == self._replayed.snapshot()
        held = [
            (topic, partition)
            for member in state.members.values()
            for part in (member.assigned, member.pending_revocation)
            for topic, partitions in part.items()
            for partition in partitions
        ]
        assert len(held) == len(set(held)), f"held twice: {sorted(held)}"
        assert state.assignment_epoch <= state.group_epoch
        epochs = (state.group_epoch, state.assignment_epoch) if state.exists else (0, 0)
        if state.exists:
            fell = any(now < before for now, before in zip(epochs, self._last_epochs, strict=True))
            assert not fell, f"epochs fell from {self._last_epochs} to {epochs}"
        self._last_epochs = epochs

    def advance(self, milliseconds: int) -> list[Effects]:
        """Time passes; timers fire when they are due, in order."""
        end_ms, made = self.now_ms + milliseconds, []
        while due := [key for key, deadline in self.timers.items() if deadline <= end_ms]:
            key = min(due, key=lambda key: (self.timers[key], key))
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            made.append(self.step(TimerFired(key)))
        self.now_ms = end_ms
        return made

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatReply:
        return self.heartbeat_effects(member_id, epoch, **fields)[0]

    def heartbeat_effects(
        self, member_id: str, epoch: int, **fields: Any
    ) -> tuple[ConsumerGroupHeartbeatReply, Effects]:
        request = ConsumerGroupHeartbeat(
            **{
                "token": self.new_token(),
                "version": 1,
                "member_id": member_id,
                "member_epoch": epoch,
                **CLIENT,
                **fields,
            }
        )
        effects = self.step(request)
        body = effects.replies[0].body
        assert isinstance(body, ConsumerGroupHeartbeatReply)
        return body, effects

    def join(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatReply:
        full = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": topics, "owned_partitions": {}}
        return self.heartbeat(member_id, 0, **{**full, **fields})

    def set_topics(self, counts: Mapping[str, int], *, incarnation: int = 0) -> None:
        created = bool(counts.keys() - self.counts.keys())
        self.counts = dict(counts)
        self.version += 1
        view = cluster_view(self.version, counts, incarnation=incarnation)
        self.step(MetadataChanged(view=view, topics_created=created))

    def answer_regex(self, topics: Mapping[str, set[str]]) -> Effects:
        question = self.questions.pop(0)
        assert question.regexes == topics.keys()
        found = {regex: frozenset(names) for regex, names in topics.items()}
        return self.step(RegexResolved(topics=found, version=question.view.version))

    # --- faults ------------------------------------------------------------------------------------------

    def reload(self, *, compacted: bool = False) -> None:
        """The machine is lost; another one reads the log. Time-outs begin anew."""
        records = self.log
        if compacted:
            newest = {key: index for index, (key, _) in enumerate(records)}
            records = [records[index] for index in sorted(newest.values()) if records[index][1] is not None]
        before = self.machine.snapshot()
        self.machine = self._new_machine()
        for key, value in records:
            record = decode(key, value)
            assert record is not None
            self.machine.apply(record)
        assert self.machine.snapshot() == before
        self.timers.clear()
        self.questions.clear()
        self.step(Loaded())


class Coordinator(Protocol):
    """What a consumer needs of its group."""

    @property
    def counts(self) -> Mapping[str, int]: ...

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatReply: ...

    def advance(self, milliseconds: int) -> object: ...


class Consumer:
    """A member as clients are: takes what is new when it is told, gives up the rest when `process` says.

    The protocol counts on the first: what a heartbeat does not report as owned counts as given up.
    """

    def __init__(
        self,
        group: Coordinator,
        member_id: str,
        *topics: str,
        instance_id: str | None = None,
        rebalance_timeout_ms: int = 60_000,
    ) -> None:
        self.group = group
        self.member_id = member_id
        self.topics = topics
        self.instance_id = instance_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.epoch = 0
        self.owned: Partitions = {}
        self.assignment: Partitions = {}
        self._reported: Partitions | None = None
        """What the coordinator has certainly received; None when that is not known."""

    def beat(self, *, lose_reply: bool = False) -> ErrorCode:
        """One heartbeat: with everything when joining or after a lost reply, else with what changed."""
        full = self.epoch == 0 or self._reported is None
        fields: dict[str, Any] = {"instance_id": self.instance_id}
        if full:
            fields["subscribed_topic_names"] = self.topics
            fields["rebalance_timeout_ms"] = self.rebalance_timeout_ms
        if full or self._reported != self.owned:
            fields["owned_partitions"] = self.owned
        reported = self.owned
        reply = self.group.heartbeat(self.member_id, self.epoch, **fields)
        if lose_reply:
            self._reported = None
            return ErrorCode.none
        if reply.error is not ErrorCode.none:
            self.forget()
            return reply.error
        self._reported = reported
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.assignment = reply.assignment
            if all(numbers <= self.assignment.get(topic, set()) for topic, numbers in self.owned.items()):
                self.owned = self.assignment
        return ErrorCode.none

    def process(self) -> None:
        """Gives up what is no longer assigned; the next heartbeat reports it."""
        self.owned = self.assignment

    def beat_and_process(self) -> ErrorCode:
        error = self.beat()
        self.process()
        return error

    def resubscribe(self, *topics: str) -> None:
        self.topics = topics
        self._reported = None

    def leave(self, *, for_good: bool = True) -> ErrorCode:
        epoch = -1 if for_good or self.instance_id is None else -2
        self.owned = {}
        reply = self.group.heartbeat(self.member_id, epoch, instance_id=self.instance_id)
        self.forget()
        return reply.error

    def forget(self) -> None:
        """Fenced: all partitions are abandoned, and the next heartbeat joins anew."""
        self.epoch = 0
        self.owned, self.assignment, self._reported = {}, {}, None

    @property
    def numbers(self) -> dict[str, list[int]]:
        """What it owns, by topic name."""
        names = {topic_id(name): name for name in self.group.counts}
        return {names[topic]: sorted(partitions) for topic, partitions in sorted(self.owned.items())}

    @property
    def load(self) -> int:
        return sum(map(len, self.owned.values()))


def beat_until_stable(*consumers: Consumer, rounds: int = 12, every_ms: int = 5_000) -> None:
    """Everybody heartbeats until nothing changes any more."""
    for _ in range(rounds):
        before = [(consumer.owned, consumer.epoch) for consumer in consumers]
        for consumer in consumers:
            consumer.beat_and_process()
        consumers[0].group.advance(every_ms)
        if before == [(consumer.owned, consumer.epoch) for consumer in consumers]:
            return
    raise AssertionError(f"not stable after {rounds} rounds")
