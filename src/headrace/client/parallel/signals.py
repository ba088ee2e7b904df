# SPDX-License-Identifier: Apache-2.0
"""Turns SIGINT and SIGTERM into a graceful stop."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """The first signal calls `stop`; a second one has its default effect. Yields the signals received.

    Only the main thread may do this; elsewhere nothing is changed.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(number: int, _: FrameType | None) -> None:
        received.append(number)
        restore()
        stop()

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield received
    finally:
        restore()
