# SPDX-License-Identifier: Apache-2.0
"""A KIP-848 member and a scripted coordinator: one that moves, fences the member or refuses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headrace.client.connection import ConnectionLost
from headrace.client.coordinator import CoordinatorError, CoordinatorType
from headrace.client.membership.kip848 import Kip848Member
from headrace.client.membership.member import MemberContext, MemberSettings
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode
from tests.harness.waiting import until

TOPIC_ID = UUID(int=1)
HELD = frozenset({TopicPartition("t", 0)})


class Script:
    """Stands for the coordinator, the topics and the reader."""

    subscribed = ("t",)

    def __init__(self, *answers: ErrorCode | Exception) -> None:
        self.views = {"t": SimpleNamespace(topic_id=TOPIC_ID)}
        self.answers = list(answers)
        """To the next heartbeats; then they succeed and assign partition 0."""
        self.epochs: list[int] = []
        self.held: set[TopicPartition] = set()
        self.lost: list[frozenset[TopicPartition]] = []

    # the coordinator

    async def call(self, api_key: int, fields: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        self.epochs.append(fields["member_epoch"])
        answer = self.answers.pop(0) if self.answers else ErrorCode.none
        if isinstance(answer, Exception):
            raise answer
        assigned = SimpleNamespace(topic_id=TOPIC_ID, partitions=[0])
        return SimpleNamespace(
            error_code=answer,
            error_message=None,
            member_id="me",
            member_epoch=7,
            heartbeat_interval=timedelta(milliseconds=10),
            assignment=SimpleNamespace(topic_partitions=[assigned]),
        )

    def error_of(self, code: int, message: str | None = None) -> CoordinatorError | None:
        return CoordinatorError(CoordinatorType.GROUP, "g", ErrorCode(code), message) if code else None

    # the topics

    def on_change(self, listener: Any) -> None: ...

    def name_of(self, topic_id: UUID) -> str | None:
        return "t" if topic_id == TOPIC_ID else None

    # the reader

    def ms_since_poll(self) -> float:
        return 0.0

    async def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.held |= partitions

    async def revoked(self, partitions: frozenset[TopicPartition], *, lost: bool) -> None:
        self.held -= partitions
        if lost:
            self.lost.append(partitions)


def member_of(script: Any) -> Kip848Member:
    settings = MemberSettings(group="g", timeout_ms=1_000)
    return Kip848Member(MemberContext(coordinator=script, watch=script, listener=script, settings=settings))


async def running_until(script: Script, condition: Callable[[], object]) -> None:
    running = asyncio.create_task(member_of(script).run())
    await until(condition)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    "failure",
    [ErrorCode.not_coordinator, ErrorCode.unreleased_instance_id, ConnectionLost("gone")],
    ids=["moved", "still registered", "lost"],
)
def test_a_join_is_retried_while_the_coordinator_moves(failure: ErrorCode | Exception) -> None:
    script = Script(failure, failure)
    asyncio.run(running_until(script, lambda: script.held))
    assert script.epochs[:3] == [0, 0, 0]
    assert script.lost == []


def test_a_fenced_member_loses_its_partitions_and_joins_again() -> None:
    script = Script(ErrorCode.none, ErrorCode.none, ErrorCode.fenced_member_epoch)
    asyncio.run(running_until(script, lambda: script.lost and script.held))
    assert script.epochs[:4] == [0, 7, 7, 0]
    assert script.lost == [HELD]


def test_a_refused_heartbeat_ends_the_member() -> None:
    script = Script(ErrorCode.group_authorization_failed)
    with pytest.raises(CoordinatorError, match="group_authorization_failed"):
        asyncio.run(asyncio.wait_for(member_of(script).run(), 5))


def test_a_coordinator_that_does_not_come_back_ends_the_member_after_the_timeout() -> None:
    script = Script(*[ConnectionLost("gone")] * 1_000)
    with pytest.raises(ConnectionLost, match="gone"):
        asyncio.run(asyncio.wait_for(member_of(script).run(), 30))
