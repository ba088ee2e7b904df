# SPDX-License-Identifier: Apache-2.0
"""A group with members of both protocols, without a broker: requests of either kind, and correct clients.

Each step is checked: every request answered or held, nothing held twice in a KIP-848 group, and a machine
that only read the encoded records is equal to the live one (R33). Read next: machines/groups/migration.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from headrace.assignors import range as range_assignor
from headrace.assignors.subscriptions import Subscriber
from headrace.machines.groups.classic.rebalance import ClassicGroupSettings
from headrace.machines.groups.consumer.events import (
    ConsumerGroupConfig,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    MetadataChanged,
)
from headrace.machines.groups.events import (
    JoinGroupReply,
    JoinProtocol,
    OffsetCommit,
    OffsetCommitReply,
    OffsetToCommit,
    SyncGroupReply,
)
from headrace.machines.groups.group import Group, GroupSettings
from headrace.machines.groups.migration import MigrationPolicy
from headrace.machines.machine import Effects, Event, ReplyToken
from headrace.wire.coordinator.consumer_protocol import assigned_partitions, decode_subscription
from headrace.wire.coordinator.group_records import GroupRecord, encode
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.classic_requests import ClassicHarness, assignment
from tests.harness.groups.consumer_groups import CLIENT, cluster_view, topic_id
from tests.harness.groups.machine_driver import through_bytes

NEWEST_SUBSCRIPTION = 3


def subscription(
    topics: Iterable[str],
    owned: Mapping[str, Sequence[int]] | None = None,
    *,
    version: int = NEWEST_SUBSCRIPTION,
    rack_id: str | None = None,
) -> bytes:
    """A subscription of the `consumer` protocol that says what its member still owns."""
    names = [_text(topic) for topic in topics]
    body = struct.pack(">hi", version, len(names)) + b"".join(names) + struct.pack(">i", -1)
    if version >= 1:
        body += assignment(owned or {})[2:-4]
    if version >= 2:
        body += struct.pack(">i", -1)
    if version >= 3:
        body += struct.pack(">h", -1) if rack_id is None else _text(rack_id)
    return body


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class MixedHarness(ClassicHarness):
    """`join`, `sync` … speak the classic protocol, `beat` KIP-848."""

    def __init__(
        self,
        counts: Mapping[str, int],
        *,
        policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL,
        classic: ClassicGroupSettings | None = None,
        **config: Any,
    ) -> None:
        self.counts = dict(counts)
        self.version = 1
        self._settings = GroupSettings(
            classic=classic or ClassicGroupSettings(initial_rebalance_delay_ms=0),
            consumer=ConsumerGroupConfig(**{"assignment_interval_ms": 0, **config}),
            migration_policy=policy,
        )
        super().__init__(self.new_group())
        self._replayed = self.new_group()

    @property
    def group(self) -> Group:
        assert isinstance(self.machine, Group)
        return self.machine

    def new_group(self) -> Group:
        return Group("g", self._settings, cluster_view(self.version, self.counts))

    def submit(self, event: Event) -> Effects:
        effects = super().submit(event)
        for record in effects.records:
            self._replayed.apply(through_bytes(record))
        self.check()
        return effects

    def check(self) -> None:
        classic, consumer, _ = state = self.group.snapshot()
        assert state == self._replayed.snapshot()
        assert classic is None or consumer is None, "a group of one protocol at a time"
        held = [
            (topic, partition)
            for member in (consumer or {"members": {}})["members"].values()
            for part in (member.assigned, member.pending_revocation)
            for topic, partitions in part.items()
            for partition in partitions
        ]
        assert len(held) == len(set(held)), f"held twice: {sorted(held)}"

    def join(self, member_id: str = "", **changes: Any) -> ReplyToken:
        token = super().join(member_id, **changes)
        self.advance(0)  # an initial delay of nothing is over
        return token

    def fail_over(self, *, compacted: bool = False, tombstones: bool = True) -> None:
        """Another coordinator takes over, with nothing but the log, or what compaction left of it."""
        if compacted:
            newest = {encode(cast(GroupRecord, r))[0]: index for index, r in enumerate(self.records)}
            kept = [self.records[index] for index in sorted(newest.values())]
            self.records = [record for record in kept if tombstones or _is_value(record)]
        self.restart(self.new_group)
        self.check()

    def set_topics(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)
        self.version += 1
        self.submit(MetadataChanged(view=cluster_view(self.version, counts)))

    def beat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatReply:
        token = self.token()
        request = {"version": 1, "member_id": member_id, "member_epoch": epoch, **CLIENT, **fields}
        self.submit(ConsumerGroupHeartbeat(**{"token": token, **request}))
        return self.reply(token, ConsumerGroupHeartbeatReply)

    def beat_join(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatReply:
        full = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": topics, "owned_partitions": {}}
        return self.beat(member_id, 0, **{**full, **fields})

    def commit(self, member_id: str, generation: int, *, version: int = 8, topic: str = "t") -> ErrorCode:
        token = self.token()
        offsets = (OffsetToCommit(topic, 0, 1, topic_id=topic_id(topic)),)
        self.submit(
            OffsetCommit.of(
                token=token, version=version, offsets=offsets, member_id=member_id, generation=generation
            )
        )
        reply = self.reply(token, OffsetCommitReply)
        return reply.errors[0] if reply.errors else reply.error

    @property
    def protocol(self) -> str:
        return self.group.describe().group_type


def _is_value(record: CoordinatorRecord) -> bool:
    return cast(GroupRecord, record).value is not None


class KipSide:
    """What consumer_groups.Consumer needs of a group."""

    def __init__(self, group: MixedHarness) -> None:
        self._group = group

    @property
    def counts(self) -> Mapping[str, int]:
        return self._group.counts

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatReply:
        return self._group.beat(member_id, epoch, **fields)

    def advance(self, milliseconds: int) -> None:
        self._group.advance(milliseconds)


class ClassicConsumer:
    """A consumer of the classic protocol, as clients are: eager or cooperative, assigning when it leads.

    `poll` does what it can do now: it takes an answer, or sends the next request.
    """

    def __init__(
        self, group: MixedHarness, *topics: str, cooperative: bool = False, instance_id: str | None = None
    ) -> None:
        self.group = group
        self.topics = topics
        self.cooperative = cooperative
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: Mapping[str, Sequence[int]] = {}
        self._joined = False
        self._assigned_for: Mapping[str, int] | None = None
        """The topics that it made an assignment for, when it leads."""
        self._waits_for: ReplyToken | None = None

    def poll(self) -> None:
        if self._waits_for is not None:
            self._take_answer(self._waits_for)
        elif self._joined and self._assigned_for not in (None, self.group.counts):
            self._joined = False  # a leader that sees new partitions has them shared out
        elif self._joined:
            error = self.group.heartbeat(self.member_id, self.generation, self.instance_id)
            if error is not ErrorCode.none:
                self._start_again(error)
        else:
            self._join()

    def _join(self) -> None:
        if not self.cooperative:
            self.owned = {}
        name = "cooperative" if self.cooperative else "range"
        metadata = subscription(self.topics, self.owned)
        self._waits_for = self.group.join(
            self.member_id,
            group_instance_id=self.instance_id,
            protocols=(JoinProtocol(name, metadata),),
        )

    def _take_answer(self, token: ReplyToken) -> None:
        if token not in self.group.given:  # the coordinator is another one
            self._waits_for, self._joined = None, False
            return
        match self.group.replies.get(token):
            case JoinGroupReply() as joined:
                self._waits_for = None
                self._on_joined(joined)
            case SyncGroupReply() as synced:
                self._waits_for = None
                self._on_synced(synced)
            case None:
                """Not yet."""

    def _on_joined(self, reply: JoinGroupReply) -> None:
        if reply.error is ErrorCode.member_id_required:
            self.member_id = reply.member_id
        elif reply.error is not ErrorCode.none:
            self._start_again(reply.error)
        else:
            self.member_id, self.generation = reply.member_id, reply.generation
            leads = reply.leader == self.member_id and bool(reply.members)
            self._assigned_for = dict(self.group.counts) if leads else None
            self._waits_for = self.group.sync(
                self.member_id,
                self.generation,
                group_instance_id=self.instance_id,
                assignments=self._assign(reply) if leads else (),
            )

    def _assign(self, reply: JoinGroupReply) -> tuple[tuple[str, bytes], ...]:
        """By range; a cooperative leader gives nobody what another one still owns."""
        subscriptions = {m.member_id: decode_subscription(m.metadata) for m in reply.members}
        members = [
            Subscriber(member_id=member_id, topics=list(found.topics))
            for member_id, found in subscriptions.items()
        ]
        owner = {
            (topic, partition): member_id
            for member_id, found in subscriptions.items()
            for topic, partitions in found.owned.items()
            for partition in partitions
        }
        given: dict[str, dict[str, list[int]]] = {}
        for member_id, topics in range_assignor.assign(members, self.group.counts).items():
            given[member_id] = {
                topic: [p for p in partitions if owner.get((topic, p), member_id) == member_id]
                for topic, partitions in topics.items()
            }
        return tuple((member_id, assignment(topics)) for member_id, topics in given.items())

    def _on_synced(self, reply: SyncGroupReply) -> None:
        if reply.error is not ErrorCode.none:
            self._start_again(reply.error)
            return
        assigned = assigned_partitions(reply.assignment)
        gives_up = any(set(had) - set(assigned.get(topic, ())) for topic, had in self.owned.items())
        self.owned = {topic: numbers for topic, numbers in assigned.items() if numbers}
        self._joined = not gives_up  # a cooperative member that gave something up joins again at once

    def _start_again(self, error: ErrorCode) -> None:
        self._joined = False
        if error is ErrorCode.rebalance_in_progress:
            return
        self.owned, self.generation = {}, -1
        if error is not ErrorCode.illegal_generation:
            self.member_id = ""

    def leave(self) -> None:
        if self.member_id:
            self.group.leave(self.member_id)
        self.owned = {}

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(topic, number) for topic, numbers in self.owned.items() for number in numbers}
