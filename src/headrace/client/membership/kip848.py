# SPDX-License-Identifier: Apache-2.0
"""A member of a KIP-848 group: the broker assigns partitions; heartbeats carry subscription and assignment.

Partitions to be revoked are released and acknowledged before new ones are added; heartbeats continue
meanwhile. Read next: member.py, ../coordinator.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from uuid import uuid4

from headrace.client.coordinator import (
    MEMBER_FENCED,
    OFFSETS_LANE,
    CoordinatorError,
    retry_while_coordinator_moves,
)
from headrace.client.errors import ClientError
from headrace.client.membership.group_metadata import GroupMetadata
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
from headrace.wire.error_codes import ErrorCode

_JOINING, _LEAVING, _LEAVING_FOR_A_WHILE = 0, -1, -2
_STILL_REGISTERED = frozenset({ErrorCode.unreleased_instance_id})
"""A static member that was killed stays registered until its session ends."""


class Kip848Member:
    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self._coordinator = context.coordinator
        self._watch = context.watch
        self._listener = context.listener
        self._settings = context.settings
        self._member_id = str(uuid4())
        self._epoch = _JOINING
        self._interval_s = 0.0
        self._owned: Partitions = frozenset()
        self._target: Partitions = frozenset()
        self._assignment: Any = None
        """The last assignment received: topics by id, which may not be in the metadata yet."""
        self._sent_topics: tuple[str, ...] | None = None
        self._sent_owned: Partitions | None = None
        """What the coordinator knows of this member; None: nothing."""
        self._due = asyncio.Event()
        self._reconciling: asyncio.Task[None] | None = None
        context.watch.on_change(self._due.set)

    @property
    def metadata(self) -> GroupMetadata:
        return self._context.metadata(member_id=self._member_id, generation=self._epoch or NO_GENERATION)

    async def run(self) -> None:
        try:
            while True:
                backoff = Backoff(self._settings.timeout_ms)
                await retry_while_coordinator_moves(self._beat, backoff, also=_STILL_REGISTERED)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._due.wait(), self._interval_s)
        finally:
            await self._stop_reconciling()

    async def leave(self) -> None:
        if self._epoch == _JOINING:
            return
        epoch = _LEAVING if self._settings.instance_id is None else _LEAVING_FOR_A_WHILE
        await self._coordinator.call(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            {**self._identity(), "member_epoch": epoch},
            lane=OFFSETS_LANE,
            timeout_ms=LEAVE_WITHIN_MS,
        )
        self._epoch = _JOINING

    # -- heartbeats ----------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Sends a heartbeat; a member that the group has removed sends the next at once, to join again."""
        self._due.clear()
        try:
            await self._heartbeat()
        except ClientError as error:
            self._sent_topics = self._sent_owned = None  # unknown whether the last one arrived
            if not isinstance(error, CoordinatorError) or error.error_code not in MEMBER_FENCED:
                raise
            await self._lose_all()
            self._due.set()

    async def _heartbeat(self) -> None:
        if self._context.reader_is_late:
            return await self._leave_until_poll()
        topics, owned = self._watch.subscribed, self._owned
        reply = await self._coordinator.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._fields(topics, owned))
        if error := self._coordinator.error_of(reply.error_code, reply.error_message):
            raise error
        self._sent_topics, self._sent_owned = topics, owned
        self._member_id = str(reply.member_id or self._member_id)
        self._epoch = int(reply.member_epoch)
        self._interval_s = reply.heartbeat_interval.total_seconds()
        if reply.assignment is not None:
            self._assignment = reply.assignment
        await self._start_reconciling()
        return None

    def _identity(self) -> dict[str, Any]:
        """Fields of every heartbeat; None for partitions means unchanged, not none."""
        return {
            "group_id": self._settings.group,
            "member_id": self._member_id,
            "instance_id": self._settings.instance_id,
            "subscribed_topic_names": None,
            "topic_partitions": None,
        }

    def _fields(self, topics: tuple[str, ...], owned: Partitions) -> dict[str, Any]:
        """Fields of a heartbeat: all when joining, else only what has changed."""
        joining = self._epoch == _JOINING
        fields: dict[str, Any] = {**self._identity(), "member_epoch": self._epoch}
        if joining:
            fields["rebalance_timeout"] = self._settings.max_pause_ms
            fields["server_assignor"] = self._settings.assignor
        if joining or topics != self._sent_topics:
            fields["subscribed_topic_names"] = list(topics)
        if joining or owned != self._sent_owned:
            fields["topic_partitions"] = [
                {"topic_id": self._watch.views[name].topic_id, "partitions": numbers}
                for name, numbers in by_topic(owned).items()
                if name in self._watch.views
            ]
        return fields

    async def _start_reconciling(self) -> None:
        """Begins to reconcile with the newest assignment, unless a reconciliation is running."""
        if self._assignment is None:
            return
        self._target = await self._named(self._assignment)
        if self._reconciling is not None and self._reconciling.done():
            self._reconciling.result()
            self._reconciling = None
        if self._target != self._owned and self._reconciling is None:
            self._reconciling = asyncio.create_task(self._reconcile())
            self._reconciling.add_done_callback(lambda _: self._due.set())

    async def _named(self, assignment: Any) -> Partitions:
        """The assignment by topic names, without topics that are not in the metadata yet."""
        assigned = [(each.topic_id, each.partitions) for each in assignment.topic_partitions]
        if any(self._watch.name_of(topic_id) is None for topic_id, _ in assigned):
            await self._watch.refresh()
        return frozenset(
            TopicPartition(name, int(number))
            for topic_id, numbers in assigned
            if (name := self._watch.name_of(topic_id)) is not None
            for number in numbers
        )

    async def _reconcile(self) -> None:
        while self._target != self._owned:
            if gone := self._owned - self._target:
                await self._listener.revoked(gone, lost=False)
                self._owned -= gone
                self._due.set()
            if added := self._target - self._owned:
                self._owned |= added  # before `assigned`: if fenced meanwhile, all of it is lost
                await self._listener.assigned(added)
                self._due.set()

    async def _stop_reconciling(self) -> None:
        if self._reconciling is not None:
            self._reconciling.cancel()
            await asyncio.gather(self._reconciling, return_exceptions=True)
            self._reconciling = None

    # -- out of the group ----------------------------------------------------------------------------------

    async def _lose_all(self) -> None:
        await self._stop_reconciling()
        self._epoch = _JOINING
        self._assignment = None
        held, self._owned, self._target = self._owned, frozenset(), frozenset()
        if held:
            await self._listener.revoked(held, lost=True)

    async def _leave_until_poll(self) -> None:
        """Leaves while the reader exceeds max_pause_ms: other members get its partitions."""
        await asyncio.gather(self.leave(), return_exceptions=True)
        await self._lose_all()
        await self._listener.wait_for_poll()
