# SPDX-License-Identifier: Apache-2.0
"""The one retry loop: which errors are retried, for how long, and after which delays."""

from __future__ import annotations

import asyncio

import pytest

from headrace.client.connection import ConnectionLost
from headrace.client.errors import BrokerError, ClientError
from headrace.client.retry import Backoff, ExponentialBackoff, retry
from headrace.wire.error_codes import ErrorCode

MOVED = BrokerError("moved", ErrorCode.not_leader_or_follower)
REFUSED = BrokerError("refused", ErrorCode.topic_authorization_failed)


class Attempts:
    """Fails with these errors, one per attempt, then succeeds."""

    def __init__(self, *errors: ClientError) -> None:
        self.errors = list(errors)
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def run(attempts: Attempts, *, timeout_ms: int = 1_000) -> str:
    return asyncio.run(retry(attempts, Backoff(timeout_ms, first_ms=1, max_ms=2).wait))


def test_lost_replies_and_retriable_codes_are_retried() -> None:
    attempts = Attempts(ConnectionLost("gone"), MOVED)
    assert run(attempts) == "done"
    assert attempts.count == 3


@pytest.mark.parametrize("error", [REFUSED, ClientError("a bug")])
def test_other_errors_are_raised_at_once(error: ClientError) -> None:
    attempts = Attempts(error)
    with pytest.raises(ClientError) as caught:
        run(attempts)
    assert caught.value is error
    assert attempts.count == 1


def test_the_last_error_is_raised_after_the_timeout() -> None:
    attempts = Attempts(*[ConnectionLost("gone")] * 1_000)
    with pytest.raises(ConnectionLost, match="gone"):
        run(attempts, timeout_ms=100)
    assert 1 < attempts.count < 1_000


def test_a_success_starts_the_timeout_again() -> None:
    async def waits() -> None:
        backoff = Backoff(20, first_ms=15, max_ms=15)
        for _ in range(4):
            await backoff.wait(MOVED)
            backoff.reset()

    asyncio.run(waits())


def test_delays_double_up_to_the_maximum() -> None:
    delays = ExponentialBackoff(first_ms=50, max_ms=1_000, jitter=0.5)
    assert [delays.delay_ms(failures, 0) for failures in (1, 2, 3, 6, 100)] == [50, 100, 200, 1_000, 1_000]
    assert delays.delay_ms(1, 0.999) > 25
