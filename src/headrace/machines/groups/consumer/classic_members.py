# SPDX-License-Identifier: Apache-2.0
"""Members of a KIP-848 group that still speak the classic protocol (online upgrade and downgrade).

JoinGroup reconciles as a heartbeat would, with what the subscription says is owned; SyncGroup gives what the
member now has; Heartbeat says REBALANCE_IN_PROGRESS when the member has to join again. Generation is the
member epoch. Nobody waits for anybody and there is no leader, so each request is answered in its step.
Timers: a session of the member's own length; "join" from the first REBALANCE_IN_PROGRESS to JoinGroup, "sync"
from there to SyncGroup, both as long as its rebalance time-out. Who is late is fenced.

As Apache Kafka 4.3's classicGroupJoinToConsumerGroup and its siblings, but for two things. Where downgrades
are disabled and the last KIP-848 member is gone, classic members are told to rejoin as soon as the group
epoch rises: nobody else would compute the target (Kafka leaves partitions without an owner). And a static
member that turns the group classic spares it the rebalance only when everyone has reached the target (Kafka:
when there is one, though a partition can then have two owners for a while).
Read next: consumer/rebalance.py, groups/migration.py.
"""

from __future__ import annotations

from headrace.errors import ApiError, DecodeError, ErrorCode
from headrace.machines.groups.consumer.admission import join_static
from headrace.machines.groups.consumer.checks import (
    check_bytes,
    check_room,
    known_member,
    known_static_member,
)
from headrace.machines.groups.consumer.member import Member, MemberState
from headrace.machines.groups.consumer.rebalance import JOIN, REBALANCE, SYNC, Change, ConsumerRebalance
from headrace.machines.groups.events import (
    NO_MEMBER_ID,
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
from headrace.machines.groups.topic_names import by_topic_id, by_topic_name
from headrace.machines.machine import ReplyBody, Step
from headrace.wire.coordinator.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadata,
)
from headrace.wire.coordinator.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    assignment_version,
    decode_subscription,
    encode_assignment,
)


class ClassicMembers:
    def __init__(self, rebalance: ConsumerRebalance) -> None:
        self._rebalance = rebalance
        self._state = rebalance.state

    def decide(self, event: Heartbeat | JoinGroup | SyncGroup | LeaveGroup, step: Step) -> None:
        reply: ReplyBody
        try:
            reply = self._answer(event, step)
        except ApiError as refusal:
            reply = _refused(event, refusal.code)
        step.reply(event.token, reply)

    def _answer(self, event: Heartbeat | JoinGroup | SyncGroup | LeaveGroup, step: Step) -> ReplyBody:
        match event:
            case Heartbeat():
                return ErrorReply(error=self._heartbeat(event, step))
            case JoinGroup():
                return self._join(event, step)
            case SyncGroup():
                return self._sync(event, step)
            case LeaveGroup():
                return self._leave(event, step)

    # --- JoinGroup ---------------------------------------------------------------------------------------

    def _join(self, event: JoinGroup, step: Step) -> JoinGroupReply:
        member_id = event.member_id or event.fresh_member_id
        check_room(self._state, member_id, self._rebalance.config)
        self._check_protocols(event)
        if not event.member_id and event.group_instance_id is None and event.requires_known_member_id:
            return JoinGroupReply(member_id=member_id, error=ErrorCode.member_id_required)
        before, predecessor = self._find(event, member_id)
        try:
            subscription = decode_subscription(event.protocols[0].metadata)
        except DecodeError:
            raise ApiError(ErrorCode.unknown_server_error, "the embedded subscription is malformed") from None
        updated = _updated(event, subscription, before.metadata)
        check_bytes(self._state, member_id, updated, self._rebalance.config)
        downgrades = self._replaces_last_of_the_others(event)

        # The request cannot fail from here on.
        rebalance = self._rebalance
        if predecessor is not None:
            rebalance.replace(step, predecessor, before)
        change = rebalance.subscribe(step, before, updated)
        rebalance.maybe_resolve_regexes(step, event)
        rebalance.subscribed(step, change)
        move_on = self._downgrade if downgrades else self._advance
        after = move_on(event, member_id, subscription, change, step)
        return JoinGroupReply(
            member_id=member_id,
            generation=after.member_epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol=event.protocols[0].name,
        )

    def _check_protocols(self, event: JoinGroup) -> None:
        """One of the protocols has to be common to all who speak the classic protocol."""
        others = [
            {name for name, _ in member.metadata.classic.supported_protocols}
            for member in self._state.members.values()
            if member.metadata.classic is not None
        ]
        common = any(all(name in supported for supported in others) for name, _ in event.protocols)
        if event.protocol_type != PROTOCOL_TYPE or not common:
            raise ApiError(ErrorCode.inconsistent_group_protocol)

    def _find(self, event: JoinGroup, member_id: str) -> tuple[Member, Member | None]:
        """The member as it was, and the static member whose place it takes."""
        state, instance_id = self._state, event.group_instance_id
        if instance_id is None:
            return state.members.get(member_id) or Member(member_id=member_id), None
        if event.member_id == NO_MEMBER_ID:
            return join_static(state, instance_id, member_id, may_take_over=True)
        return known_static_member(state, instance_id, member_id), None

    def _replaces_last_of_the_others(self, event: JoinGroup) -> bool:
        """Whether a classic member takes the place of the only one that spoke KIP-848."""
        state = self._state
        replaced = None if event.group_instance_id is None else state.static_member(event.group_instance_id)
        if replaced is None or not self._rebalance.may_downgrade(len(state.members)):
            return False
        return [m for m in state.members.values() if not m.uses_classic_protocol] == [replaced]

    def _advance(
        self, event: JoinGroup, member_id: str, subscription: Subscription, change: Change, step: Step
    ) -> Member:
        rebalance = self._rebalance
        rebalance.maybe_assign(step)
        owned = by_topic_id(subscription.owned, rebalance.view)
        after = rebalance.reconcile(step, member_id, owned, change)
        rebalance.disarm(step, member_id, JOIN, REBALANCE)
        rebalance.renew_session(step, after)
        rebalance.timers.arm(step, (SYNC, member_id), event.join_timeout_ms)
        return after

    def _downgrade(
        self, event: JoinGroup, member_id: str, subscription: Subscription, change: Change, step: Step
    ) -> Member:
        """The group goes on as a classic one; without a rebalance if its assignment still fits."""
        rebalance, state, reason = self._rebalance, self._state, None
        after = state.members[member_id]
        if state.assignment_epoch >= state.group_epoch:
            owned = by_topic_id(subscription.owned, rebalance.view)
            after = rebalance.reconcile(step, member_id, owned, change)
        if state.state != "Stable":
            reason = f"static member {event.group_instance_id} came back with the classic protocol"
        rebalance.become_classic(step, list(state.members.values()), reason)
        return after

    # --- SyncGroup, Heartbeat ----------------------------------------------------------------------------

    def _sync(self, event: SyncGroup, step: Step) -> SyncGroupReply:
        if event.version >= 5 and None in (event.protocol_type, event.protocol):
            raise ApiError(ErrorCode.inconsistent_group_protocol)
        member, classic = self._find_classic(event)
        name, metadata = classic.supported_protocols[0]
        if event.protocol_type not in (None, PROTOCOL_TYPE) or event.protocol not in (None, name):
            raise ApiError(ErrorCode.inconsistent_group_protocol)
        if self._is_behind(member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(step, member)
            raise ApiError(ErrorCode.rebalance_in_progress)
        rebalance = self._rebalance
        rebalance.disarm(step, member.member_id, SYNC)
        rebalance.renew_session(step, member)
        return SyncGroupReply(
            protocol_type=event.protocol_type,
            protocol=event.protocol,
            assignment=encode_assignment(
                by_topic_name(member.assigned, rebalance.view), version=assignment_version(metadata)
            ),
        )

    def _heartbeat(self, event: Heartbeat, step: Step) -> ErrorCode:
        member, _ = self._find_classic(event)
        self._rebalance.renew_session(step, member)
        if not self._has_to_rejoin(member):
            return ErrorCode.none
        self._expect_join(step, member)
        return ErrorCode.rebalance_in_progress

    def _find_classic(self, event: SyncGroup | Heartbeat) -> tuple[Member, ClassicMemberMetadata]:
        if event.group_instance_id is None:
            member = known_member(self._state, event.member_id)
        else:
            member = known_static_member(self._state, event.group_instance_id, event.member_id)
        classic = member.metadata.classic
        if classic is None:
            raise ApiError(ErrorCode.unknown_member_id)
        if event.generation != member.member_epoch:
            raise ApiError(ErrorCode.illegal_generation)
        return member, classic

    def _is_behind(self, member: Member) -> bool:
        state = self._state
        if member.member_epoch < state.assignment_epoch:
            return True
        if member.member_epoch >= state.group_epoch:
            return False
        return all(other.uses_classic_protocol for other in state.members.values())

    def _has_to_rejoin(self, member: Member) -> bool:
        if self._is_behind(member) or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        return member.state is MemberState.UNRELEASED_PARTITIONS and not self._waits_for_others(member)

    def _waits_for_others(self, member: Member) -> bool:
        """Whether a partition of its target is still held by somebody else."""
        state = self._state
        return any(
            state.holder_of(topic_id, partition) not in (None, member.member_id)
            for topic_id, partitions in state.target.get(member.member_id, {}).items()
            for partition in partitions
        )

    def _expect_join(self, step: Step, member: Member) -> None:
        """Counted from the first request to rejoin; later ones do not extend it."""
        key = (JOIN, member.member_id)
        if key not in self._rebalance.timers.armed():
            self._rebalance.timers.arm(step, key, member.metadata.rebalance_timeout_ms)

    # --- LeaveGroup --------------------------------------------------------------------------------------

    def _leave(self, event: LeaveGroup, step: Step) -> LeaveGroupReply:
        """Of either protocol: an administrator removes members with this request too."""
        leaving: dict[str, Member] = {}
        results = []
        for asked in event.members:
            error = ErrorCode.none
            try:
                member = self._find_leaving(asked)
                leaving[member.member_id] = member
            except ApiError as refusal:
                error = refusal.code
            results.append(LeftMember(asked.member_id, asked.group_instance_id, error))
        if leaving:
            self._rebalance.fence(step, list(leaving.values()), "left")
        first = results[0].error if results and event.version < 3 else ErrorCode.none
        return LeaveGroupReply(members=tuple(results), error=first)

    def _find_leaving(self, asked: LeavingMember) -> Member:
        if asked.group_instance_id is None:
            return known_member(self._state, asked.member_id)
        member = self._state.static_member(asked.group_instance_id)
        named = asked.member_id or (NO_MEMBER_ID if member is None else member.member_id)
        return known_static_member(self._state, asked.group_instance_id, named)


def _updated(
    event: JoinGroup, subscription: Subscription, before: ConsumerGroupMemberMetadata
) -> ConsumerGroupMemberMetadata:
    """The member's subscription after this JoinGroup; who sends one speaks the classic protocol."""
    timeout_ms = event.join_timeout_ms
    return ConsumerGroupMemberMetadata(
        client_id=event.client_id,
        client_host=event.client_host,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        subscribed_topic_regex="",
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=before.server_assignor,
        instance_id=event.group_instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        classic=ClassicMemberMetadata(
            session_timeout_ms=event.session_timeout_ms,
            supported_protocols=tuple((name, metadata) for name, metadata in event.protocols),
        ),
    )


def _refused(event: Heartbeat | JoinGroup | SyncGroup | LeaveGroup, error: ErrorCode) -> ReplyBody:
    match event:
        case JoinGroup():
            return JoinGroupReply(member_id=NO_MEMBER_ID, error=error)
        case SyncGroup():
            return SyncGroupReply(error=error)
        case _:
            return ErrorReply(error=error)
