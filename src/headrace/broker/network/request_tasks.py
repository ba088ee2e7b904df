# SPDX-License-Identifier: Apache-2.0
"""Tasks of requests that are not answered in the read that brought them.

Read next: dispatch/dispatcher.py, handlers/produce.py and handlers/fetch.py (which start them).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.broker.network.connection import KafkaConnection
from headrace.errors import DecodeError
from headrace.world import Tasks

logger = logging.getLogger(__name__)

NOT_ANSWERED = "the request could not be answered; see the previous log line"
_STOP_TIMEOUT_S = 5.0
"""How long running requests may still take when the node stops."""


Metered = Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]]
"""Charges the time of a task to the client whose request starts it."""


class RequestTasks:
    def __init__(self, tasks: Tasks, metered: Metered = lambda request: request) -> None:
        self._spawn = tasks.spawn
        self._metered = metered
        self._running: set[asyncio.Task[None]] = set()

    def start(self, connection: KafkaConnection, request: Coroutine[Any, Any, None]) -> None:
        """Runs the request in a task; the connection starts no other request before it has ended."""
        connection.block()
        request = self._metered(request)
        task = self._spawn(_supervise(connection, request), name=f"request of {connection.peer}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        """Waits for running requests, and cancels those that take too long."""
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=_STOP_TIMEOUT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


async def _supervise(connection: KafkaConnection, request: Coroutine[Any, Any, None]) -> None:
    try:
        await request
    except DecodeError as error:
        connection.refuse(str(error))
    except Exception:
        logger.exception("a request from %s failed", connection.peer)
        connection.refuse(NOT_ANSWERED)
    else:
        connection.unblock()
