# SPDX-License-Identifier: Apache-2.0
"""Waits until a condition holds, instead of sleeping for a time that is long enough on one machine only.

Any other `time.sleep` in the tests says why time itself has to pass (tests/docs/test_sleeps.py).
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import TypeVar

DEFAULT_TIMEOUT_S = 30.0
_POLL_S = 0.01

T = TypeVar("T")


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], object] = "the condition",
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    poll_s: float = _POLL_S,
) -> None:
    """Return as soon as `condition()` is true; after the timeout fail with `what` was awaited or is seen.

    What the condition raises ends the wait.
    """
    found = poll(condition, bool, timeout_s=timeout_s, poll_s=poll_s)
    assert found, _failure(what, timeout_s)


def poll(
    read: Callable[[], T],
    wanted: Callable[[T], object] = bool,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    poll_s: float = _POLL_S,
) -> T:
    """What `read()` returns as soon as it is wanted, or last before the timeout: the caller asserts."""
    deadline = time.monotonic() + timeout_s
    while not wanted(value := read()) and time.monotonic() < deadline:
        time.sleep(poll_s)  # between two looks
    return value


def poll_passing(
    check: Callable[[], T], *, timeout_s: float = DEFAULT_TIMEOUT_S, poll_s: float = _POLL_S
) -> T:
    """What `check()` returns as soon as none of its assertions fails; the last failure after the timeout."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(poll_s)  # between two looks


def check_stays(
    condition: Callable[[], object],
    what: str | Callable[[], object],
    *,
    seconds: float,
    poll_s: float = _POLL_S,
) -> None:
    """Fail with `what` happened as soon as `condition()` is false within that time."""
    broken = poll(lambda: not condition(), timeout_s=seconds, poll_s=poll_s)
    assert not broken, f"within {seconds:g} s: {what if isinstance(what, str) else what()}"


async def until(
    condition: Callable[[], object],
    what: str | Callable[[], object] = "the condition",
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> None:
    """`wait_until` in an event loop; the condition may be awaitable."""
    deadline = time.monotonic() + timeout_s
    while not await _value_of(condition()):
        assert time.monotonic() < deadline, _failure(what, timeout_s)
        await asyncio.sleep(_POLL_S)


async def _value_of(found: object) -> object:
    return await found if inspect.isawaitable(found) else found


def _failure(what: str | Callable[[], object], timeout_s: float) -> str:
    return f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}"
