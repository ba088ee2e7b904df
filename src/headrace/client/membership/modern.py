"""A member by KIP-848: the broker decides who reads what, and heartbeats carry everything.

What moves is given up first and said so; heartbeats go on meanwhile. Must not know what partitions are read
for. Read next: member.py (the seam), coordinator.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from uuid import uuid4

from headrace.client.arrow.cluster import Patience
from headrace.client.arrow.group_metadata import GroupMetadata
from headrace.client.errors import ClientError
from headrace.client.membership.coordinator import (
    FENCED,
    OFFSETS_LANE,
    Coordinator,
    GroupRefused,
    is_passing,
)
from headrace.client.membership.member import (
    LEAVE_WITHIN_MS,
    Holder,
    MemberSettings,
    Partitions,
    by_topic,
)
from headrace.client.membership.watch import TopicWatch
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

CONSUMER_GROUP_HEARTBEAT = 68
_JOINING, _LEAVING, _LEAVING_FOR_A_WHILE = 0, -1, -2


class ModernMember:
    def __init__(
        self, coordinator: Coordinator, watch: TopicWatch, holder: Holder, settings: MemberSettings
    ) -> None:
        self._coordinator = coordinator
        self._watch = watch
        self._holder = holder
        self._settings = settings
        self._patience = Patience(settings.timeout_ms)
        self._member_id = str(uuid4())
        self._epoch = _JOINING
        self._interval_s = 0.0
        self._owned: Partitions = frozenset()
        self._target: Partitions = frozenset()
        self._given: Any = None
        """The last assignment as it came: topics by id, which may not be known yet."""
        self._told_topics: tuple[str, ...] | None = None
        self._told_owned: Partitions | None = None
        """What the coordinator knows from us; None: nothing."""
        self._due = asyncio.Event()
        self._reconciling: asyncio.Task[None] | None = None
        watch.on_change(self._due.set)

    @property
    def metadata(self) -> GroupMetadata:
        return GroupMetadata(
            group=self._settings.group,
            generation=self._epoch or -1,
            member_id=self._member_id,
            instance_id=self._settings.instance_id,
        )

    async def run(self) -> None:
        try:
            while True:
                self._due.clear()
                try:
                    await self._beat()
                except ClientError as error:
                    await self._recover(error)
                else:
                    self._patience.progress()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._due.wait(), self._interval_s)
        finally:
            await self._stop_reconciling()

    async def leave(self) -> None:
        if self._epoch == _JOINING:
            return
        epoch = _LEAVING if self._settings.instance_id is None else _LEAVING_FOR_A_WHILE
        await self._coordinator.call(
            CONSUMER_GROUP_HEARTBEAT,
            {**self._identity(), "member_epoch": epoch},
            lane=OFFSETS_LANE,
            timeout_ms=LEAVE_WITHIN_MS,
        )
        self._epoch = _JOINING

    # -- heartbeats ----------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        if self._holder.absent_ms() > self._settings.max_pause_ms:
            return await self._stay_away()
        topics, owned = self._watch.subscribed, self._owned
        reply = await self._coordinator.call(CONSUMER_GROUP_HEARTBEAT, self._news(topics, owned))
        if refusal := self._coordinator.refusal(reply.error_code, reply.error_message):
            raise refusal
        self._told_topics, self._told_owned = topics, owned
        self._member_id = str(reply.member_id or self._member_id)
        self._epoch = int(reply.member_epoch)
        self._interval_s = reply.heartbeat_interval.total_seconds()
        if reply.assignment is not None:
            self._given = reply.assignment
        await self._aim()
        return None

    def _identity(self) -> dict[str, Any]:
        """What every heartbeat says; None for partitions is "as before", not "none"."""
        return {
            "group_id": self._settings.group,
            "member_id": self._member_id,
            "instance_id": self._settings.instance_id,
            "subscribed_topic_names": None,
            "topic_partitions": None,
        }

    def _news(self, topics: tuple[str, ...], owned: Partitions) -> dict[str, Any]:
        """All there is to say when joining, else only what the coordinator does not know yet."""
        joining = self._epoch == _JOINING
        news: dict[str, Any] = {**self._identity(), "member_epoch": self._epoch}
        if joining:
            news["rebalance_timeout"] = self._settings.max_pause_ms
            news["server_assignor"] = self._settings.assignor
        if joining or topics != self._told_topics:
            news["subscribed_topic_names"] = list(topics)
        if joining or owned != self._told_owned:
            news["topic_partitions"] = [
                {"topic_id": self._watch.views[name].topic_id, "partitions": numbers}
                for name, numbers in by_topic(owned).items()
                if name in self._watch.views
            ]
        return news

    async def _aim(self) -> None:
        """Sets out for the newest assignment, unless already on the way: then it is next."""
        if self._given is None:
            return
        self._target = await self._named(self._given)
        if self._reconciling is not None and self._reconciling.done():
            self._reconciling.result()
            self._reconciling = None
        if self._target != self._owned and self._reconciling is None:
            self._reconciling = asyncio.create_task(self._reconcile())
            self._reconciling.add_done_callback(lambda _: self._due.set())

    async def _named(self, assignment: Any) -> Partitions:
        """Topics that cannot be found by their ids are left out until they can."""
        given = [(each.topic_id, each.partitions) for each in assignment.topic_partitions]
        if any(self._watch.name_of(topic_id) is None for topic_id, _ in given):
            await self._watch.look()
        return frozenset(
            TopicPartition(name, int(number))
            for topic_id, numbers in given
            if (name := self._watch.name_of(topic_id)) is not None
            for number in numbers
        )

    async def _reconcile(self) -> None:
        while self._target != self._owned:
            if gone := self._owned - self._target:
                await self._holder.revoked(gone, lost=False)
                self._owned -= gone
                self._due.set()
            if added := self._target - self._owned:
                self._owned |= added  # before the holder knows: what is lost meanwhile is lost whole
                await self._holder.assigned(added)
                self._due.set()

    async def _stop_reconciling(self) -> None:
        if self._reconciling is not None:
            self._reconciling.cancel()
            await asyncio.gather(self._reconciling, return_exceptions=True)
            self._reconciling = None

    # -- trouble -------------------------------------------------------------------------------------------

    async def _recover(self, error: ClientError) -> None:
        """Returns when another heartbeat makes sense."""
        code = error.error_code if isinstance(error, GroupRefused) else None
        self._told_topics = self._told_owned = None  # unknown whether the last one arrived
        if code in FENCED:
            await self._lose_all()
        elif is_passing(error) or code is ErrorCode.unreleased_instance_id:
            # A static member that was killed stays registered until its session ends.
            await self._patience.wait(error)
        else:
            raise error

    async def _lose_all(self) -> None:
        await self._stop_reconciling()
        self._epoch = _JOINING
        self._given = None
        held, self._owned, self._target = self._owned, frozenset(), frozenset()
        if held:
            await self._holder.revoked(held, lost=True)

    async def _stay_away(self) -> None:
        """The reader has not asked for more for too long: others shall have its partitions until it does."""
        await asyncio.gather(self.leave(), return_exceptions=True)
        await self._lose_all()
        await self._holder.present()
