# SPDX-License-Identifier: Apache-2.0
"""Rebalance of a classic group from one generation to the next.

Handles pending replies, timers and the initial delay of a ClassicState; classic/group.py decides when to
rebalance. Names and order of steps are those of Kafka's GroupMetadataManager, which is the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headrace.machines.groups.classic.moves import describe_moves
from headrace.machines.groups.classic.state import ClassicState, GroupState, Member
from headrace.machines.groups.events import (
    NO_MEMBER_ID,
    JoinGroupReply,
    SyncGroupReply,
)
from headrace.machines.machine import ReplyToken, Step, TimerKey
from headrace.machines.timers import TimerBook
from headrace.wire.coordinator.consumer_protocol import PROTOCOL_TYPE
from headrace.wire.coordinator.group_records import GroupMetadataRecord
from headrace.wire.error_codes import ErrorCode

JOIN_TIMER: TimerKey = ("join",)
SYNC_TIMER: TimerKey = ("sync",)
_SHORTEST_WAIT_MS = 100
"""Of a group that nobody joins: members may ask for no time at all, and no timer may fire all the time."""


def session_timer(member_id: str) -> TimerKey:
    return ("session", member_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupSettings:
    """Kafka's names: group.min.session.timeout.ms, group.max.session.timeout.ms, group.max.size,
    group.initial.rebalance.delay.ms; the last is fixed in Kafka. `max_bytes`: headrace.group.max.bytes.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    max_bytes: int = 16 << 20
    initial_rebalance_delay_ms: int = 3_000
    new_member_join_timeout_ms: int = 300_000

    def allows_session(self, session_timeout_ms: int) -> bool:
        return self.min_session_timeout_ms <= session_timeout_ms <= self.max_session_timeout_ms


class _InitialDelay(NamedTuple):
    """A new group waits `delay_ms` at a time, at most `remaining_ms` more, while members keep joining."""

    delay_ms: int
    remaining_ms: int


class Rebalance:
    def __init__(self, group: ClassicState, timers: TimerBook, settings: ClassicGroupSettings) -> None:
        self._group = group
        self._timers = timers
        self._settings = settings
        self._initial: _InitialDelay | None = None
        self._newcomer = False
        """A new member joined during the current part of the initial delay."""
        self._began_ms = 0
        self._reason = ""

    def expect_heartbeat(self, step: Step, member: Member) -> None:
        self._timers.arm(step, session_timer(member.member_id), member.session_timeout_ms)

    def add(self, step: Step, member: Member, protocol_type: str, token: ReplyToken) -> None:
        group = self._group
        if group.state is GroupState.PREPARING_REBALANCE and group.previous is GroupState.EMPTY:
            self._newcomer = True
        group.add(member, protocol_type)
        group.join_tokens[member.member_id] = token
        # A new member has no id to send heartbeats with, and may have gone away unseen while its request
        # waits: it is given up after this time. If it is still there it tries again.
        timeout_ms = self._settings.new_member_join_timeout_ms
        self._timers.arm(step, session_timer(member.member_id), timeout_ms)

    def await_join(self, step: Step, member_id: str, token: ReplyToken) -> None:
        self.answer_join(step, JoinGroupReply(member_id=member_id, error=ErrorCode.rebalance_in_progress))
        self._group.join_tokens[member_id] = token

    def await_sync(self, step: Step, member_id: str, token: ReplyToken) -> None:
        self.answer_sync(step, member_id, SyncGroupReply(error=ErrorCode.rebalance_in_progress))
        self._group.sync_tokens[member_id] = token

    def answer_join(self, step: Step, reply: JoinGroupReply, *, member_id: str | None = None) -> None:
        """Reply to the member's pending JoinGroup, if any."""
        token = self._group.join_tokens.pop(reply.member_id if member_id is None else member_id, None)
        if token is not None:
            step.reply(token, reply)

    def answer_sync(self, step: Step, member_id: str, reply: SyncGroupReply) -> bool:
        token = self._group.sync_tokens.pop(member_id, None)
        if token is not None:
            step.reply(token, reply)
        return token is not None

    def drop(self, step: Step, member_id: str) -> None:
        """Remove a member or a pending member id; its pending request gets UNKNOWN_MEMBER_ID."""
        unknown = ErrorCode.unknown_member_id
        self.answer_join(step, JoinGroupReply(member_id=NO_MEMBER_ID, error=unknown), member_id=member_id)
        self.answer_sync(step, member_id, SyncGroupReply(error=unknown))
        self._timers.disarm(step, session_timer(member_id))
        self._group.remove(member_id)

    def take_over(self, step: Step, members: Iterable[Member], generation: int, reason: str | None) -> None:
        """Begins with the members of a KIP-848 group; `reason`: why they have to rebalance, if they have.

        A record without a leader says that they have; another coordinator will see to it (`resume`).
        """
        group = self._group
        for member in members:
            group.add(member, PROTOCOL_TYPE)
        group.generation, group.protocol = generation, group.select_protocol()
        group.leader = group.leader if reason is None else None
        self.record(step)
        for member in group.members.values():
            self.expect_heartbeat(step, member)
        if reason is not None:
            self.prepare(step, reason)

    def resume(self, step: Step) -> None:
        """After a load."""
        group, recorded = self._group, self._group.recorded
        for member in group.members.values():
            self.expect_heartbeat(step, member)
        if len(group.members) > self._settings.max_size:
            reason = f"{len(group.members)} members were loaded and {self._settings.max_size} are allowed"
            self.prepare(step, reason)
        elif group.members and recorded is not None and recorded.leader is None:
            self.prepare(step, "loaded while it turned from a consumer group into a classic one")

    def disband(self, step: Step) -> None:
        """The group changes protocol: pending requests are told to rejoin."""
        group = self._group
        again = ErrorCode.rebalance_in_progress
        for member_id in list(group.join_tokens):
            self.answer_join(step, JoinGroupReply(member_id=member_id, error=again))
        for member_id in list(group.sync_tokens):
            self.answer_sync(step, member_id, SyncGroupReply(error=again))
        group.pending.clear()
        group.unsynced.clear()
        self._initial = None
        self._timers.disarm_all(step)
        step.emit(GroupMetadataRecord(group_id=group.group_id, value=None))

    def prepare_or_complete(self, step: Step, reason: str) -> None:
        if self._group.can_rebalance:
            self.prepare(step, reason)
        else:
            self.complete_if_all_joined(step)

    def prepare(self, step: Step, reason: str) -> None:
        group = self._group
        self._began_ms, self._reason = step.now.monotonic_ms, reason
        step.log_event("rebalance", generation=group.generation, reason=reason)
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._turn_away_syncs(step)
        group.unsynced.clear()
        self._timers.disarm(step, SYNC_TIMER)
        initial = group.state is GroupState.EMPTY
        group.move_to(GroupState.PREPARING_REBALANCE, step.now.wall_ms)
        if initial:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._newcomer = False
            self._initial = _InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            self._timers.arm(step, JOIN_TIMER, delay_ms)
        elif group.all_joined:
            self.complete(step)
        else:
            self._timers.arm(step, JOIN_TIMER, group.rebalance_timeout_ms)

    def _turn_away_syncs(self, step: Step) -> None:
        self._group.clear_assignments()
        for member in self._group.members.values():
            reply = SyncGroupReply(error=ErrorCode.rebalance_in_progress)
            if self.answer_sync(step, member.member_id, reply):
                self.expect_heartbeat(step, member)

    def complete_if_all_joined(self, step: Step) -> None:
        group = self._group
        initial = group.previous is GroupState.EMPTY
        if group.state is GroupState.PREPARING_REBALANCE and not initial and group.all_joined:
            self.complete(step)

    def join_time_is_up(self, step: Step) -> None:
        if self._group.state is not GroupState.PREPARING_REBALANCE:
            return
        initial = self._initial
        if initial is None or not self._newcomer or not initial.remaining_ms:
            self.complete(step)
            return
        self._newcomer = False
        delay_ms = min(self._settings.initial_rebalance_delay_ms, initial.remaining_ms)
        self._initial = _InitialDelay(delay_ms, max(initial.remaining_ms - initial.delay_ms, 0))
        self._timers.arm(step, JOIN_TIMER, delay_ms)

    def complete(self, step: Step) -> None:
        """End the join phase with the members that joined. Static ones remain until their session expires."""
        group = self._group
        self._timers.disarm(step, JOIN_TIMER)
        self._initial = None
        for member in list(group.members.values()):
            if member.member_id not in group.join_tokens and member.instance_id is None:
                self.drop(step, member.member_id)
                step.log_event("leave", member_id=member.member_id, reason="did not rejoin in time")
        if not group.elect_joined_leader() and group.members:
            # No member joined: wait for one to join, or for the sessions to expire.
            self._timers.arm(step, JOIN_TIMER, max(group.rebalance_timeout_ms, _SHORTEST_WAIT_MS))
            return
        group.begin_generation(step.now.wall_ms)
        if group.members:
            self._answer_joins(step)
        else:
            self.record(step)
            step.log_event("empty", generation=group.generation)

    def record(self, step: Step, assignments: Mapping[str, bytes] | None = None) -> None:
        value = self._group.record(step.now.wall_ms, assignments)
        step.emit(GroupMetadataRecord(group_id=self._group.group_id, value=value))

    def _answer_joins(self, step: Step) -> None:
        group = self._group
        for member in group.members.values():
            self.answer_join(step, self.present_generation(member.member_id))
            self.expect_heartbeat(step, member)
            member.is_new = False
        group.unsynced.update(group.members)
        self._timers.arm(step, SYNC_TIMER, group.rebalance_timeout_ms)

    def present_generation(self, member_id: str) -> JoinGroupReply:
        """The reply to a JoinGroup; the leader gets the members while there is no assignment."""
        group = self._group
        assigns = group.leader == member_id and group.state is GroupState.COMPLETING_REBALANCE
        return JoinGroupReply(
            member_id=member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader or "",
            members=group.joined_members() if assigns else (),
        )

    def synced(self, step: Step, member_id: str) -> None:
        self._group.unsynced.discard(member_id)
        if not self._group.unsynced:
            self._timers.disarm(step, SYNC_TIMER)

    def propagate_assignments(self, step: Step, assignments: Mapping[str, bytes]) -> None:
        """Record the leader's assignment and reply to all pending SyncGroups."""
        group = self._group
        before = group.recorded
        self.record(step, assignments)
        took_ms = step.now.monotonic_ms - self._began_ms
        step.log_event(
            "assigned",
            generation=group.generation,
            reason=self._reason,
            took_ms=took_ms,
            protocol=group.protocol,
            members=len(group.members),
            **describe_moves(before, group.recorded),
        )
        for member in group.members.values():
            if self.answer_sync(step, member.member_id, self.present_assignment(member)):
                self.expect_heartbeat(step, member)

    def present_assignment(self, member: Member) -> SyncGroupReply:
        group = self._group
        return SyncGroupReply(
            protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment
        )

    def sync_time_is_up(self, step: Step) -> None:
        group = self._group
        absent = [member_id for member_id in group.members if member_id in group.unsynced]
        if not absent or group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        for member_id in absent:
            self.drop(step, member_id)
            step.log_event("leave", member_id=member_id, reason="did not ask for its assignment in time")
        self.prepare(step, f"removing {', '.join(absent)} on pending sync request expiration")
