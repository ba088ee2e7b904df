"""A member by the classic protocol against a coordinator from a script: what its heart does and does not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from headrace.client.membership.classic import HEARTBEAT, JOIN_GROUP, SYNC_GROUP, ClassicMember
from headrace.client.membership.consumer_bytes import encode_assignment
from headrace.client.membership.coordinator import GroupRefused
from headrace.client.membership.member import MemberSettings
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

BEAT_MS = 10


class Script:
    """Stands for the coordinator, the topics and the reader of a group with one other member, its leader."""

    subscribed = ("t",)

    def __init__(self) -> None:
        self.joins = 0
        self.beats: list[ErrorCode | Exception] = []
        """What the next heartbeats are answered; then all is well."""
        self.while_revoking_s = 0.0
        self.held: set[TopicPartition] = set()

    # the coordinator

    async def call(self, api_key: int, fields: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        if api_key == JOIN_GROUP:
            self.joins += 1
            return SimpleNamespace(
                error_code=0, member_id="me", generation_id=self.joins, leader="other", protocol_name="range"
            )
        if api_key == SYNC_GROUP:
            return SimpleNamespace(error_code=0, assignment=encode_assignment({"t": [0]}))
        assert api_key == HEARTBEAT
        answer = self.beats.pop(0) if self.beats else ErrorCode.none
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(error_code=answer)

    def refusal(self, code: int) -> GroupRefused | None:
        return GroupRefused("g", ErrorCode(code)) if code else None

    # the topics

    def on_change(self, listener: Any) -> None: ...

    # the reader

    def absent_ms(self) -> float:
        return 0.0

    async def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.held |= partitions

    async def revoked(self, partitions: frozenset[TopicPartition], *, lost: bool) -> None:
        await asyncio.sleep(self.while_revoking_s)
        self.held -= partitions


def member_of(script: Any) -> ClassicMember:
    settings = MemberSettings(group="g", assignor="range", heartbeat_interval_ms=BEAT_MS, timeout_ms=1_000)
    return ClassicMember(script, script, script, settings)


def test_an_error_of_the_heart_that_nobody_foresaw_ends_the_member_aloud() -> None:
    """Without a heart it would go on to read what others have been given."""

    async def main() -> None:
        script = Script()
        script.beats = [ErrorCode.none, ValueError("not foreseen")]
        with pytest.raises(ValueError, match="not foreseen"):
            await asyncio.wait_for(member_of(script).run(), 5)

    asyncio.run(main())


def test_a_rebalance_that_the_heart_hears_of_twice_is_joined_once() -> None:
    async def main() -> None:
        script = Script()
        running = asyncio.create_task(member_of(script).run())
        await until(lambda: script.held)
        script.while_revoking_s = 10 * BEAT_MS / 1000
        script.beats = [ErrorCode.rebalance_in_progress] * 4
        await until(lambda: script.joins == 2 and script.held)
        await asyncio.sleep(20 * BEAT_MS / 1000)
        assert (script.joins, len(script.beats) < 3) == (2, True)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
