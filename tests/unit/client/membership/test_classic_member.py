# SPDX-License-Identifier: Apache-2.0
"""A classic member and a scripted coordinator: heartbeats, rebalances, and a coordinator that moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.connection import ConnectionLost
from headrace.client.coordinator import CoordinatorError, CoordinatorType
from headrace.client.membership.classic import ClassicMember
from headrace.client.membership.member import MemberContext, MemberSettings
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.coordinator.consumer_protocol import encode_assignment
from headrace.wire.error_codes import ErrorCode
from tests.harness.waiting import until

BEAT_MS = 10


class Script:
    """Stands for the coordinator, the topics and the reader of a group with one other member, its leader."""

    subscribed = ("t",)

    def __init__(self) -> None:
        self.joins = 0
        self.join_errors: list[ErrorCode] = []
        """Answers to the next JoinGroups; then they succeed."""
        self.lost: list[frozenset[TopicPartition]] = []
        self.beats: list[ErrorCode | Exception] = []
        """Answers to the next heartbeats; then they succeed."""
        self.while_revoking_s = 0.0
        self.held: set[TopicPartition] = set()

    # the coordinator

    async def call(self, api_key: int, fields: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        if api_key == ApiKey.JOIN_GROUP:
            if self.join_errors:
                return SimpleNamespace(error_code=self.join_errors.pop(0))
            self.joins += 1
            return SimpleNamespace(
                error_code=0, member_id="me", generation_id=self.joins, leader="other", protocol_name="range"
            )
        if api_key == ApiKey.SYNC_GROUP:
            return SimpleNamespace(error_code=0, assignment=encode_assignment({"t": [0]}))
        assert api_key == ApiKey.HEARTBEAT
        answer = self.beats.pop(0) if self.beats else ErrorCode.none
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(error_code=answer)

    def error_of(self, code: int) -> CoordinatorError | None:
        return CoordinatorError(CoordinatorType.GROUP, "g", ErrorCode(code)) if code else None

    # the topics

    def on_change(self, listener: Any) -> None: ...

    # the reader

    def ms_since_poll(self) -> float:
        return 0.0

    async def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.held |= partitions

    async def revoked(self, partitions: frozenset[TopicPartition], *, lost: bool) -> None:
        await asyncio.sleep(self.while_revoking_s)
        self.held -= partitions
        if lost:
            self.lost.append(partitions)


def member_of(script: Any) -> ClassicMember:
    settings = MemberSettings(group="g", assignor="range", heartbeat_interval_ms=BEAT_MS, timeout_ms=1_000)
    return ClassicMember(MemberContext(coordinator=script, watch=script, listener=script, settings=settings))


async def running_until(script: Script, condition: Callable[[], object]) -> None:
    running = asyncio.create_task(member_of(script).run())
    await until(condition)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_an_unexpected_error_of_a_heartbeat_ends_the_member() -> None:
    """Without heartbeats it would go on to read what others have been assigned."""

    async def main() -> None:
        script = Script()
        script.beats = [ErrorCode.none, ValueError("not foreseen")]
        with pytest.raises(ValueError, match="not foreseen"):
            await asyncio.wait_for(member_of(script).run(), 5)

    asyncio.run(main())


def test_a_rebalance_in_the_reply_to_two_heartbeats_is_joined_once() -> None:
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


@pytest.mark.parametrize("code", [ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress])
def test_a_join_is_retried_while_the_coordinator_moves(code: ErrorCode) -> None:
    script = Script()
    script.join_errors = [code, code]
    asyncio.run(running_until(script, lambda: script.held))
    assert (script.joins, script.join_errors) == (1, [])


def test_a_refused_join_ends_the_member() -> None:
    script = Script()
    script.join_errors = [ErrorCode.group_authorization_failed]
    with pytest.raises(CoordinatorError, match="group_authorization_failed"):
        asyncio.run(asyncio.wait_for(member_of(script).run(), 5))


def test_heartbeats_are_retried_while_the_coordinator_moves() -> None:
    script = Script()
    script.beats = [ErrorCode.not_coordinator, ConnectionLost("gone"), ErrorCode.none]
    asyncio.run(running_until(script, lambda: not script.beats))
    assert (script.joins, script.lost) == (1, [])


def test_a_removed_member_loses_its_partitions_and_joins_again() -> None:
    script = Script()
    script.beats = [ErrorCode.unknown_member_id]
    asyncio.run(running_until(script, lambda: script.joins == 2 and script.held))
    assert script.lost == [frozenset({TopicPartition("t", 0)})]
