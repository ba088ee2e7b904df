# SPDX-License-Identifier: Apache-2.0
"""Rebalance of a KIP-848 group: moves members of either protocol from one target to the next.

Handles epochs, targets, timers and regular expressions of a ConsumerGroupState for consumer/group.py
(heartbeats) and classic_members.py (members of the classic protocol).
Timers: ("session", id); ("rebalance", id) of KIP-848 members; ("join", id) and ("sync", id) of classic ones.
Read next: target.py, reconcile.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from headrace.machines.groups.consumer.events import (
    ConsumerGroupConfig,
    ConsumerGroupHeartbeat,
    MetadataChanged,
    RegexResolved,
)
from headrace.machines.groups.consumer.member import Member, MemberState, Partitions
from headrace.machines.groups.consumer.reconcile import Goal, reconcile
from headrace.machines.groups.consumer.regex import RegexRefresh
from headrace.machines.groups.consumer.state import ConsumerGroupState
from headrace.machines.groups.consumer.target import (
    compute_target,
    metadata_hash,
    preferred_assignor,
    subscribed_topic_ids,
)
from headrace.machines.groups.consumer.timeline import Timeline
from headrace.machines.groups.consumer.writer import GroupWriter
from headrace.machines.groups.events import JoinGroup
from headrace.machines.machine import Step, TimerKey
from headrace.machines.timers import TimerBook
from headrace.types import ClusterView
from headrace.wire.coordinator.consumer_group_records import (
    ConsumerGroupMemberMetadata,
    ResolvedRegularExpression,
)

SESSION, REBALANCE, JOIN, SYNC = "session", "rebalance", "join", "sync"

_TOO_LATE = {
    SESSION: "session timed out",
    REBALANCE: "did not give up partitions in time",
    JOIN: "did not rejoin in time",
    SYNC: "did not ask for its assignment in time",
}


class Change(NamedTuple):
    """How a request changed its member's subscription."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Downgrade:
    """How the group becomes a classic one when only classic members are left (online downgrade)."""

    max_size: int
    convert: Callable[[Step, Collection[Member], str | None], None]
    """The members that go on, and why they have to rebalance; None: they go on as they are."""


class ConsumerRebalance:
    def __init__(
        self,
        state: ConsumerGroupState,
        *,
        config: ConsumerGroupConfig,
        view: ClusterView,
        downgrade: Downgrade | None,
    ) -> None:
        self.state = state
        self.config = config
        self.view = view
        self.timers = TimerBook()
        self._downgrade = downgrade
        self._timeline = Timeline()
        self._regexes = RegexRefresh(view)
        self._metadata_is_stale = True
        self._assigned_at_ms: int | None = None

    def writer(self, step: Step) -> GroupWriter:
        return GroupWriter(step, self.state.group_id)

    # --- members -----------------------------------------------------------------------------------------

    def replace(self, step: Step, old: Member, new: Member) -> None:
        """Replace a static member's id; its assignment and target stay."""
        target = self.state.target.get(old.member_id, {})
        writer = self.writer(step)
        writer.member_is_gone(old.member_id)
        self.disarm(step, old.member_id)
        writer.member(new.member_id, new.metadata)
        writer.target(new.member_id, target)
        writer.current(new)
        self._timeline.rejoined(step, new, replaces=old.member_id)

    def subscribe(self, step: Step, before: Member, metadata: ConsumerGroupMemberMetadata) -> Change:
        if metadata is before.metadata or metadata == before.metadata:
            return NO_CHANGE
        state, writer, member_id = self.state, self.writer(step), before.member_id
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

    def step_away(self, step: Step, member: Member) -> None:
        """A static member left temporarily."""
        self.writer(step).current(member.away())
        self.disarm(step, member.member_id, REBALANCE)
        self._timeline.left(step, member.member_id, "static member, expected back")

    def fence(self, step: Step, members: Collection[Member], reason: str) -> None:
        """Remove members together; this may convert the group to a classic one."""
        gone = {member.member_id for member in members}
        staying = [member for member_id, member in self.state.members.items() if member_id not in gone]
        for member in members:
            self._timeline.left(step, member.member_id, reason)
        if staying and self._all_classic(staying) and self.may_downgrade(len(staying)):
            self.become_classic(step, staying, f"only members of the classic protocol are left: {reason}")
            return
        writer = self.writer(step)
        for member in members:
            writer.member_is_gone(member.member_id)
            self.disarm(step, member.member_id)
        for regex in sorted({member.regex for member in members if member.regex is not None}):
            if regex not in self.state.regex_subscribers:
                writer.regex(regex, None)
        whose = ", ".join(member.member_id for member in members)
        self._raise_epoch(
            step, f"{whose}: {reason}", metadata_hash(self.state.subscribed_topics(), self.view)
        )
        self._timeline.maybe_completed(step, self.state)

    # --- epochs, targets, assignments --------------------------------------------------------------------

    def maybe_resolve_regexes(self, step: Step, request: ConsumerGroupHeartbeat | JoinGroup) -> None:
        """After a member's subscription was applied, which came with the request."""
        if self.state.regex_subscribers:
            self._regexes.maybe_ask(
                step,
                self.state,
                self.view,
                client_id=request.client_id,
                client_host=request.client_host,
                principal=request.principal,
                interval_ms=self.config.regex_refresh_interval_ms,
            )

    def subscribed(self, step: Step, change: Change) -> None:
        """Raises the group epoch when the subscription or the topics have changed."""
        if change.raises_epoch or self._metadata_is_stale:
            reason = "subscription changed" if change.raises_epoch else "topics changed"
            self._refresh_metadata(step, reason, bump=change.raises_epoch)

    def _refresh_metadata(self, step: Step, reason: str, *, bump: bool) -> None:
        self._metadata_is_stale = False
        found = metadata_hash(self.state.subscribed_topics(), self.view)
        if bump or found != self.state.metadata_hash:
            self._raise_epoch(step, reason, found)

    def _raise_epoch(self, step: Step, reason: str, topics_hash: int) -> None:
        self.writer(step).epoch(self.state.group_epoch + 1, topics_hash)
        self._timeline.rebalance(step, self.state.group_epoch, reason)

    def is_settled(self, member: Member) -> bool:
        """Whether a heartbeat of this member that changes nothing finds nothing to do either."""
        state = self.state
        if self._metadata_is_stale and state.metadata_hash != metadata_hash(
            state.subscribed_topics(), self.view
        ):
            return False
        return state.assignment_epoch >= state.group_epoch and member.is_reconciled_to(state.assignment_epoch)

    def leaves_alone(self, member: Member) -> bool:
        """Whether nothing is to be done for a member, by what is known without a computation.

        True for most heartbeats. `is_settled` says more, but has to look at the topics.
        """
        state = self.state
        return (
            not self._metadata_is_stale
            and not state.regex_subscribers
            and state.assignment_epoch >= state.group_epoch
            and member.is_reconciled_to(state.assignment_epoch)
        )

    def maybe_assign(self, step: Step) -> None:
        """A new target when the group epoch is ahead of it, but not more often than the interval says."""
        state, now_ms = self.state, step.now.monotonic_ms
        if state.assignment_epoch >= state.group_epoch:
            return
        last_ms = self._assigned_at_ms
        if last_ms is not None and now_ms < last_ms + self.config.assignment_interval_ms:
            return
        writer = self.writer(step)
        assignor = preferred_assignor(state, self.config.assignors)
        changed = compute_target(state, self.view, assignor)
        before = {member_id: state.target.get(member_id, {}) for member_id in changed}
        for member_id, partitions in changed.items():
            writer.target(member_id, partitions)
        writer.target_epoch(state.group_epoch)
        self._assigned_at_ms = now_ms
        self._timeline.target(step, state, before, changed, assignor, self.view)

    def reconcile(self, step: Step, member_id: str, owned: Partitions | None, change: Change) -> Member:
        state = self.state
        member = state.members[member_id]
        if not change.anything and member.is_reconciled_to(state.assignment_epoch):
            return member
        goal = Goal(
            epoch=state.assignment_epoch,
            target=state.target.get(member_id, {}),
            subscribed=subscribed_topic_ids(member, state, self.view),
            holder_of=state.holder_of,
        )
        after = reconcile(member, goal, owned=owned, subscription_changed=change.anything)
        if after != member:
            self.writer(step).current(after)
            self._watch_revocation(step, after)
            self._timeline.reconciled(step, state, after)
        return after

    # --- the end -----------------------------------------------------------------------------------------

    def may_downgrade(self, size: int) -> bool:
        return self._downgrade is not None and size <= self._downgrade.max_size

    def _all_classic(self, members: Collection[Member]) -> bool:
        return all(member.uses_classic_protocol for member in members)

    def become_classic(self, step: Step, members: Collection[Member], reason: str | None) -> None:
        assert self._downgrade is not None
        self._downgrade.convert(step, members, reason)

    def disband(self, step: Step) -> None:
        """Write the tombstones of the whole group."""
        self.writer(step).group_is_gone(list(self.state.members), list(self.state.resolved))
        self.timers.disarm_all(step)
        self._assigned_at_ms = None

    # --- time, topics and regular expressions ------------------------------------------------------------

    def watch(self, step: Step) -> None:
        """Start the session and revocation timers of every member."""
        for member in self.state.members.values():
            self.renew_session(step, member)
            self._watch_revocation(step, member)

    def renew_session(self, step: Step, member: Member) -> None:
        classic = member.metadata.classic
        timeout_ms = self.config.session_timeout_ms if classic is None else classic.session_timeout_ms
        self.timers.arm(step, (SESSION, member.member_id), timeout_ms)

    def _watch_revocation(self, step: Step, member: Member) -> None:
        """A classic member is watched from JoinGroup to SyncGroup instead (classic_members.py)."""
        if member.state is MemberState.UNREVOKED_PARTITIONS and not member.uses_classic_protocol:
            self.timers.arm(step, (REBALANCE, member.member_id), member.metadata.rebalance_timeout_ms)
        else:
            self.disarm(step, member.member_id, REBALANCE)

    def disarm(self, step: Step, member_id: str, *kinds: str) -> None:
        """Cancel these timers of a member, or all of them."""
        for kind in kinds or _TOO_LATE:
            self.timers.disarm(step, (kind, member_id))

    def on_timer(self, key: TimerKey, step: Step) -> None:
        if self.timers.fired(step, key):
            kind, member_id = key
            self.fence(step, [self.state.members[member_id]], _TOO_LATE[kind])

    def on_metadata(self, event: MetadataChanged) -> None:
        before, self.view = self.view, event.view
        if event.topics_created:
            self._regexes.topics_created(event.view)
        if not self._metadata_is_stale:
            self._metadata_is_stale = any(
                before.topics.get(name) is not event.view.topics.get(name)
                for name in self.state.subscribed_topics()
            )

    def on_regex_resolved(self, event: RegexResolved, step: Step) -> None:
        self._regexes.answered(step, failed=event.topics is None)
        if event.topics is None or not self.state.exists:
            return
        state, writer, bump = self.state, self.writer(step), False
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
