# SPDX-License-Identifier: Apache-2.0
"""When a stream asks again for what it could not get: its timer decides, not a second look at the clock."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.client.arrow.stream.live_fetch import LiveFetch
from headrace.client.errors import ClientError
from headrace.client.membership.topic_watch import TopicWatch
from headrace.client.network_client import NetworkClient, TopicView
from headrace.types import TopicPartition

PARTITION = TopicPartition("t", 0)
AWKWARD_MS = 100_000_005
"""By floating point, 50 ms after it is later than the millisecond at which a timer of 50 ms fires."""


class CoarseLoop:
    """Counts whole milliseconds, as uvloop does."""

    def __init__(self) -> None:
        self.now_ms = AWKWARD_MS
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_ms / 1000

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> None:
        self.timers.append((delay_s, lambda: callback(*args)))

    def fire_next(self) -> None:
        delay_s, callback = self.timers.pop(0)
        self.now_ms += round(delay_s * 1000)
        callback()


@pytest.mark.parametrize("leader", [1, -1])
def test_a_retry_is_due_when_its_timer_fires(leader: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = CoarseLoop()
    assert AWKWARD_MS / 1000 + 0.05 > (AWKWARD_MS + 50) / 1000
    monkeypatch.setattr("headrace.client.arrow.stream.live_fetch.asyncio.get_running_loop", lambda: loop)
    view = TopicView(name="t", topic_id=None, leaders={0: leader})
    watch = SimpleNamespace(views={"t": view}, missing=ClientError)
    fetch = LiveFetch(
        cast("NetworkClient", None),
        cast("TopicWatch", watch),
        budget=1 << 20,
        timeout_ms=60_000,
        committed_only=False,
        on_ready=lambda: None,
        on_out_of_range=lambda *_: None,
    )
    fetch.assign({PARTITION: 0})
    if leader >= 0:
        fetch._retry_later(PARTITION, ClientError("no answer"))
        assert fetch._nodes() == set()
        loop.fire_next()
        assert fetch._nodes() == {leader}
    else:
        for _ in range(10):
            assert fetch._nodes() == set()
            assert len(loop.timers) == 1, "it is looked for a leader again"
            loop.fire_next()
