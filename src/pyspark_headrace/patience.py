"""Asking again while brokers restart and leaders move. Knows no question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.client.arrow.bounds import TryAgain
from headrace.client.arrow.cluster import LOST, Patience

T = TypeVar("T")


async def patiently(
    ask: Callable[[], Awaitable[T]],
    *,
    timeout_ms: int,
    prepare: Callable[[Patience], Awaitable[None]] | None = None,
) -> T:
    """The first answer; what made the last try fail when none came in time.

    `prepare` comes before every other try, for whoever has to find out again whom to ask.
    """
    patience = Patience(timeout_ms)
    while True:
        try:
            return await ask()
        except (*LOST, TryAgain) as error:
            if isinstance(error, TryAgain) and not error.retriable:
                raise
            await patience.wait(error)
            if prepare is not None:
                await prepare(patience)
