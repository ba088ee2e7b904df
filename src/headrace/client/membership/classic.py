"""A member by the classic protocol: join, be given a share by one of the members, send heartbeats.

Range and roundrobin give everything up before each rebalance; cooperative-sticky only what moves. Must not
know what partitions are read for. Read next: member.py (the seam), assignment.py (the leader's part).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from headrace.client.arrow.cluster import LOST, Patience
from headrace.client.arrow.group_metadata import GroupMetadata
from headrace.client.errors import ClientError
from headrace.client.group_calls import CONSUMER_PROTOCOL, read_assignment
from headrace.client.membership.assignment import COOPERATIVE, assign_for_all, offered_assignors
from headrace.client.membership.consumer_bytes import Subscription, encode_subscription
from headrace.client.membership.coordinator import (
    FENCED,
    MOVED,
    OFFSETS_LANE,
    Coordinator,
    GroupRefused,
    is_passing,
)
from headrace.client.membership.member import (
    LEAVE_WITHIN_MS,
    NO_GENERATION,
    Holder,
    MemberSettings,
    Partitions,
    by_topic,
)
from headrace.client.membership.watch import TopicWatch
from headrace.wire.error_codes import ErrorCode

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
_FIRST_LEAVE_OF_MANY = 3
_GRACE_MS = 5_000
"""How much later than the broker we give up waiting for the others to join."""


class ClassicMember:
    def __init__(
        self, coordinator: Coordinator, watch: TopicWatch, holder: Holder, settings: MemberSettings
    ) -> None:
        self._coordinator = coordinator
        self._watch = watch
        self._holder = holder
        self._settings = settings
        self._assignors = offered_assignors(settings.assignor)
        self._cooperative = self._assignors == (COOPERATIVE,)
        self._patience = Patience(settings.timeout_ms)
        self._member_id = ""
        self._generation = NO_GENERATION
        self._owned: Partitions = frozenset()
        self._owned_since = NO_GENERATION
        self._shared_out: Mapping[str, int] | None = None
        """As leader: how many partitions the topics had when they were shared out."""
        self._joined_for: tuple[str, ...] = ()
        self._rejoin = asyncio.Event()
        self._trouble: Exception | None = None
        self._heart: asyncio.Task[None] | None = None
        watch.on_change(self._look_at_topics)

    @property
    def metadata(self) -> GroupMetadata:
        return GroupMetadata(
            group=self._settings.group,
            generation=self._generation,
            member_id=self._member_id,
            instance_id=self._settings.instance_id,
        )

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self._take_part()
                except ClientError as error:
                    await self._recover(error)
        finally:
            await self._stop_heart()

    async def leave(self) -> None:
        """By the lane of offsets: a JoinGroup may still be waiting in the other."""
        if not self._member_id or self._settings.instance_id is not None:
            return
        who = {"member_id": self._member_id}
        await self._coordinator.call(
            LEAVE_GROUP,
            lambda version: {
                "group_id": self._settings.group,
                **({"members": [who]} if version >= _FIRST_LEAVE_OF_MANY else who),
            },
            lane=OFFSETS_LANE,
            timeout_ms=LEAVE_WITHIN_MS,
        )
        self._forget_membership()

    # -- one generation ------------------------------------------------------------------------------------

    async def _take_part(self) -> None:
        """Joins, takes what it is given, and stays until there is a reason to join again."""
        if not self._cooperative:
            await self._give_up(self._owned)
        await self._stop_heart()
        self._rejoin.clear()  # the heart may have heard of the same rebalance meanwhile
        given = await self._sync(await self._join())
        self._patience.progress()
        self._trouble = None
        self._heart = asyncio.create_task(self._beat())
        if gone := self._owned - given:
            await self._give_up(gone)
            self._rejoin.set()  # for the others to have it
        added = given - self._owned
        self._owned, self._owned_since = given, self._generation
        await self._holder.assigned(added)
        await self._rejoin.wait()
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble

    async def _give_up(self, partitions: Partitions, *, lost: bool = False) -> None:
        if partitions:
            await self._holder.revoked(partitions, lost=lost)
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
            "protocol_type": CONSUMER_PROTOCOL,
            "protocols": [{"name": name, "metadata": subscription} for name in self._assignors],
        }
        reply = await self._coordinator.call(JOIN_GROUP, fields, timeout_ms=settings.max_pause_ms + _GRACE_MS)
        if int(reply.error_code) == ErrorCode.member_id_required:
            self._member_id = str(reply.member_id)
            return await self._join()
        if refusal := self._coordinator.refusal(reply.error_code):
            raise refusal
        self._member_id = str(reply.member_id)
        self._generation = int(reply.generation_id)
        return reply

    async def _sync(self, joined: Any) -> Partitions:
        shares: Mapping[str, bytes] = {}
        self._shared_out = None
        if str(joined.leader) == self._member_id and not getattr(joined, "skip_assignment", False):
            shares, self._shared_out = await assign_for_all(joined, self._watch)
        fields = {
            "group_id": self._settings.group,
            "generation_id": self._generation,
            "member_id": self._member_id,
            "group_instance_id": self._settings.instance_id,
            "protocol_type": CONSUMER_PROTOCOL,
            "protocol_name": str(joined.protocol_name),
            "assignments": [{"member_id": who, "assignment": share} for who, share in shares.items()],
        }
        reply = await self._coordinator.call(
            SYNC_GROUP, fields, timeout_ms=self._settings.max_pause_ms + _GRACE_MS
        )
        if refusal := self._coordinator.refusal(reply.error_code):
            raise refusal
        return frozenset(read_assignment(bytes(reply.assignment)))

    def _look_at_topics(self) -> None:
        """Joins again when a pattern matches other topics, or, as leader, when there are more partitions."""
        counts = self._watch.counts(self._shared_out or ())
        grew = self._shared_out is not None and counts != self._shared_out
        if self._generation != NO_GENERATION and (grew or self._watch.subscribed != self._joined_for):
            self._rejoin.set()

    # -- heartbeats ----------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Goes on through a rebalance until the member joins again; a slow reader does not stop it."""
        patience = Patience(self._settings.timeout_ms)
        while True:
            await asyncio.sleep(self._settings.heartbeat_interval_ms / 1000)
            if self._holder.absent_ms() > self._settings.max_pause_ms:
                return self._stop_for(GroupRefused(self._settings.group, ErrorCode.unknown_member_id))
            try:
                await self._beat_once()
                patience.progress()
            except ClientError as error:
                if not is_passing(error):
                    return self._stop_for(error)
                try:
                    await patience.wait(error)
                except ClientError as last:
                    return self._stop_for(last)
            except Exception as error:  # noqa: BLE001 - else nobody would notice that the heart stands still
                return self._stop_for(error)

    async def _beat_once(self) -> None:
        fields = {
            "group_id": self._settings.group,
            "generation_id": self._generation,
            "member_id": self._member_id,
            "group_instance_id": self._settings.instance_id,
        }
        reply = await self._coordinator.call(HEARTBEAT, fields)
        if int(reply.error_code) == ErrorCode.rebalance_in_progress:
            self._rejoin.set()
        elif refusal := self._coordinator.refusal(reply.error_code):
            raise refusal

    def _stop_for(self, trouble: Exception) -> None:
        self._trouble = trouble
        self._rejoin.set()

    async def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
            self._heart = None

    # -- trouble -------------------------------------------------------------------------------------------

    async def _recover(self, error: ClientError) -> None:
        """Returns when another try to join makes sense."""
        await self._stop_heart()
        code = error.error_code if isinstance(error, GroupRefused) else None
        if code in FENCED:
            await self._rejoin_anew()
        elif isinstance(error, LOST) or code in MOVED:
            await self._patience.wait(error)
        elif code is not ErrorCode.rebalance_in_progress:
            raise error

    async def _rejoin_anew(self) -> None:
        """The group went on without us, or we leave it since the reader stays away too long."""
        absent = self._holder.absent_ms() > self._settings.max_pause_ms
        if absent:
            await asyncio.gather(self.leave(), return_exceptions=True)
        self._forget_membership()
        await self._give_up(self._owned, lost=True)
        if absent:
            await self._holder.present()

    def _forget_membership(self) -> None:
        self._generation = NO_GENERATION
        self._owned_since = NO_GENERATION
        self._member_id = ""
        self._trouble = None
