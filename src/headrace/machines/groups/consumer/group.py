# SPDX-License-Identifier: Apache-2.0
"""One group of the consumer protocol (KIP-848): members heartbeat, the coordinator assigns and reconciles.

Group states: Empty (no members) → Assigning (the group epoch is ahead of the target's) → Reconciling (members
on their way to the target) → Stable; any change of members, subscriptions or topics raises the group epoch.
Member states: consumer/member.py. Events: ConsumerGroupHeartbeat (join 0, leave −1, static leave −2), Loaded,
TimerFired, MetadataChanged, RegexResolved, ConfigChanged, DeleteGroup, and the requests of members that still
speak the classic protocol (classic_members.py). Each request is answered in its step.

Semantics are those of Apache Kafka 4.3's GroupMetadataManager. Time-outs count on the monotonic clock (R34),
also where Kafka takes the wall clock: the assignment interval and the refresh of regular expressions; after a
load both begin anew. A member's rack is kept and described; as in Kafka 4.3 it plays no part in assignments.

Read next: consumer/events.py, admission.py (refusals), consumer/rebalance.py, classic_members.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.errors import ApiError, ErrorCode
from headrace.machines.groups.consumer.admission import admit
from headrace.machines.groups.consumer.checks import (
    PartitionCheck,
    check_offset_commit,
    check_offset_fetch,
    check_request,
    known_member,
    known_static_member,
)
from headrace.machines.groups.consumer.classic_members import ClassicMembers
from headrace.machines.groups.consumer.describe import describe
from headrace.machines.groups.consumer.events import (
    ConfigChanged,
    ConsumerGroupConfig,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    MetadataChanged,
    RegexResolved,
)
from headrace.machines.groups.consumer.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, Member, Partitions
from headrace.machines.groups.consumer.rebalance import JOIN, SYNC, ConsumerRebalance, Downgrade
from headrace.machines.groups.consumer.state import ConsumerGroupState
from headrace.machines.groups.consumer.target import preferred_assignor
from headrace.machines.groups.events import (
    DeleteGroup,
    ErrorReply,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from headrace.machines.machine import BaseMachine, Event, Loaded, ReplyToken, Step, TimerFired
from headrace.types import ClusterView
from headrace.wire.coordinator.consumer_group_records import ConsumerGroupMemberMetadata
from headrace.wire.coordinator.record import CoordinatorRecord


class ConsumerGroup(BaseMachine):
    def __init__(
        self,
        group_id: str,
        *,
        config: ConsumerGroupConfig,
        view: ClusterView,
        downgrade: Downgrade | None = None,
    ) -> None:
        """`downgrade`: how to become a classic group; None: never."""
        super().__init__()
        self.state = ConsumerGroupState(group_id)
        self._rebalance = ConsumerRebalance(self.state, config=config, view=view, downgrade=downgrade)
        self._classic = ClassicMembers(self._rebalance)

    @property
    def config(self) -> ConsumerGroupConfig:
        return self._rebalance.config

    @property
    def view(self) -> ClusterView:
        """The cluster metadata that the group uses."""
        return self._rebalance.view

    # --- what the driver sees ----------------------------------------------------------------------------

    def apply(self, record: CoordinatorRecord) -> None:
        self.state.apply(record)

    def snapshot(self) -> Any:
        return self.state.snapshot()

    def open_tokens(self) -> Iterable[ReplyToken]:
        return ()

    def describe(self) -> ConsumerGroupDescription:
        return describe(self.state, self.view, preferred_assignor(self.state, self.config.assignors))

    def check_offset_commit(self, commit: OffsetCommit) -> PartitionCheck | None:
        """Raises ApiError, or says what each partition has to pass; None when all may be committed."""
        return check_offset_commit(
            self.state,
            member_id=commit.member_id,
            instance_id=commit.group_instance_id,
            epoch=commit.generation,
            transactional=commit.transactional,
            version=commit.version,
        )

    def check_offset_fetch(self, fetch: OffsetFetch) -> None:
        check_offset_fetch(self.state, member_id=fetch.member_id, epoch=fetch.member_epoch)

    def subscribes_to(self, topic: str) -> bool:
        """Offsets of subscribed topics neither expire nor can be deleted."""
        return self.state.subscribes_to(topic)

    def may_write(self, event: Event) -> bool:
        match event:
            case Heartbeat() | SyncGroup() | MetadataChanged() | ConfigChanged() | Loaded():
                return False
            case ConsumerGroupHeartbeat():
                return self._heartbeat_may_write(event)
            case _:
                return True

    def _heartbeat_may_write(self, request: ConsumerGroupHeartbeat) -> bool:
        if request.member_epoch <= JOIN_EPOCH:
            return True
        try:
            check_request(self.state.group_id, request, self.config)
            before, predecessor, metadata = admit(self.state, request, self.config)
        except ApiError:
            return False
        changed = predecessor is not None or metadata != before.metadata
        return changed or not self._rebalance.is_settled(before)

    def decide(self, event: Event, step: Step) -> None:
        match event:
            case ConsumerGroupHeartbeat():
                self._answer(event, step)
            case Heartbeat() | JoinGroup() | SyncGroup() | LeaveGroup():
                self._classic.decide(event, step)
            case TimerFired():
                self._rebalance.on_timer(event.key, step)
            case MetadataChanged():
                self._rebalance.on_metadata(event)
            case RegexResolved():
                self._rebalance.on_regex_resolved(event, step)
            case ConfigChanged():
                self._rebalance.config = event.config
            case DeleteGroup():
                step.reply(event.token, ErrorReply(error=self.delete(step)))
            case Loaded():
                self._rebalance.watch(step)
            case _:
                raise TypeError(f"a consumer group does not understand {type(event).__name__}")

    # --- heartbeat ---------------------------------------------------------------------------------------

    def _answer(self, request: ConsumerGroupHeartbeat, step: Step) -> None:
        try:
            check_request(self.state.group_id, request, self.config)
            answer = self._leave if request.member_epoch < JOIN_EPOCH else self._heartbeat
            reply = answer(request, step)
        except ApiError as refusal:
            reply = ConsumerGroupHeartbeatReply(error=refusal.code, error_message=str(refusal))
        step.reply(request.token, reply)

    def _heartbeat(self, request: ConsumerGroupHeartbeat, step: Step) -> ConsumerGroupHeartbeatReply:
        if not self.state.exists and request.member_epoch != JOIN_EPOCH:
            raise ApiError(ErrorCode.group_id_not_found, f"Consumer group {self.state.group_id} not found.")
        before, predecessor, metadata = admit(self.state, request, self.config)

        # The request cannot fail from here on.
        rebalance, member_id = self._rebalance, before.member_id
        if predecessor is None and metadata is before.metadata and rebalance.leaves_alone(before):
            after = before
        else:
            after = self._move(request, before, predecessor, metadata, step)
        rebalance.renew_session(step, after)
        tells_all = request.member_epoch == JOIN_EPOCH or request.is_full or after.assigned != before.assigned
        return ConsumerGroupHeartbeatReply(
            member_id=member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=self.config.heartbeat_interval_ms,
            assignment=_numbers(after) if tells_all else None,
        )

    def _move(
        self,
        request: ConsumerGroupHeartbeat,
        before: Member,
        predecessor: Member | None,
        metadata: ConsumerGroupMemberMetadata,
        step: Step,
    ) -> Member:
        """Applies the subscription and takes the member towards its target; the member after it."""
        rebalance, member_id = self._rebalance, before.member_id
        if predecessor is not None:
            rebalance.replace(step, predecessor, before)
        if before.uses_classic_protocol:
            rebalance.disarm(step, member_id, JOIN, SYNC)
        change = rebalance.subscribe(step, before, metadata)
        rebalance.maybe_resolve_regexes(step, request)
        rebalance.subscribed(step, change)
        rebalance.maybe_assign(step)
        return rebalance.reconcile(step, member_id, request.owned_partitions, change)

    # --- the end -----------------------------------------------------------------------------------------

    def _leave(self, request: ConsumerGroupHeartbeat, step: Step) -> ConsumerGroupHeartbeatReply:
        if not self.state.exists:
            raise ApiError(ErrorCode.group_id_not_found, f"Group {self.state.group_id} not found.")
        if request.instance_id is None:
            member = known_member(self.state, request.member_id)
        else:
            member = known_static_member(self.state, request.instance_id, request.member_id)
        if request.instance_id is not None and request.member_epoch == STATIC_LEAVE_EPOCH:
            self._rebalance.step_away(step, member)
        else:
            self._rebalance.fence(step, [member], "left")
        return ConsumerGroupHeartbeatReply(member_id=request.member_id, member_epoch=request.member_epoch)

    def delete(self, step: Step) -> ErrorCode:
        if not self.state.exists:
            return ErrorCode.group_id_not_found
        if self.state.members:
            return ErrorCode.non_empty_group
        self.disband(step)
        return ErrorCode.none

    # --- becoming, and ceasing to be, a group of this protocol -------------------------------------------

    def take_over(self, step: Step, records: Iterable[CoordinatorRecord]) -> None:
        """Start with these records, converted from a classic group."""
        for record in records:
            step.emit(record)
        self._rebalance.watch(step)

    def disband(self, step: Step) -> None:
        """Write the group's tombstones, whether or not it has members."""
        self._rebalance.disband(step)


def _numbers(member: Member) -> Partitions:
    return {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
