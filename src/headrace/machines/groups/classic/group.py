# SPDX-License-Identifier: Apache-2.0
"""The classic group protocol as Apache Kafka 4's coordinator runs it.

Requests: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. States (GroupState) and the ways out of them:
  Dead                 no such group. A first JoinGroup makes it Empty.
  Empty                no members. JoinGroup → PreparingRebalance.
  PreparingRebalance   JoinGroups wait until all members have joined, or the rebalance timeout (a group that
                       was Empty: the initial delay, extended while members join). → CompletingRebalance,
                       or → Empty without members.
  CompletingRebalance  SyncGroups wait for the leader's, which makes it Stable. A member joins, leaves,
                       changes its metadata or does not sync → PreparingRebalance.
  Stable               heartbeats are answered. As above → PreparingRebalance.

Records: one GroupMetadata when a group is made, becomes Stable or Empty, or a static member returns under a
new id. Timers: ("session", member id), ("join",), ("sync",). Held replies: JoinGroup, SyncGroup.
Differences from Kafka: a request repeated while the first still waits ends the first with
REBALANCE_IN_PROGRESS, and pending requests of a leaving member are completed; Kafka lets them time out.
Protocol types other than `consumer` pass through unchanged.
Read next: classic/rebalance.py, classic/state.py; membership.py for offsets and descriptions.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from headrace.machines.groups.classic.membership import ClassicMembership
from headrace.machines.groups.classic.rebalance import (
    JOIN_TIMER,
    SYNC_TIMER,
    ClassicGroupSettings,
    Rebalance,
    session_timer,
)
from headrace.machines.groups.classic.state import ClassicState, GroupState, Member, supplied_bytes
from headrace.machines.groups.events import (
    NO_MEMBER_ID,
    DeleteGroup,
    ErrorReply,
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    LeaveGroup,
    LeaveGroupReply,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupReply,
)
from headrace.machines.machine import BaseMachine, Event, Loaded, ReplyToken, Step, TimerFired, TimerKey
from headrace.machines.timers import TimerBook
from headrace.wire.coordinator.group_records import GroupMetadata, GroupMetadataRecord
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.error_codes import ErrorCode


class ClassicGroup(BaseMachine):
    def __init__(self, group_id: str, settings: ClassicGroupSettings | None = None) -> None:
        super().__init__()
        self._settings = settings or ClassicGroupSettings()
        self._group = ClassicState(group_id)
        self._timers = TimerBook()
        self._rebalance = Rebalance(self._group, self._timers, self._settings)
        self._membership = ClassicMembership(self._group, self._rebalance)

    # What a driver needs.

    def apply(self, record: CoordinatorRecord) -> None:
        if isinstance(record, GroupMetadataRecord):
            self._group.load(record.value)

    def snapshot(self) -> GroupMetadata | None:
        return self._group.recorded

    def open_tokens(self) -> Iterable[ReplyToken]:
        return chain(self._group.join_tokens.values(), self._group.sync_tokens.values())

    @property
    def state(self) -> ClassicState:
        return self._group

    @property
    def membership(self) -> ClassicMembership:
        """Membership as seen by offsets and descriptions."""
        return self._membership

    def may_write(self, event: Event) -> bool:
        group = self._group
        match event:
            case Heartbeat() | Loaded():
                return False
            case JoinGroup():
                return group.state is GroupState.DEAD or event.group_instance_id is not None
            case SyncGroup():
                return group.state is GroupState.COMPLETING_REBALANCE and group.leader == event.member_id
            case TimerFired():  # those who joined are answered; without any the group becomes Empty
                return event.key != JOIN_TIMER or not group.join_tokens
            case _:
                return True

    def decide(self, event: Event, step: Step) -> None:
        match event:
            case Heartbeat():
                step.reply(event.token, ErrorReply(error=self._heartbeat(event, step)))
            case JoinGroup():
                self._join(event, step)
            case SyncGroup():
                self._sync(event, step)
            case LeaveGroup():
                self._leave(event, step)
            case DeleteGroup():
                step.reply(event.token, ErrorReply(error=self.delete(step)))
            case TimerFired():
                self._timer(event.key, step)
            case Loaded():
                self._rebalance.resume(step)

    # JoinGroup.

    def _join(self, event: JoinGroup, step: Step) -> None:
        group = self._group
        refusal = self._refuse_join(event)
        if refusal is not ErrorCode.none:
            step.reply(event.token, JoinGroupReply(member_id=event.member_id, error=refusal))
            return
        if group.state is GroupState.DEAD:
            self._rebalance.record(step)
        if not self._has_room_for(event.member_id) or self._supplies_too_much(event):
            self._rebalance.drop(step, event.member_id)
            full = ErrorCode.group_max_size_reached
            step.reply(event.token, JoinGroupReply(member_id=NO_MEMBER_ID, error=full))
        elif not group.supports(event.protocol_type, event.protocols):
            inconsistent = ErrorCode.inconsistent_group_protocol
            step.reply(event.token, JoinGroupReply(member_id=event.member_id, error=inconsistent))
        elif event.member_id == NO_MEMBER_ID:
            self._join_as_new(event, step)
        else:
            self._join_again(event, step)

    def _refuse_join(self, event: JoinGroup) -> ErrorCode:
        if not self._group.group_id:
            return ErrorCode.invalid_group_id
        if not self._settings.allows_session(event.session_timeout_ms):
            return ErrorCode.invalid_session_timeout
        if self._group.state is GroupState.DEAD and event.member_id != NO_MEMBER_ID:
            return ErrorCode.unknown_member_id
        return ErrorCode.none

    def _has_room_for(self, member_id: str) -> bool:
        group, max_size = self._group, self._settings.max_size
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                # Counts members that have joined: a group above its limit loses the last ones to rejoin.
                return member_id in group.join_tokens or len(group.join_tokens) < max_size
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member_id in group.members or len(group.members) < max_size
            case _:
                return True

    def _supplies_too_much(self, event: JoinGroup) -> bool:
        """S1: what members supply is kept in memory and sent to their leader."""
        names = event.member_id or event.fresh_member_id, event.group_instance_id, event.client_id
        own = supplied_bytes(event.protocols, *names)
        return own + self._group.bytes_without(event.member_id) > self._settings.max_bytes

    def _join_as_new(self, event: JoinGroup, step: Step) -> None:
        group = self._group
        if event.group_instance_id is not None:
            known_as = group.instances.get(event.group_instance_id)
            if known_as is None:
                self._add(event, event.fresh_member_id, step)
            else:
                self._return_of_static_member(event, known_as, step)
        elif event.requires_known_member_id:
            group.pending.add(event.fresh_member_id)
            self._timers.arm(step, session_timer(event.fresh_member_id), event.session_timeout_ms)
            required = ErrorCode.member_id_required
            step.reply(event.token, JoinGroupReply(member_id=event.fresh_member_id, error=required))
        else:
            self._add(event, event.fresh_member_id, step)

    def _add(self, event: JoinGroup, member_id: str, step: Step) -> None:
        member = Member(
            member_id=member_id,
            instance_id=event.group_instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            rebalance_timeout_ms=event.join_timeout_ms,
            session_timeout_ms=event.session_timeout_ms,
            protocols=event.protocols,
            is_new=True,
        )
        self._rebalance.add(step, member, event.protocol_type, event.token)
        step.log_event(
            "join",
            member_id=member_id,
            instance_id=event.group_instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
        )
        self._rebalance.prepare_or_complete(step, f"adding new member {member_id}{_because(event)}")

    def _join_again(self, event: JoinGroup, step: Step) -> None:
        group, member_id = self._group, event.member_id
        if member_id in group.pending:
            if event.group_instance_id is not None:  # static members never need to rejoin with a new id
                unexpected = ErrorCode.unknown_server_error
                step.reply(event.token, JoinGroupReply(member_id=NO_MEMBER_ID, error=unexpected))
            else:
                self._add(event, member_id, step)
            return
        error = group.check_member(member_id, event.group_instance_id)
        if error is not ErrorCode.none:
            step.reply(event.token, JoinGroupReply(member_id=member_id, error=error))
            return
        member = group.members[member_id]
        unchanged = member.protocols == event.protocols
        leads_stable_group = group.state is GroupState.STABLE and group.leader == member_id
        if group.state is not GroupState.PREPARING_REBALANCE and unchanged and not leads_stable_group:
            # It missed the reply, or wants to continue.
            step.reply(event.token, self._rebalance.present_generation(member_id))
            return
        what = f"leader {member_id} re-joining" if unchanged else f"updating metadata of member {member_id}"
        self._update(event, member, step)
        self._rebalance.prepare_or_complete(step, what + _because(event))

    def _update(self, event: JoinGroup, member: Member, step: Step) -> None:
        self._group.supply(member, event.protocols)
        member.rebalance_timeout_ms = event.join_timeout_ms
        member.session_timeout_ms = event.session_timeout_ms
        self._rebalance.await_join(step, member.member_id, event.token)

    def _return_of_static_member(self, event: JoinGroup, old_id: str, step: Step) -> None:
        """A static member that restarted: it replaces its former member id, which is fenced."""
        group, leader_before = self._group, self._group.leader
        fenced = ErrorCode.fenced_instance_id
        self._rebalance.answer_join(step, JoinGroupReply(member_id=old_id, error=fenced))
        self._rebalance.answer_sync(step, old_id, SyncGroupReply(error=fenced))
        self._timers.disarm(step, session_timer(old_id))
        member = group.replace_static(old_id, event.fresh_member_id)
        self._rebalance.expect_heartbeat(step, member)
        self._update(event, member, step)
        step.log_event("rejoin", member_id=member.member_id, instance_id=member.instance_id, replaces=old_id)
        whose = f"static member {member.member_id} with instance id {member.instance_id}"
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol:
            self._rebalance.record(step)
            self._answer_static_member(event, member.member_id, leader_before, step)
        elif group.state is GroupState.STABLE:
            self._rebalance.prepare(step, f"{whose} changes the group's protocol{_because(event)}")
        elif group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be assigning to the old id right now.
            self._rebalance.prepare(step, f"updating metadata of {whose}{_because(event)}")
        else:
            self._rebalance.complete_if_all_joined(step)

    def _answer_static_member(self, event: JoinGroup, member_id: str, leader: str | None, step: Step) -> None:
        """Reply without a rebalance. Before version 9 a leader gets the old leader's id, not to assign."""
        group = self._group
        leads = group.leader == member_id
        skips = event.supports_skipping_assignment
        reply = JoinGroupReply(
            member_id=member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=(group.leader if skips else leader) or "",
            skip_assignment=skips and leads,
            members=group.joined_members() if skips and leads else (),
        )
        self._rebalance.answer_join(step, reply)

    # SyncGroup.

    def _sync(self, event: SyncGroup, step: Step) -> None:
        group = self._group
        error = self._refuse_sync(event)
        if error is not ErrorCode.none:
            step.reply(event.token, SyncGroupReply(error=error))
        elif group.state is GroupState.STABLE:
            self._rebalance.synced(step, event.member_id)
            step.reply(event.token, self._rebalance.present_assignment(group.members[event.member_id]))
        else:
            self._rebalance.await_sync(step, event.member_id, event.token)
            self._rebalance.synced(step, event.member_id)
            if group.leader == event.member_id:
                self._rebalance.propagate_assignments(step, dict(event.assignments))

    def _refuse_sync(self, event: SyncGroup) -> ErrorCode:
        group = self._group
        if event.version >= 5 and None in (event.protocol_type, event.protocol):
            return ErrorCode.inconsistent_group_protocol
        if not group.group_id:
            return ErrorCode.invalid_group_id
        error = group.check_member(event.member_id, event.group_instance_id)
        if error is not ErrorCode.none:
            return error
        if event.generation != group.generation:
            return ErrorCode.illegal_generation
        given_and_ours = ((event.protocol_type, group.protocol_type), (event.protocol, group.protocol))
        if any(None not in (given, ours) and given != ours for given, ours in given_and_ours):
            return ErrorCode.inconsistent_group_protocol
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        too_much = sum(len(data) for _, data in event.assignments) > self._settings.max_bytes
        return ErrorCode.unknown_server_error if too_much else ErrorCode.none  # Kafka's for a large record

    # Heartbeat and LeaveGroup.

    def _heartbeat(self, event: Heartbeat, step: Step) -> ErrorCode:
        group = self._group
        if not group.group_id:
            return ErrorCode.invalid_group_id
        error = group.check_member(event.member_id, event.group_instance_id)
        if error is not ErrorCode.none:
            return error
        if event.generation != group.generation:
            return ErrorCode.illegal_generation
        self._rebalance.expect_heartbeat(step, group.members[event.member_id])
        preparing = group.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.rebalance_in_progress if preparing else ErrorCode.none

    def _leave(self, event: LeaveGroup, step: Step) -> None:
        group = self._group
        if not group.group_id:
            step.reply(event.token, LeaveGroupReply(error=ErrorCode.invalid_group_id))
            return
        results = tuple(
            LeftMember(member.member_id, member.group_instance_id, self._remove_leaving(member, step))
            for member in event.members
        )
        gone = [left.member_id for left in results if left.error is ErrorCode.none]
        error = results[0].error if results and event.version < 3 else ErrorCode.none
        step.reply(event.token, LeaveGroupReply(members=results, error=error))
        if gone and group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._rebalance.prepare(step, f"explicit `LeaveGroup` request for ({', '.join(gone)}) members")
        elif gone:
            self._rebalance.complete_if_all_joined(step)

    def _remove_leaving(self, leaving: LeavingMember, step: Step) -> ErrorCode:
        group, member_id = self._group, leaving.member_id
        if member_id == NO_MEMBER_ID:  # an administrator removes a static member by its instance id
            member_id = group.instances.get(leaving.group_instance_id or "", NO_MEMBER_ID)
            if member_id == NO_MEMBER_ID:
                return ErrorCode.unknown_member_id
        elif member_id not in group.pending:
            error = group.check_member(member_id, leaving.group_instance_id)
            if error is not ErrorCode.none:
                return error
        if member_id in group.members:
            step.log_event("leave", member_id=member_id, reason=leaving.reason or "not provided")
        self._rebalance.drop(step, member_id)
        return ErrorCode.none

    def delete(self, step: Step) -> ErrorCode:
        group = self._group
        if group.state is GroupState.DEAD:
            return ErrorCode.group_id_not_found
        if group.state is not GroupState.EMPTY:
            return ErrorCode.non_empty_group
        self.disband(step)
        return ErrorCode.none

    # Conversion from and to the consumer protocol.

    def take_over(self, step: Step, members: Iterable[Member], generation: int, reason: str | None) -> None:
        """Start with the members of a KIP-848 group; `reason`: why they have to rebalance, if they do."""
        self._rebalance.take_over(step, members, generation, reason)

    def disband(self, step: Step) -> None:
        """Write the group's tombstone, whether or not it has members."""
        self._rebalance.disband(step)

    # Timers.

    def _timer(self, key: TimerKey, step: Step) -> None:
        if not self._timers.fired(step, key):
            return
        if key == JOIN_TIMER:
            self._rebalance.join_time_is_up(step)
        elif key == SYNC_TIMER:
            self._rebalance.sync_time_is_up(step)
        else:
            self._session_ended(key[1], step)

    def _session_ended(self, member_id: str, step: Step) -> None:
        group = self._group
        member = group.members.get(member_id)
        if member is not None:
            waits = member_id in group.join_tokens or member_id in group.sync_tokens
            if waits and not member.is_new:
                return  # a pending request counts as a heartbeat; its reply restarts the timer
            step.log_event("leave", member_id=member_id, reason=f"silent for {member.session_timeout_ms} ms")
        self._rebalance.drop(step, member_id)
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
            self._rebalance.complete(step)
        elif member is not None and group.state is not GroupState.PREPARING_REBALANCE:
            reason = f"removing member {member_id} on heartbeat expiration"
            self._rebalance.prepare_or_complete(step, reason)


def _because(event: JoinGroup) -> str:
    return f"; client reason: {event.reason or 'not provided'}"
