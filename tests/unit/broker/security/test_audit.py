# SPDX-License-Identifier: Apache-2.0
"""The audit log: who was refused and who changed what, capped (S21)."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.acls import Operation, ResourceType
from headrace.broker.network.request_context import RequestContext
from headrace.broker.security.audit import LINES_PER_SECOND, AuditLog
from headrace.broker.security.authorization import Denial
from headrace.errors import ApiError
from headrace.principal import user
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

CONTEXT = RequestContext(ApiKey.CREATE_TOPICS, 7, 1, "tool", "MAIN", "10.0.0.9:5", user("alice"))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == "headrace.audit"]


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="headrace.audit")


async def replied(reply: dict[str, Any]) -> dict[str, Any]:
    return reply


def test_a_change_names_who_what_and_how_it_ended(caplog: pytest.LogCaptureFixture) -> None:
    request = SimpleNamespace(topics=(SimpleNamespace(name="a"), SimpleNamespace(name="b")))
    reply = {"topics": [{"error_code": ErrorCode.none}, {"error_code": ErrorCode.topic_already_exists}]}
    assert asyncio.run(AuditLog(Clock()).changed(CONTEXT, request, replied(reply))) is reply
    (line,) = lines(caplog)
    assert line["event"] == "change"
    assert (line["principal"], line["address"]) == ("User:alice", "10.0.0.9:5")
    assert line["names"] == ["a", "b"]
    assert line["errors"] == ["topic_already_exists"]


def test_a_change_that_is_refused_as_a_whole_is_recorded_and_still_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refused() -> dict[str, Any]:
        raise ApiError(ErrorCode.not_controller)

    with pytest.raises(ApiError):
        asyncio.run(AuditLog(Clock()).changed(CONTEXT, SimpleNamespace(), refused()))
    assert lines(caplog)[0]["errors"] == ["not_controller"]


def test_lines_are_capped_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    audit = AuditLog(clock)
    for _ in range(LINES_PER_SECOND + 30):
        audit.login_refused(CONTEXT, "PLAIN", "mallory", "the password is wrong")
    clock.now += 1
    audit.denied(
        Denial(user("bob"), "10.0.0.9", ApiKey.PRODUCE, Operation.WRITE, ResourceType.TOPIC, "orders")
    )
    found = lines(caplog)
    assert len(found) == LINES_PER_SECOND + 2
    assert found[-2] == {"event": "left out", "lines": 30}
    assert (found[-1]["resource_type"], found[-1]["resource"]) == ("TOPIC", "orders")


def test_a_long_name_of_a_stranger_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    AuditLog(Clock()).login_refused(CONTEXT, "PLAIN", "x" * 10_000, "there is no such user")
    assert len(lines(caplog)[0]["user"]) < 300
