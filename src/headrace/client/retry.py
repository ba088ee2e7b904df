# SPDX-License-Identifier: Apache-2.0
"""Retries with exponential backoff: the one retry loop of all clients.

Which errors are retried and for how long is the caller's choice. Loops that keep partial progress between
attempts (sender, prefetch) use Backoff by itself. Read next: coordinator.py, network_client.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from headrace.client.connection import ConnectionLost, RequestTimedOut
from headrace.client.errors import BrokerError, ClientError

T = TypeVar("T")

LOST = (ConnectionLost, RequestTimedOut)
"""No reply came: the request is retried, on another broker or later."""


def is_retriable(error: ClientError) -> bool:
    """Whether no reply came, or Kafka marks the error code as retriable."""
    return isinstance(error, LOST) or (isinstance(error, BrokerError) and error.retriable)


async def retry(
    attempt: Callable[[], Awaitable[T]],
    wait: Callable[[ClientError], Awaitable[None]],
    *,
    retriable: Callable[[ClientError], bool] = is_retriable,
) -> T:
    """The result of the first attempt that succeeds.

    `wait` returns when the next attempt is due, or raises: usually `Backoff.wait`.
    """
    while True:
        try:
            return await attempt()
        except ClientError as error:
            if not retriable(error):
                raise
            await wait(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """Delays that double with each failure, up to a maximum. Pure: randomness is an argument."""

    first_ms: int = 50
    max_ms: int = 1_000
    jitter: float = 0.5
    """Up to this share is taken off a delay, so that what failed together is not retried together."""

    def delay_ms(self, failures: int, random: float) -> float:
        """After so many failures (from 1); `random` is from 0 up to 1."""
        doublings = min(failures - 1, 62)  # beyond that any maximum is reached
        return min(self.first_ms << doublings, self.max_ms) * (1 - self.jitter * random)


class Backoff:
    """Waits between attempts, until none succeeded for `timeout_ms` since the first failure."""

    def __init__(self, timeout_ms: int, *, first_ms: int = 50, max_ms: int = 1_000) -> None:
        self._timeout_s = timeout_ms / 1000
        self._delays = ExponentialBackoff(first_ms=first_ms, max_ms=max_ms)
        self.reset()

    def reset(self) -> None:
        """After a success."""
        self._failures = 0
        self._deadline: float | None = None

    async def wait(self, error: ClientError) -> None:
        """Sleeps until the next attempt is due. Raises `error` when the timeout has passed."""
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._timeout_s
        if now >= self._deadline:
            raise error
        self._failures += 1
        await asyncio.sleep(self._delays.delay_ms(self._failures, random.random()) / 1000)
