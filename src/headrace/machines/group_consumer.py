"""One group of the consumer protocol (KIP-848): members heartbeat, the coordinator assigns and reconciles.

Group states: Empty (no members) → Assigning (the group epoch is ahead of the target's) → Reconciling (members
on their way to the target) → Stable; any change of members, subscriptions or topics raises the group epoch.
Member states: consumer_member.py. Events: ConsumerGroupHeartbeat (join 0, leave −1, static leave −2), Loaded,
TimerFired, MetadataChanged, RegexResolved, ConfigChanged, DeleteGroup. Each request is answered in its step.

Semantics are those of Apache Kafka 4.3's GroupMetadataManager. Time-outs count on the monotonic clock (R34),
also where Kafka takes the wall clock: the assignment interval and the refresh of regular expressions; after a
load both begin anew.

Gap: members of the classic protocol inside this group (online upgrade and downgrade). Their subscription is
kept (`Member.uses_classic_protocol`) and fenced as theirs, but JoinGroup, SyncGroup, Heartbeat and LeaveGroup
do not reach this machine, and the last KIP-848 member that leaves does not turn the group back: the place for
that is `_fence`. Racks play no part in assignments.

Read next: consumer_events.py, consumer_checks.py (refusals), consumer_target.py, consumer_reconcile.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.errors import ApiError, ErrorCode
from headrace.machines.consumer_checks import (
    PartitionCheck,
    check_epoch,
    check_offset_commit,
    check_offset_fetch,
    check_regex,
    check_released,
    check_request,
    check_room,
    check_understood,
    known_member,
    known_static_member,
)
from headrace.machines.consumer_describe import describe
from headrace.machines.consumer_events import (
    ConfigChanged,
    ConsumerGroupConfig,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    MetadataChanged,
    RegexResolved,
)
from headrace.machines.consumer_group_records import ConsumerGroupMemberMetadata, ResolvedRegularExpression
from headrace.machines.consumer_member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, Member, MemberState, Partitions
from headrace.machines.consumer_reconcile import Goal, reconcile
from headrace.machines.consumer_regex import RegexRefresh
from headrace.machines.consumer_state import ConsumerGroupState
from headrace.machines.consumer_target import (
    compute_target,
    metadata_hash,
    preferred_assignor,
    subscribed_topic_ids,
)
from headrace.machines.consumer_timeline import Timeline
from headrace.machines.consumer_writer import GroupWriter
from headrace.machines.group_events import DeleteGroup, ErrorReply, OffsetCommit, OffsetFetch
from headrace.machines.machine import (
    BaseMachine,
    Event,
    Loaded,
    Record,
    ReplyToken,
    Step,
    TimerFired,
    TimerKey,
)
from headrace.machines.timers import TimerBook
from headrace.types import ClusterView

SESSION, REBALANCE = "session", "rebalance"


class Change(NamedTuple):
    """What a heartbeat changed of its member's subscription."""

    names: bool
    regex: bool
    regex_is_resolved: bool
    """The topics of the new expression are known, so the target can be computed at once."""

    @property
    def raises_epoch(self) -> bool:
        return self.names or self.regex_is_resolved

    @property
    def anything(self) -> bool:
        return self.names or self.regex


NO_CHANGE = Change(names=False, regex=False, regex_is_resolved=False)


class ConsumerGroup(BaseMachine):
    def __init__(self, group_id: str, *, config: ConsumerGroupConfig, view: ClusterView) -> None:
        super().__init__()
        self.state = ConsumerGroupState(group_id)
        self.config = config
        self._view = view
        self._metadata_is_stale = True
        self._assigned_at_ms: int | None = None
        self._regexes = RegexRefresh(view)
        self._timers = TimerBook()
        self._timeline = Timeline()

    # --- what the driver sees ----------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        self.state.apply(record)

    def snapshot(self) -> Any:
        return self.state.snapshot()

    def open_tokens(self) -> Iterable[ReplyToken]:
        return ()

    def describe(self) -> ConsumerGroupDescription:
        return describe(self.state, self._view, preferred_assignor(self.state, self.config.assignors))

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
        """Offsets of such a topic neither expire nor may be deleted."""
        return self.state.subscribes_to(topic)

    def decide(self, event: Event, step: Step) -> None:
        match event:
            case ConsumerGroupHeartbeat():
                self._answer(event, step)
            case TimerFired():
                self._on_timer(event.key, step)
            case MetadataChanged():
                self._on_metadata(event)
            case RegexResolved():
                self._on_regex_resolved(event, step)
            case ConfigChanged():
                self.config = event.config
            case DeleteGroup():
                step.reply(event.token, ErrorReply(error=self.delete(step)))
            case Loaded():
                self._on_loaded(step)
            case _:
                raise TypeError(f"a consumer group does not understand {type(event).__name__}")

    # --- heartbeat ---------------------------------------------------------------------------------------

    def _answer(self, request: ConsumerGroupHeartbeat, step: Step) -> None:
        try:
            check_request(request, self.config)
            answer = self._leave if request.member_epoch < JOIN_EPOCH else self._heartbeat
            reply = answer(request, step)
        except ApiError as refusal:
            reply = ConsumerGroupHeartbeatReply(error=refusal.code, error_message=str(refusal))
        step.reply(request.token, reply)

    def _heartbeat(self, request: ConsumerGroupHeartbeat, step: Step) -> ConsumerGroupHeartbeatReply:
        if not self.state.exists and request.member_epoch != JOIN_EPOCH:
            raise ApiError(ErrorCode.group_id_not_found, f"Consumer group {self.state.group_id} not found.")
        check_room(self.state, request.member_id, self.config)
        member_id = request.member_id or request.fresh_member_id
        before, predecessor = self._admit(request, member_id)
        check_understood(before, request.owned_partitions)
        metadata = request.updated(before.metadata)
        check_regex(self.state, metadata.subscribed_topic_regex, request.regex_error)

        # Nothing is refused from here on: what is emitted stays.
        if predecessor is not None:
            self._replace(step, predecessor, before)
        change = self._subscribe(step, before, metadata)
        self._regexes.maybe_ask(
            step, self.state, self._view, request, interval_ms=self.config.regex_refresh_interval_ms
        )
        if change.raises_epoch or self._metadata_is_stale:
            reason = "subscription changed" if change.raises_epoch else "topics changed"
            self._refresh_metadata(step, reason, bump=change.raises_epoch)
        self._maybe_assign(step)
        after = self._reconcile(step, member_id, request.owned_partitions, change)
        self._renew_session(step, member_id)
        tells_all = request.member_epoch == JOIN_EPOCH or request.is_full or after.assigned != before.assigned
        return ConsumerGroupHeartbeatReply(
            member_id=member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=self.config.heartbeat_interval_ms,
            assignment=_numbers(after) if tells_all else None,
        )

    def _admit(self, request: ConsumerGroupHeartbeat, member_id: str) -> tuple[Member, Member | None]:
        """The member as it was, and the static member whose place it takes. Raises what it is refused for."""
        joining, instance_id = request.member_epoch == JOIN_EPOCH, request.instance_id
        if instance_id is None:
            member = self.state.members.get(member_id) if joining else known_member(self.state, member_id)
            if member is None:
                return Member(member_id=member_id), None
        elif joining:
            existing = self.state.static_member(instance_id)
            if existing is None:
                return self.state.members.get(member_id) or Member(member_id=member_id), None
            check_released(existing, instance_id, member_id)
            return existing.succeeded_by(member_id), existing
        else:
            member = known_static_member(self.state, instance_id, member_id)
        check_epoch(member, request.member_epoch, request.owned_partitions)
        return member, None

    def _replace(self, step: Step, old: Member, new: Member) -> None:
        target = self.state.target.get(old.member_id, {})
        writer = self._writer(step)
        writer.member_is_gone(old.member_id)
        self._disarm(step, old.member_id, SESSION, REBALANCE)
        writer.member(new.member_id, new.metadata)
        writer.target(new.member_id, target)
        writer.current(new)
        self._timeline.rejoined(step, new, replaces=old.member_id)

    def _writer(self, step: Step) -> GroupWriter:
        return GroupWriter(step, self.state.group_id)

    def _subscribe(self, step: Step, before: Member, metadata: ConsumerGroupMemberMetadata) -> Change:
        if metadata == before.metadata:
            return NO_CHANGE
        state, writer, member_id = self.state, self._writer(step), before.member_id
        regex = metadata.subscribed_topic_regex or None
        regex_is_new = regex is not None and regex not in state.regex_subscribers
        if member_id not in state.members:
            self._timeline.joined(step, member_id, metadata)
        writer.member(member_id, metadata)
        if before.regex not in (None, regex) and before.regex not in state.regex_subscribers:
            writer.regex(before.regex, None)
        regex_changed = regex != before.regex
        known = regex is None or (not regex_is_new and regex in state.resolved)
        return Change(
            names=metadata.subscribed_topic_names != before.metadata.subscribed_topic_names,
            regex=regex_changed,
            regex_is_resolved=regex_changed and known,
        )

    def _refresh_metadata(self, step: Step, reason: str, *, bump: bool) -> None:
        self._metadata_is_stale = False
        found = metadata_hash(self.state.subscribed_topics(), self._view)
        if bump or found != self.state.metadata_hash:
            self._raise_epoch(step, reason, found)

    def _raise_epoch(self, step: Step, reason: str, topics_hash: int) -> None:
        self._writer(step).epoch(self.state.group_epoch + 1, topics_hash)
        self._timeline.rebalance(step, self.state.group_epoch, reason)

    def _maybe_assign(self, step: Step) -> None:
        """A new target when the group epoch is ahead of it, but not more often than the interval says."""
        state, now_ms = self.state, step.now.monotonic_ms
        if state.assignment_epoch >= state.group_epoch:
            return
        last_ms = self._assigned_at_ms
        if last_ms is not None and now_ms < last_ms + self.config.assignment_interval_ms:
            return
        writer = self._writer(step)
        assignor, before = preferred_assignor(state, self.config.assignors), dict(state.target)
        for member_id, partitions in compute_target(state, self._view, assignor).items():
            if state.target.get(member_id) != partitions:
                writer.target(member_id, partitions)
        writer.target_epoch(state.group_epoch)
        self._assigned_at_ms = now_ms
        self._timeline.target(step, state, before, assignor, self._view)

    def _reconcile(self, step: Step, member_id: str, owned: Partitions | None, change: Change) -> Member:
        state = self.state
        member = state.members[member_id]
        if not change.anything and member.is_reconciled_to(state.assignment_epoch):
            return member
        goal = Goal(
            epoch=state.assignment_epoch,
            target=state.target.get(member_id, {}),
            subscribed=subscribed_topic_ids(member, state, self._view),
            holder_of=state.holder_of,
        )
        after = reconcile(member, goal, owned=owned, subscription_changed=change.anything)
        if after != member:
            self._writer(step).current(after)
            self._watch_revocation(step, after)
            self._timeline.reconciled(step, state, after)
        return after

    # --- leaving -----------------------------------------------------------------------------------------

    def _leave(self, request: ConsumerGroupHeartbeat, step: Step) -> ConsumerGroupHeartbeatReply:
        if not self.state.exists:
            raise ApiError(ErrorCode.group_id_not_found, f"Group {self.state.group_id} not found.")
        if request.instance_id is None:
            member = known_member(self.state, request.member_id)
        else:
            member = known_static_member(self.state, request.instance_id, request.member_id)
        if request.instance_id is not None and request.member_epoch == STATIC_LEAVE_EPOCH:
            self._writer(step).current(member.away())
            self._disarm(step, member.member_id, REBALANCE)
            self._timeline.left(step, member.member_id, "static member, expected back")
        else:
            self._fence(step, member, "left")
        return ConsumerGroupHeartbeatReply(member_id=request.member_id, member_epoch=request.member_epoch)

    def _fence(self, step: Step, member: Member, reason: str) -> None:
        writer = self._writer(step)
        writer.member_is_gone(member.member_id)
        self._disarm(step, member.member_id, SESSION, REBALANCE)
        if member.regex is not None and member.regex not in self.state.regex_subscribers:
            writer.regex(member.regex, None)
        self._timeline.left(step, member.member_id, reason)
        self._raise_epoch(step, reason, metadata_hash(self.state.subscribed_topics(), self._view))
        self._timeline.maybe_settled(step, self.state)

    def delete(self, step: Step) -> ErrorCode:
        if not self.state.exists:
            return ErrorCode.group_id_not_found
        if self.state.members:
            return ErrorCode.non_empty_group
        writer = self._writer(step)
        for regex in list(self.state.resolved):
            writer.regex(regex, None)
        writer.group_is_gone()
        self._assigned_at_ms = None
        return ErrorCode.none

    # --- time, topics and regular expressions ------------------------------------------------------------

    def _on_loaded(self, step: Step) -> None:
        for member_id, member in self.state.members.items():
            self._renew_session(step, member_id)
            self._watch_revocation(step, member)

    def _renew_session(self, step: Step, member_id: str) -> None:
        self._timers.arm(step, (SESSION, member_id), self.config.session_timeout_ms)

    def _watch_revocation(self, step: Step, member: Member) -> None:
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._timers.arm(step, (REBALANCE, member.member_id), member.metadata.rebalance_timeout_ms)
        else:
            self._disarm(step, member.member_id, REBALANCE)

    def _disarm(self, step: Step, member_id: str, *kinds: str) -> None:
        for kind in kinds:
            self._timers.disarm(step, (kind, member_id))

    def _on_timer(self, key: TimerKey, step: Step) -> None:
        if self._timers.fired(step, key):
            kind, member_id = key
            reason = "session timed out" if kind == SESSION else "did not give up partitions in time"
            self._fence(step, self.state.members[member_id], reason)

    def _on_metadata(self, event: MetadataChanged) -> None:
        before, self._view = self._view, event.view
        if event.topics_created:
            self._regexes.topics_created(event.view)
        if not self._metadata_is_stale:
            self._metadata_is_stale = any(
                before.topics.get(name) is not event.view.topics.get(name)
                for name in self.state.subscribed_topics()
            )

    def _on_regex_resolved(self, event: RegexResolved, step: Step) -> None:
        self._regexes.answered(step, failed=event.topics is None)
        if event.topics is None or not self.state.exists:
            return
        state, writer, bump = self.state, self._writer(step), False
        for regex, topics in sorted(event.topics.items()):
            if regex not in state.regex_subscribers:
                continue
            old = state.resolved.get(regex)
            bump = bump or topics != frozenset(old.topics if old else ())
            resolved = ResolvedRegularExpression(
                topics=tuple(sorted(topics)), version=event.version, timestamp=step.now.wall_ms
            )
            writer.regex(regex, resolved)
        self._refresh_metadata(step, "topics of a regular expression", bump=bump)


def _numbers(member: Member) -> Partitions:
    return {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
