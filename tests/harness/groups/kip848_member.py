# SPDX-License-Identifier: Apache-2.0
"""A member of the KIP-848 protocol: revokes partitions before it takes new ones, all by heartbeats.

Read first: member.py.
"""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import uuid4

from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.history import Owned
from tests.harness.groups.member import GroupMember

_FENCED = frozenset({ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id})


class Kip848Member(GroupMember):
    _anonymous: ClassVar[bool] = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.epoch = 0
        self.member_id = str(uuid4())
        self._target: set[int] = set()
        self._say_all = True
        """The next heartbeat tells everything: after a join, a new connection, a change of what is owned."""

    async def _reconnected(self) -> None:
        self._say_all = True
        self._beat_due = 0.0

    async def _stay_member(self) -> None:
        if self._say_all or self._beat_is_due():
            await self._heartbeat()
        missing = self._target - self.owned
        if missing and not self.owned - self._target:
            await self._start(missing)
            self._say_all = True

    async def _heartbeat(self) -> None:
        fields: dict[str, Any] = {
            "group_id": self.scene.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
        }
        if self._say_all or self.epoch == 0:
            held = {"topic_id": self.scene.topic_id, "partitions": sorted(self.owned)}
            fields |= {
                "rebalance_timeout": self.scene.session_ms,
                "subscribed_topic_names": [self.scene.topic],
                "topic_partitions": [held] if self.owned else [],
            }
        reply = await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, fields, 1)
        if reply.error_code in _FENCED:
            self._begin_anew()
            return
        self._expect(reply.error_code)
        self._say_all = False
        await self._follow(reply)

    def _begin_anew(self) -> None:
        """What it held is another's by now."""
        self._forget(self.owned)
        self._target = set()
        self.epoch = 0
        self.member_id = str(uuid4())
        self._say_all = True

    async def _follow(self, reply: Any) -> None:
        before = (self.epoch, self._target)
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self._target = {
                partition for given in reply.assignment.topic_partitions for partition in given.partitions
            }
        if (self.epoch, self._target) != before:
            for partition in self._target:
                owned_now = Owned(member=self.name, partition=partition, epoch=self.epoch)
                self.scene.history.owned.append(owned_now)
        given_up = self.owned - self._target
        if given_up:
            if self.random.random() < 0.7:
                await self._commit(given_up)
            self._forget(given_up)
            self._say_all = True

    async def _leave(self) -> None:
        fields = {"group_id": self.scene.group, "member_id": self.member_id, "member_epoch": -1}
        await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, fields, 1)
