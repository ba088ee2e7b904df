# SPDX-License-Identifier: Apache-2.0
"""Raw group members: every request packed before the clock runs, one connection each, replies checked.

So that the coordinator is what is measured. Both protocols; knows no engine. Read next: measures/groups.py.
"""

from __future__ import annotations

import select
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.raw_client import RawConnection
from bench.raw_requests import RawReplyError
from tests.harness.groups import wire as wire

MEMBER_ID_REQUIRED = 79
_NOT_READY = frozenset({14, 15, 16})  # loading, no coordinator yet, not this one
_READY_SECONDS = 60
_ARRIVED_SECONDS = 0.05
"""A broker with several network threads may take requests of two connections in any order before that."""
LONG_SESSION_MS = 1_800_000
"""Members outlive the pauses between turns without a heartbeat."""

Connect = Callable[[], RawConnection]


def ask(connection: RawConnection, name: str, fields: Mapping[str, Any]) -> Any:
    return wire.read_reply(name, connection.call(wire.request(name, fields)))


def expect_none(what: str, code: int) -> None:
    if code:
        raise RawReplyError(f"{what} was refused with error code {int(code)}")


def wait_for_coordinator(connection: RawConnection, group: str) -> None:
    """The first group of a broker has its coordinator's topic created."""
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        found = ask(connection, "find_coordinator", {"key_type": 0, "coordinator_keys": [group]})
        code = int(found.coordinators[0].error_code)
        if code == 0 and int(_probe(connection, group)) not in _NOT_READY:
            return
        if code not in _NOT_READY and code != 0:
            raise RawReplyError(f"no coordinator for {group}: error code {code}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"no coordinator for {group} within {_READY_SECONDS} s")
        time.sleep(0.02)


def _probe(connection: RawConnection, group: str) -> int:
    asked = {"groups": [{"group_id": group, "topics": None}]}
    return int(ask(connection, "offset_fetch", asked).groups[0].error_code)


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    connection: RawConnection
    member_id: str

    def join(self, group: str, topic: str) -> bytes:
        fields = wire.join_fields(group, self.member_id, [topic], session_ms=LONG_SESSION_MS)
        return wire.request("join_group", fields)

    def heartbeat(self, group: str, generation: int) -> bytes:
        fields = {"group_id": group, "generation_id": generation, "member_id": self.member_id}
        return wire.request("heartbeat", fields)


@dataclass(slots=True, kw_only=True)
class ClassicGroup:
    """Members that rebalance when told to; the first one leads."""

    name: str
    topic: str
    partitions: int
    members: list[ClassicMember] = field(default_factory=list)
    generation: int = 0

    def rebalance(self) -> float:
        """Seconds from the last JoinGroup to the last SyncGroup's answer.

        The leader's join begins the rebalance and the last member's ends it.
        """
        joins = self.joins()
        self.members[0].connection.send(joins[0])
        time.sleep(_ARRIVED_SECONDS)  # the others are told of no rebalance before it has begun
        for member, join in zip(self.members[1:-1], joins[1:-1], strict=True):
            member.connection.send(join)
        time.sleep(_ARRIVED_SECONDS)
        return self.finish_rebalance(self.members[-1], joins[-1])

    def joins(self) -> list[bytes]:
        return [member.join(self.name, self.topic) for member in self.members]

    def finish_rebalance(self, last: ClassicMember, join: bytes) -> float:
        """All others have joined: seconds from this join to the last SyncGroup's answer."""
        generation = self.generation + 1
        syncs = [
            self.sync_of(member, generation, () if place else self.members)
            for place, member in enumerate(self.members)
        ]
        connections = [member.connection for member in self.members]
        started = time.perf_counter()
        last.connection.send(join)
        join_replies, sync_replies = _answer_each(connections, syncs)
        seconds = time.perf_counter() - started
        self._check(generation, join_replies, sync_replies)
        return seconds

    def sync_of(self, member: ClassicMember, generation: int, shares: Sequence[ClassicMember]) -> bytes:
        """The leader's carries everyone's share of the partitions."""
        given = {
            one.member_id: wire.assignment({self.topic: range(number, self.partitions, len(shares))})
            for number, one in enumerate(shares)
        }
        fields = wire.sync_fields(self.name, member.member_id, generation, given)
        return wire.request("sync_group", fields)

    def _check(self, generation: int, joins: Sequence[bytes], syncs: Sequence[bytes]) -> None:
        for frame in joins:
            reply = wire.read_reply("join_group", frame)
            expect_none("JoinGroup", reply.error_code)
            if reply.generation_id != generation:
                raise RawReplyError(f"generation {reply.generation_id} where {generation} was due")
        shared = 0
        for frame in syncs:
            reply = wire.read_reply("sync_group", frame)
            expect_none("SyncGroup", reply.error_code)
            shared += sum(map(len, wire.read_assignment(reply.assignment).values()))
        if shared != self.partitions:
            raise RawReplyError(f"{shared} of {self.partitions} partitions were assigned")
        self.generation = generation


def form_groups(
    names: Sequence[str], topic: str, *, partitions: int, members: int, connect: Connect
) -> list[ClassicGroup]:
    """Stable groups in their second generation, all of them made step by step side by side."""
    groups = [ClassicGroup(name=name, topic=topic, partitions=partitions) for name in names]
    for group in groups:
        group.members += [ClassicMember(connection=connect(), member_id="") for _ in range(members)]
        _send_joins(group, group.members)
    for group in groups:
        _learn_ids(group)
        _send_joins(group, group.members[:1])
    for group in groups:
        _lead_alone(group)
        _send_joins(group, group.members[1:])
    time.sleep(_ARRIVED_SECONDS)
    for group in groups:
        leader = group.members[0]
        group.finish_rebalance(leader, leader.join(group.name, topic))
    return groups


def _send_joins(group: ClassicGroup, members: Sequence[ClassicMember]) -> None:
    for member in members:
        member.connection.send(member.join(group.name, group.topic))


def _learn_ids(group: ClassicGroup) -> None:
    for member in group.members:
        reply = wire.read_reply("join_group", member.connection.receive())
        if int(reply.error_code) != MEMBER_ID_REQUIRED:
            raise RawReplyError(f"a member without an id got error code {int(reply.error_code)}")
        member.member_id = reply.member_id


def _lead_alone(group: ClassicGroup) -> None:
    leader = group.members[0]
    joined = wire.read_reply("join_group", leader.connection.receive())
    expect_none("the first JoinGroup", joined.error_code)
    group.generation = joined.generation_id
    synced = leader.connection.call(group.sync_of(leader, group.generation, (leader,)))
    expect_none("the first SyncGroup", wire.read_reply("sync_group", synced).error_code)


def _answer_each(
    connections: Sequence[RawConnection], second: Sequence[bytes]
) -> tuple[list[bytes], list[bytes]]:
    """Each first reply is answered by that connection's second request; returns when all second ones came."""
    first_replies: list[bytes] = []
    second_replies: list[bytes] = []
    asked: set[int] = set()
    for place in ready_in_turn(connections):
        reply = bytes(connections[place].receive())
        if place in asked:
            second_replies.append(reply)
            if len(second_replies) == len(connections):
                break
        else:
            asked.add(place)
            connections[place].send(second[place])
            first_replies.append(reply)
    return first_replies, second_replies


def repeat_each(
    connections: Sequence[RawConnection],
    requests: Sequence[bytes],
    expected: Sequence[bytes],
    seconds: float,
) -> tuple[int, float]:
    """One request in flight on each connection for so long; (answered, seconds taken).

    Every reply must be the expected one, byte by byte.
    """
    for connection, request in zip(connections, requests, strict=True):
        connection.send(request)
    started = time.perf_counter()
    deadline = started + seconds
    answered, waiting = 0, len(connections)
    for place in ready_in_turn(connections):
        if connections[place].receive() != expected[place]:
            raise RawReplyError("a request was answered by an error")
        answered += 1
        if time.perf_counter() < deadline:
            connections[place].send(requests[place])
        else:
            waiting -= 1
            if not waiting:
                break
    return answered, time.perf_counter() - started


def ready_in_turn(connections: Sequence[RawConnection], *, timeout_s: float = 60) -> Iterator[int]:
    """Places of connections with something to read, without end; the caller reads it before going on."""
    poll = select.epoll()
    place_of = {connection.socket.fileno(): place for place, connection in enumerate(connections)}
    try:
        for descriptor in place_of:
            poll.register(descriptor, select.EPOLLIN)
        while True:
            events = poll.poll(timeout_s)
            if not events:
                raise TimeoutError(f"no reply within {timeout_s:.0f} s")
            for descriptor, _ in events:
                yield place_of[descriptor]
    finally:
        poll.close()


@dataclass(slots=True, kw_only=True)
class Kip848Member:
    """A member of a KIP-848 group: heartbeats until it owns what it was given."""

    connection: RawConnection
    group: str
    topic: str
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    owned: Mapping[uuid.UUID, Sequence[int]] = field(default_factory=dict)

    def join(self) -> None:
        self.apply(self.connection.call(self.join_request()))

    def join_request(self) -> bytes:
        fields = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": 0,
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": [self.topic],
            "topic_partitions": [],
        }
        return wire.request("consumer_group_heartbeat", fields)

    def heartbeat_request(self, *, report: bool = False) -> bytes:
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
        }
        if report:
            fields["topic_partitions"] = [
                {"topic_id": topic, "partitions": list(partitions)}
                for topic, partitions in self.owned.items()
            ]
        return wire.request("consumer_group_heartbeat", fields)

    def leave(self) -> None:
        fields = {"group_id": self.group, "member_id": self.member_id, "member_epoch": -1}
        self.apply(self.connection.call(wire.request("consumer_group_heartbeat", fields)))

    def apply(self, frame: memoryview | bytes) -> bool:
        """True when the reply changed what this member owns."""
        reply = wire.read_reply("consumer_group_heartbeat", frame)
        expect_none(f"ConsumerGroupHeartbeat {reply.error_message or ''}", reply.error_code)
        self.epoch = reply.member_epoch
        if reply.assignment is None:
            return False
        given = {part.topic_id: part.partitions for part in reply.assignment.topic_partitions}
        changed = given != self.owned
        self.owned = given
        return changed

    @property
    def owned_count(self) -> int:
        return sum(map(len, self.owned.values()))

    def beat(self, *, report: bool = False) -> None:
        """Heartbeats until nothing changes: what was given up is reported at once."""
        changed = self.apply(self.connection.call(self.heartbeat_request(report=report)))
        while changed:
            changed = self.apply(self.connection.call(self.heartbeat_request(report=True)))


def wait_until_stable(members: Sequence[Kip848Member], partitions: int, *, timeout_s: float = 30) -> int:
    """Heartbeats of all until everyone is in one epoch and everything is owned; that epoch."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for member in members:
            member.beat(report=True)
        epochs = {member.epoch for member in members}
        if len(epochs) == 1 and sum(member.owned_count for member in members) == partitions:
            return epochs.pop()
        time.sleep(0.005)
    raise TimeoutError(f"the group of {len(members)} was not stable within {timeout_s:.0f} s")
