# SPDX-License-Identifier: Apache-2.0
"""Load from other processes, so that the client's own core is not what is measured.

A small pool of spawned processes that live as long as the run; tasks start together at an agreed time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_LEAD_SECONDS = 0.6  # time for 32 producers to connect


class WorkerPool:
    def __init__(self, size: int = 4) -> None:
        # librdkafka does not survive a fork: spawn.
        self._pool = ProcessPoolExecutor(max_workers=size, mp_context=get_context("spawn"))

    def submit(self, task: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._pool.submit(task, *args, **kwargs)

    def run_together(self, task: Callable[..., T], arguments: list[dict[str, Any]]) -> list[T]:
        """One call per element, begun at the same moment; `start_at` is added to the arguments."""
        start_at = time.monotonic() + _LEAD_SECONDS
        futures = [self._pool.submit(task, start_at=start_at, **one) for one in arguments]
        return [future.result() for future in futures]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def wait_until(start_at: float) -> None:
    """time.monotonic() is one clock for all processes of a machine."""
    time.sleep(max(0.0, start_at - time.monotonic()))
