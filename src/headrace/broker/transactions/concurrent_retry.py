# SPDX-License-Identifier: Apache-2.0
"""Asks a transaction coordinator again that answered CONCURRENT_TRANSACTIONS, for a short time.

The markers of the producer's last transaction are about to be written. A retry by the producer would cost it
a whole request, and a backoff that is longer than they take.
Read next: enrolment.py, handlers/transactions.py.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.world import Clock, Tasks

RETRY_S = 0.1
"""How long in all: the default of Apache Kafka's add.partitions.to.txn.retry.backoff.max.ms."""
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.001, 0.02


class ConcurrentRetry:
    """Of one request: the time begins when it is made."""

    __slots__ = ("_backoff_s", "_clock", "_tasks", "_until")

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._until = clock.monotonic() + RETRY_S
        self._backoff_s = FIRST_BACKOFF_S

    def schedule(self, ask: Callable[[], None]) -> bool:
        """Calls `ask` after a backoff. False: the time is over, and CONCURRENT_TRANSACTIONS is the answer."""
        now = self._clock.monotonic()
        if now >= self._until:
            return False
        self._tasks.call_later(min(self._backoff_s, self._until - now), ask)
        self._backoff_s = min(2 * self._backoff_s, LONGEST_BACKOFF_S)
        return True
