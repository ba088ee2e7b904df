# SPDX-License-Identifier: Apache-2.0
"""A member of the classic protocol: joins, syncs, heartbeats; the leader shares partitions out in turn.

Read first: member.py.
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups import wire as wire
from tests.harness.groups.history import Owned
from tests.harness.groups.member import GroupMember, TryAgain

_LOST = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation})


class ClassicMember(GroupMember):
    _anonymous: ClassVar[bool] = True

    async def _reconnected(self) -> None:
        """A generation outlives connections."""

    async def _stay_member(self) -> None:
        if self.epoch < 0:
            await self._join()
        elif self._beat_is_due():
            await self._heartbeat()

    async def _heartbeat(self) -> None:
        fields = {
            "group_id": self.scene.group,
            "generation_id": self.epoch,
            "member_id": self.member_id,
        }
        code = (await self._ask(ApiKey.HEARTBEAT, fields, 4)).error_code
        if code is ErrorCode.rebalance_in_progress:
            if self.random.random() < 0.7:
                await self._commit()
            self._lose_generation()
        elif code in _LOST:
            self._begin_anew(code)
        else:
            self._expect(code)

    def _lose_generation(self) -> None:
        self._forget(self.owned)
        self.epoch = -1

    def _begin_anew(self, code: ErrorCode) -> None:
        self._lose_generation()
        if code is ErrorCode.unknown_member_id:
            self.member_id = ""

    async def _join(self) -> None:
        fields = wire.join_fields(
            self.scene.group,
            self.member_id,
            [self.scene.topic],
            session_ms=self.scene.session_ms,
            rebalance_ms=self.scene.session_ms,
        )
        joined = await self._ask(ApiKey.JOIN_GROUP, fields, 9)
        code = joined.error_code
        if code is ErrorCode.member_id_required:
            self.member_id = joined.member_id
            return
        if code in _LOST:
            self._begin_anew(code)
            return
        self._expect(code)
        self.member_id = joined.member_id
        await self._sync(joined)

    async def _sync(self, joined: Any) -> None:
        given = self._shares(joined) if joined.leader == self.member_id else {}
        fields = wire.sync_fields(self.scene.group, self.member_id, joined.generation_id, given)
        synced = await self._ask(ApiKey.SYNC_GROUP, fields, 5)
        if synced.error_code in _LOST:
            self._begin_anew(synced.error_code)
            return
        if synced.error_code is ErrorCode.rebalance_in_progress:
            return
        self._expect(synced.error_code)
        self.epoch = joined.generation_id
        mine = wire.read_assignment(synced.assignment).get(self.scene.topic, [])
        for partition in mine:
            owned_now = Owned(member=self.name, partition=partition, epoch=self.epoch)
            self.scene.history.owned.append(owned_now)
        try:
            await self._start(mine)
        except TryAgain:
            self._lose_generation()
            raise

    def _shares(self, joined: Any) -> dict[str, bytes]:
        members = sorted(member.member_id for member in joined.members)
        return {
            member: wire.assignment({self.scene.topic: range(place, self.scene.partitions, len(members))})
            for place, member in enumerate(members)
        }

    async def _leave(self) -> None:
        if self.member_id:
            members = [{"member_id": self.member_id, "reason": "it was told to"}]
            await self._ask(ApiKey.LEAVE_GROUP, {"group_id": self.scene.group, "members": members}, 5)
