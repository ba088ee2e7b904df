# SPDX-License-Identifier: Apache-2.0
"""One line of the log for all partitions of a coordinator that are loaded together, as when a node starts.

Read next: coordinated_topic.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.world import Clock

logger = logging.getLogger(__name__)


class LoadSummary:
    def __init__(self, topic: str, plural: str, clock: Clock) -> None:
        """`plural`: what is loaded."""
        self._topic = topic
        self._plural = plural
        self._clock = clock
        self._under_way = 0
        self._began = 0.0
        self._partitions = self._machines = self._records = 0

    @contextmanager
    def load(self) -> Iterator[None]:
        """Around the load of one partition. The last of those that overlap in time logs all of them."""
        if not self._under_way:
            self._began = self._clock.monotonic()
            self._partitions = self._machines = self._records = 0
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way and self._partitions:
                self._log()

    def add(self, machines: int, records: int) -> None:
        """Called when a partition is loaded."""
        self._partitions += 1
        self._machines += machines
        self._records += records

    def _log(self) -> None:
        logger.info(
            "%s: loaded %d %s from %d records of %d %s in %.3f s",
            self._topic,
            self._machines,
            self._plural,
            self._records,
            self._partitions,
            "partition" if self._partitions == 1 else "partitions",
            self._clock.monotonic() - self._began,
        )
