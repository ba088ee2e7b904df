# SPDX-License-Identifier: Apache-2.0
"""Ends a test process that hangs where pytest-timeout cannot reach it, with the stacks of all threads.

pytest-timeout raises in the main thread, which a call into a compiled library (a client's `flush` or `close`)
puts off until it returns, and it does not see what runs after the last test. Here a timer of faulthandler's
ends the process. A worker of pytest-xdist is replaced, and the test that hung has failed.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator

import pytest

GRACE_S = 60.0
"""How much longer than its time limit a test may take to be interrupted and cleaned up."""
WORKER_FINISH_S = 60.0
FINISH_S = 180.0
"""How long a session may take to finish: longer than its workers."""


def register(config: pytest.Config) -> None:
    assert sys.__stderr__ is not None
    is_worker = hasattr(config, "workerinput")
    # pytest redirects standard error while a test runs.
    config.pluginmanager.register(Watchdog(os.dup(sys.__stderr__.fileno()), is_worker=is_worker))


class Watchdog:
    """A pytest plugin."""

    def __init__(self, stderr: int, *, is_worker: bool) -> None:
        self._stderr = stderr
        self._finish_s = WORKER_FINISH_S if is_worker else FINISH_S

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if limit_s := _limit_s(item):
            self._arm(limit_s + GRACE_S)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Not cancelled: clients that were never closed may also hang at the end of the interpreter."""
        self._arm(self._finish_s)

    def _arm(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)


def _limit_s(item: pytest.Item) -> float:
    """0: none."""
    if marker := item.get_closest_marker("timeout"):
        return float(marker.args[0] if marker.args else marker.kwargs["timeout"])
    return float(item.config.getini("timeout") or 0)
