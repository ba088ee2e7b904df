# SPDX-License-Identifier: Apache-2.0
"""Requests of the classic group protocol, as a test writes them, over a MachineRunner.

`join`, `sync` … return the token; `reply` the answer, which must be there; `stable_group` a joined group.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from headrace.assignors.subscriptions import Assignment, Subscriber
from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.events import (
    ErrorReply,
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    JoinProtocol,
    LeaveGroup,
    LeaveGroupReply,
    LeavingMember,
    SyncGroup,
    SyncGroupReply,
)
from headrace.machines.machine import Machine, ReplyBody, ReplyToken
from headrace.wire.coordinator.consumer_protocol import assigned_partitions
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.machine_driver import MachineRunner

B = TypeVar("B", bound=ReplyBody)

SESSION_MS = 10_000
REBALANCE_MS = 60_000
NEWEST_JOIN = 9


def subscription(topics: Iterable[str]) -> bytes:
    """A subscription of the `consumer` protocol, version 0."""
    names = [struct.pack(">h", len(topic)) + topic.encode() for topic in topics]
    return struct.pack(">hi", 0, len(names)) + b"".join(names) + struct.pack(">i", -1)


def assignment(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """An assignment of the `consumer` protocol, version 0."""
    topics = [
        struct.pack(">h", len(topic)) + topic.encode() + struct.pack(f">i{len(found)}i", len(found), *found)
        for topic, found in partitions.items()
    ]
    return struct.pack(">hi", 0, len(topics)) + b"".join(topics) + struct.pack(">i", -1)


def protocols(*names: str, metadata: bytes = b"") -> tuple[JoinProtocol, ...]:
    return tuple(JoinProtocol(name, metadata) for name in names)


class ClassicHarness(MachineRunner):
    def __init__(self, machine: Machine | None = None) -> None:
        super().__init__(machine or ClassicGroup("g"))
        self._made = 0

    def reply(self, token: ReplyToken, kind: type[B]) -> B:
        assert token in self.replies, "no answer yet"
        body = self.replies[token]
        assert isinstance(body, kind)
        return body

    def waits(self, token: ReplyToken) -> bool:
        return token not in self.replies

    def join(self, member_id: str = "", **changes: Any) -> ReplyToken:
        self._made += 1
        token = self.token()
        client_id = changes.pop("client_id", "c")
        request: dict[str, Any] = {
            "token": token,
            "version": NEWEST_JOIN,
            "member_id": member_id,
            "group_instance_id": None,
            "client_id": client_id,
            "client_host": "/127.0.0.1",
            "protocol_type": "consumer",
            "protocols": protocols("range", metadata=subscription(["t"])),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "fresh_member_id": f"{changes.get('group_instance_id') or client_id}-{self._made}",
        }
        self.submit(JoinGroup(**{**request, **changes}))
        return token

    def joined(self, token: ReplyToken) -> JoinGroupReply:
        return self.reply(token, JoinGroupReply)

    def join_error(self, member_id: str = "", **changes: Any) -> ErrorCode:
        return self.joined(self.join(member_id, **changes)).error

    def sync(self, member_id: str, generation: int, **changes: Any) -> ReplyToken:
        token = self.token()
        version = 5 if "protocol" in changes else 4
        request: dict[str, Any] = {"version": version, "group_instance_id": None, **changes}
        self.submit(SyncGroup(token=token, member_id=member_id, generation=generation, **request))
        return token

    def synced(self, token: ReplyToken) -> SyncGroupReply:
        return self.reply(token, SyncGroupReply)

    def sync_error(self, member_id: str, generation: int, **changes: Any) -> ErrorCode:
        return self.synced(self.sync(member_id, generation, **changes)).error

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        token = self.token()
        self.submit(
            Heartbeat(
                token=token,
                version=4,
                member_id=member_id,
                group_instance_id=instance_id,
                generation=generation,
            )
        )
        return self.reply(token, ErrorReply).error

    def leave(self, *members: LeavingMember | str, version: int = 5) -> LeaveGroupReply:
        token = self.token()
        leaving = tuple(LeavingMember(m) if isinstance(m, str) else m for m in members)
        self.submit(LeaveGroup(token=token, version=version, members=leaving))
        return self.reply(token, LeaveGroupReply)

    def new_member(self, **changes: Any) -> tuple[str, ReplyToken]:
        """A dynamic member that has its id and waits to be let in."""
        required = self.joined(self.join(**changes))
        assert required.error is ErrorCode.member_id_required
        return required.member_id, self.join(required.member_id, **changes)

    def sync_all(self, tokens: Iterable[ReplyToken], assign: Mapping[str, bytes] | None = None) -> None:
        """Everyone whose JoinGroup was answered asks for its assignment, the leader last."""
        replies = [self.joined(token) for token in tokens]
        for reply in sorted(replies, key=lambda reply: reply.leader == reply.member_id):
            leads = reply.leader == reply.member_id
            given = tuple((assign or {}).items()) if leads else ()
            self.sync(reply.member_id, reply.generation, assignments=given)

    def stable_group(self, size: int = 2, **changes: Any) -> list[str]:
        """Member ids of a stable group, the leader first."""
        waiting = [self.new_member(**changes) for _ in range(size)]
        while any(self.waits(token) for _, token in waiting):
            self.advance(1_000)
        self.sync_all(
            [token for _, token in waiting], {member: b"for " + member.encode() for member, _ in waiting}
        )
        leader = self.joined(waiting[0][1]).leader
        return sorted((member for member, _ in waiting), key=lambda member: member != leader)


Assign = Callable[[list[Subscriber[str]], Mapping[str, int]], Assignment[str]]


class ConsumersHarness(ClassicHarness):
    """A group of consumers that subscribe to the same topics and assign as clients do."""

    def __init__(self, assign: Assign, partition_counts: Mapping[str, int], machine: Machine) -> None:
        super().__init__(machine)
        self.assign = assign
        self.partition_counts = dict(partition_counts)
        self.held: dict[str, dict[str, list[int]]] = {}
        """By member id: what it was assigned last."""
        self.generation = 0

    @property
    def protocols(self) -> tuple[JoinProtocol, ...]:
        return protocols("sticky", metadata=subscription(sorted(self.partition_counts)))

    def enter(self) -> str:
        """A consumer joins, and everyone goes through the rebalance."""
        required = self.joined(self.join(protocols=self.protocols))
        self.held[required.member_id] = {}
        self.rebalance()
        return required.member_id

    def exit(self, member_id: str) -> None:
        self.leave(member_id)
        del self.held[member_id]
        self.rebalance()

    def rebalance(self) -> None:
        """Everyone joins again, and the leader assigns."""
        tokens = {member: self.join(member, protocols=self.protocols) for member in self.held}
        while any(self.waits(token) for token in tokens.values()):
            self.advance(1_000)
        replies = [self.joined(token) for token in tokens.values()]
        leader = next(reply for reply in replies if reply.leader == reply.member_id)
        members = [
            Subscriber(
                member_id=joined.member_id,
                topics=list(self.partition_counts),
                owned=self.held[joined.member_id],
                generation=self.generation,
            )
            for joined in leader.members
        ]
        result = self.assign(members, self.partition_counts)
        given = tuple((member_id, assignment(topics)) for member_id, topics in result.items())
        syncs = {
            reply.member_id: self.sync(
                reply.member_id, reply.generation, assignments=given if reply is leader else ()
            )
            for reply in replies
        }
        self.generation = leader.generation
        self.held = {
            member: {t: list(p) for t, p in assigned_partitions(self.synced(token).assignment).items()}
            for member, token in syncs.items()
        }
