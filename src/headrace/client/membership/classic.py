# SPDX-License-Identifier: Apache-2.0
"""A member of a classic group: JoinGroup, SyncGroup, heartbeats, and the leader's assignment.

With range and roundrobin it revokes all partitions before each rebalance; with cooperative-sticky only those
that move. Read next: member.py, leader_assignment.py (when this member leads the group).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from headrace.client.coordinator import (
    MEMBER_FENCED,
    OFFSETS_LANE,
    CoordinatorError,
    CoordinatorType,
    retry_while_coordinator_moves,
)
from headrace.client.errors import ClientError
from headrace.client.membership.group_metadata import GroupMetadata
from headrace.client.membership.leader_assignment import COOPERATIVE, assign_for_all, offered_assignors
from headrace.client.membership.member import (
    LEAVE_WITHIN_MS,
    NO_GENERATION,
    MemberContext,
    Partitions,
    by_topic,
)
from headrace.client.retry import Backoff
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.coordinator.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    assigned_partitions,
    encode_subscription,
)
from headrace.wire.error_codes import ErrorCode

_FIRST_LEAVE_OF_MANY = 3
_GRACE_MS = 5_000
"""How much longer than the broker's rebalance timeout a JoinGroup may take."""


class ClassicMember:
    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self._coordinator = context.coordinator
        self._watch = context.watch
        self._listener = context.listener
        self._settings = context.settings
        self._assignors = offered_assignors(context.settings.assignor)
        self._cooperative = self._assignors == (COOPERATIVE,)
        self._backoff = Backoff(context.settings.timeout_ms)
        self._member_id = ""
        self._generation = NO_GENERATION
        self._owned: Partitions = frozenset()
        self._owned_since = NO_GENERATION
        self._assigned_counts: Mapping[str, int] | None = None
        """As group leader: partition counts of the topics at the last assignment."""
        self._joined_for: tuple[str, ...] = ()
        self._rejoin = asyncio.Event()
        self._failure: Exception | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        context.watch.on_change(self._on_topics_changed)

    @property
    def metadata(self) -> GroupMetadata:
        return self._context.metadata(member_id=self._member_id, generation=self._generation)

    async def run(self) -> None:
        try:
            while True:
                await retry_while_coordinator_moves(self._run_generation, self._backoff)
        finally:
            await self._stop_heartbeats()

    async def leave(self) -> None:
        """On the lane of offsets: a JoinGroup may still be waiting on the other."""
        if not self._member_id or self._settings.instance_id is not None:
            return
        who = {"member_id": self._member_id}
        await self._coordinator.call(
            ApiKey.LEAVE_GROUP,
            lambda version: {
                "group_id": self._settings.group,
                **({"members": [who]} if version >= _FIRST_LEAVE_OF_MANY else who),
            },
            lane=OFFSETS_LANE,
            timeout_ms=LEAVE_WITHIN_MS,
        )
        self._forget_membership()

    # -- one generation ------------------------------------------------------------------------------------

    async def _run_generation(self) -> None:
        """Returns when the member has to join again: after a rebalance, or since the group has removed it."""
        try:
            await self._join_and_stay()
        except ClientError as error:
            await self._stop_heartbeats()
            code = error.error_code if isinstance(error, CoordinatorError) else None
            if code in MEMBER_FENCED:
                await self._become_new_member()
            elif code is not ErrorCode.rebalance_in_progress:
                raise

    async def _join_and_stay(self) -> None:
        """Joins, receives its assignment, and stays until the next rebalance."""
        if not self._cooperative:
            await self._revoke(self._owned)
        await self._stop_heartbeats()
        self._rejoin.clear()  # a heartbeat may have seen the same rebalance meanwhile
        given = await self._sync(await self._join())
        self._backoff.reset()
        self._failure = None
        self._heartbeat_task = asyncio.create_task(self._beat())
        if gone := self._owned - given:
            await self._revoke(gone)
            self._rejoin.set()  # so that others get it
        added = given - self._owned
        self._owned, self._owned_since = given, self._generation
        await self._listener.assigned(added)
        await self._rejoin.wait()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def _revoke(self, partitions: Partitions, *, lost: bool = False) -> None:
        if partitions:
            await self._listener.revoked(partitions, lost=lost)
        self._owned -= partitions

    async def _join(self) -> Any:
        settings = self._settings
        self._joined_for = self._watch.subscribed
        subscription = encode_subscription(
            Subscription(self._joined_for, by_topic(self._owned), self._owned_since)
        )
        fields = {
            "group_id": settings.group,
            "session_timeout": settings.session_timeout_ms,
            "rebalance_timeout": settings.max_pause_ms,
            "member_id": self._member_id,
            "group_instance_id": settings.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": name, "metadata": subscription} for name in self._assignors],
        }
        reply = await self._coordinator.call(
            ApiKey.JOIN_GROUP, fields, timeout_ms=settings.max_pause_ms + _GRACE_MS
        )
        if int(reply.error_code) == ErrorCode.member_id_required:
            self._member_id = str(reply.member_id)
            return await self._join()
        if error := self._coordinator.error_of(reply.error_code):
            raise error
        self._member_id = str(reply.member_id)
        self._generation = int(reply.generation_id)
        return reply

    async def _sync(self, joined: Any) -> Partitions:
        assignments: Mapping[str, bytes] = {}
        self._assigned_counts = None
        if str(joined.leader) == self._member_id and not getattr(joined, "skip_assignment", False):
            assignments, self._assigned_counts = await assign_for_all(joined, self._watch)
        fields = {
            "group_id": self._settings.group,
            "generation_id": self._generation,
            "member_id": self._member_id,
            "group_instance_id": self._settings.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": str(joined.protocol_name),
            "assignments": [{"member_id": who, "assignment": share} for who, share in assignments.items()],
        }
        reply = await self._coordinator.call(
            ApiKey.SYNC_GROUP, fields, timeout_ms=self._settings.max_pause_ms + _GRACE_MS
        )
        if error := self._coordinator.error_of(reply.error_code):
            raise error
        assigned = assigned_partitions(bytes(reply.assignment))
        return frozenset(
            TopicPartition(topic, each) for topic, numbers in assigned.items() for each in numbers
        )

    def _on_topics_changed(self) -> None:
        """Joins again when a pattern matches other topics, or, as leader, when there are more partitions."""
        counts = self._watch.counts(self._assigned_counts or ())
        grew = self._assigned_counts is not None and counts != self._assigned_counts
        if self._generation != NO_GENERATION and (grew or self._watch.subscribed != self._joined_for):
            self._rejoin.set()

    # -- heartbeats ----------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Sends heartbeats, also during a rebalance, until the member joins again."""
        try:
            while True:
                backoff = Backoff(self._settings.timeout_ms)
                await retry_while_coordinator_moves(self._beat_once, backoff)
        except Exception as error:  # noqa: BLE001 - ends the member, else it would stay without heartbeats
            self._fail(error)

    async def _beat_once(self) -> None:
        await asyncio.sleep(self._settings.heartbeat_interval_ms / 1000)
        if self._context.reader_is_late:
            raise CoordinatorError(CoordinatorType.GROUP, self._settings.group, ErrorCode.unknown_member_id)
        fields = {
            "group_id": self._settings.group,
            "generation_id": self._generation,
            "member_id": self._member_id,
            "group_instance_id": self._settings.instance_id,
        }
        reply = await self._coordinator.call(ApiKey.HEARTBEAT, fields)
        if int(reply.error_code) == ErrorCode.rebalance_in_progress:
            self._rejoin.set()
        elif error := self._coordinator.error_of(reply.error_code):
            raise error

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self._rejoin.set()

    async def _stop_heartbeats(self) -> None:
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            await asyncio.gather(self._heartbeat_task, return_exceptions=True)
            self._heartbeat_task = None

    # -- out of the group ----------------------------------------------------------------------------------

    async def _become_new_member(self) -> None:
        """The group removed this member, or it leaves since the reader exceeded max_pause_ms."""
        late = self._context.reader_is_late
        if late:
            await asyncio.gather(self.leave(), return_exceptions=True)
        self._forget_membership()
        await self._revoke(self._owned, lost=True)
        if late:
            await self._listener.wait_for_poll()

    def _forget_membership(self) -> None:
        self._generation = NO_GENERATION
        self._owned_since = NO_GENERATION
        self._member_id = ""
        self._failure = None
