# SPDX-License-Identifier: Apache-2.0
"""A member of a consumer group that fetches, processes and commits, and records it in a GroupHistory.

What both protocols share: connections that may be lost, fetching, processing, committing. How a member is
told what it owns: classic_member.py, kip848_member.py. Knows no node; on real sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar
from uuid import UUID

from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups import wire as wire
from tests.harness.groups.history import Commit, GroupHistory, Start
from tests.harness.simulation.clients import records_in

PATIENCE_MS = 20_000
"""A JoinGroup waits for the slowest member, and dead ones are waited for until their session ends."""
REFUSALS = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.rebalance_in_progress,
        ErrorCode.stale_member_epoch,
        ErrorCode.fenced_member_epoch,
        ErrorCode.group_id_not_found,
    }
)
"""A commit that was answered so did not happen; any other error leaves it open."""


class TryAgain(Exception):
    """The coordinator is not ready, or this member has to begin anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What all members of a storm have in common."""

    host: str
    port: int
    group: str
    topic: str
    topic_id: UUID
    partitions: int
    session_ms: int
    heartbeat_ms: int
    history: GroupHistory


class GroupMember(ABC):
    _anonymous: ClassVar[bool]
    """Whether an OffsetFetch names no member, as classic ones do."""

    def __init__(self, scene: Scene, name: str, random: Random) -> None:
        self.scene = scene
        self.name = name
        self.random = random
        self.member_id = ""
        self.epoch = -1
        self.doze_s = 0.0
        """Set from outside: how long it is to do nothing at all, heartbeats included."""
        self.stopping = False
        self.refused = 0
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._group: Connection | None = None
        self._data: Connection | None = None
        self._beat_due = 0.0

    # -- start and stop ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until told to stop; then it leaves in good order. Cancel it to have it die instead."""
        try:
            while not self.stopping:
                try:
                    await self._live()
                except (ClientError, OSError, TryAgain):
                    self._hang_up()
                    await asyncio.sleep(self.random.uniform(0.02, 0.2))
            with contextlib.suppress(ClientError, OSError, TryAgain):
                await self._commit()
                await self._leave()
        finally:
            self._hang_up()

    async def _live(self) -> None:
        self._group = await self._connect()
        self._data = await self._connect()
        await self._find_coordinator()
        await self._reconnected()
        while not self.stopping:
            await self._stay_member()
            await self._process()
            if self.doze_s:
                await asyncio.sleep(self.doze_s)
                self.doze_s = 0.0
                await self._commit()  # as an owner that does not know that its time is over
            elif self.random.random() < 0.3:
                await self._commit()

    async def _find_coordinator(self) -> None:
        """There is one node; but the coordinator's topic is made for who asks for it first."""
        fields = {"key_type": 0, "coordinator_keys": [self.scene.group]}
        (found,) = (await self._ask(ApiKey.FIND_COORDINATOR, fields, 4)).coordinators
        self._expect(found.error_code)

    async def _connect(self) -> Connection:
        return await Connection.open(self.scene.host, self.scene.port, client_id=self.name)

    def _hang_up(self) -> None:
        for connection in (self._group, self._data):
            if connection is not None:
                connection.abort()
        self._group = self._data = None

    async def _ask(self, key: int, fields: dict[str, Any], version: int) -> Any:
        if self._group is None:
            raise TryAgain("not connected")
        return await self._group.call(key, fields, version=version, timeout_ms=PATIENCE_MS)

    @abstractmethod
    async def _reconnected(self) -> None:
        """A new connection is there; what was asked on the old one may or may not have happened."""

    @abstractmethod
    async def _stay_member(self) -> None:
        """Join, or send a heartbeat when it is due, and follow what the coordinator says."""

    @abstractmethod
    async def _leave(self) -> None: ...

    # -- records -------------------------------------------------------------------------------------------

    async def _start(self, partitions: Iterable[int]) -> None:
        """Ask where to start; raises when the coordinator does not say it now."""
        wanted = sorted(partitions)
        if not wanted:
            return
        member = None if self._anonymous else self.member_id
        fields = wire.fetch_fields(
            self.scene.group,
            self.scene.topic,
            wanted,
            member_id=member,
            epoch=-1 if self._anonymous else self.epoch,
        )
        asked = self.scene.history.tick()
        (group,) = (await self._ask(ApiKey.OFFSET_FETCH, fields, 9)).groups
        self._expect(group.error_code)
        for found in group.topics[0].partitions:
            self._expect(found.error_code)
        for found in group.topics[0].partitions:
            self._begin(found.partition_index, found.committed_offset, asked)

    def _begin(self, partition: int, offset: int, asked: int) -> None:
        start = Start(
            member=self.name,
            partition=partition,
            epoch=self.epoch,
            offset=offset,
            asked=asked,
            answered=self.scene.history.tick(),
        )
        self.scene.history.starts.append(start)
        self._positions[partition] = self._committed[partition] = start.position

    async def _process(self) -> None:
        if not self._positions or self._data is None:
            await asyncio.sleep(0.05)
            return
        wanted = [
            {"partition": partition, "fetch_offset": position, "partition_max_bytes": 10_000}
            for partition, position in self._positions.items()
        ]
        fields = {
            "replica_id": -1,
            "max_wait": 100,
            "min_bytes": 1,
            "max_bytes": 100_000,
            "session_epoch": -1,
            "topics": [{"topic": self.scene.topic, "partitions": wanted}],
        }
        reply = await self._data.call(ApiKey.FETCH, fields, version=11, timeout_ms=PATIENCE_MS)
        for data in reply.responses[0].partitions:
            self._expect(data.error_code)
            self._take(data.partition_index, bytes(data.records or b""))

    def _take(self, partition: int, batches: bytes) -> None:
        """Note what came, even when a record is missing in it: that is for the judge."""
        position = self._positions[partition]
        offsets = [record.offset for record in records_in(batches) if record.offset >= position]
        for first, last in _runs(offsets):
            self.scene.history.take(self.name, partition, first, last)
            self._positions[partition] = last + 1

    # -- offsets -------------------------------------------------------------------------------------------

    async def _commit(self, partitions: Iterable[int] | None = None) -> None:
        among = self._positions.keys() if partitions is None else partitions
        offsets = {one: self._positions[one] for one in among if self._positions[one] > self._committed[one]}
        if not offsets:
            return
        asked = {
            partition: self.scene.history.commit(self.name, partition, self.epoch, offset)
            for partition, offset in offsets.items()
        }
        fields = wire.commit_fields(self.scene.group, self.member_id, self.epoch, self.scene.topic, offsets)
        reply = await self._ask(ApiKey.OFFSET_COMMIT, fields, 9)
        for answer in reply.topics[0].partitions:
            self._record_outcome(asked[answer.partition_index], answer.error_code)

    def _record_outcome(self, commit: Commit, code: ErrorCode) -> None:
        if code is ErrorCode.none:
            self.scene.history.record_outcome(commit, "ok")
            self._committed[commit.partition] = commit.offset
        elif code in REFUSALS:
            self.scene.history.record_outcome(commit, "fail")
            self.refused += 1
            self._beat_due = 0.0  # to learn what has changed

    # -- small ---------------------------------------------------------------------------------------------

    @property
    def owned(self) -> set[int]:
        return set(self._positions)

    def _forget(self, partitions: Iterable[int]) -> None:
        for partition in list(partitions):
            self._positions.pop(partition, None)
            self._committed.pop(partition, None)

    def _beat_is_due(self) -> bool:
        if time.monotonic() < self._beat_due:
            return False
        self._beat_due = time.monotonic() + self.scene.heartbeat_ms / 1000
        return True

    @staticmethod
    def _expect(code: ErrorCode) -> None:
        if code is not ErrorCode.none:
            raise TryAgain(code.name)


def _runs(offsets: list[int]) -> Iterable[tuple[int, int]]:
    """Consecutive offsets as first and last."""
    first = 0
    for place in range(1, len(offsets) + 1):
        if place == len(offsets) or offsets[place] != offsets[place - 1] + 1:
            yield offsets[first], offsets[place - 1]
            first = place
