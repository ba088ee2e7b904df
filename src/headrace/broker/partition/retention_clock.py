# SPDX-License-Identifier: Apache-2.0
"""The clock for retention: the wall clock, with jumps ahead accepted only after an hour (R34).

A clock that was set wrong for a moment must not delete a week of records; nor must one that is wrong when the
node starts, so that the node writes down now and then what it takes the time to be. A step back is accepted
at once, since it deletes nothing. Read next: housekeeping.py.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.world import Clock, Files, read_file, replace_file

logger = logging.getLogger(__name__)

CLOCK_FILE = "headrace-clock"
"""An additional file of the data folder: earlier releases leave it alone."""
NOT_A_JUMP_MS = 60_000
ACCEPTED_AFTER_S = 3600.0
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """What a node took the time to be."""

    boot_id: str
    ahead_ms: int
    """By how much the wall clock is ahead of the steady one, which goes on until the machine is booted."""
    now_ms: int


class ClockFile:
    """What is remembered of the clock between two processes of a node. Blocking."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / CLOCK_FILE

    def load(self) -> ClockReading | None:
        """None: nothing is remembered that this release understands."""
        try:
            document = json.loads(read_file(self._files, self._path))
            if document["format"] != _FORMAT:
                return None
            return ClockReading(
                boot_id=str(document["boot_id"]),
                ahead_ms=int(document["ahead_ms"]),
                now_ms=int(document["now_ms"]),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            logger.warning("%s cannot be read, so that the clock is taken as it is: %r", self._path, error)
            return None

    def save(self, reading: ClockReading) -> None:
        """Raises OSError."""
        document = {"format": _FORMAT, **asdict(reading)}
        replace_file(self._files, self._path, json.dumps(document).encode())


class RetentionClock:
    """`last`: what an earlier process of the node wrote down. Without it the clock is taken as it is."""

    def __init__(self, clock: Clock, boot_id: str | None = None, last: ClockReading | None = None) -> None:
        self._clock = clock
        self._boot_id = boot_id or ""
        ahead_ms = self._ahead_ms()
        self._accepted_ms = ahead_ms if last is None else min(ahead_ms, self._remembered_ms(last))
        """How far the wall clock is ahead of the steady one."""
        self._seen_ms = ahead_ms
        self._seen_since = clock.monotonic()
        if self.is_in_doubt:
            logger.warning(
                "the clock is %d s ahead of the time at which this node last ran; nothing is deleted by "
                "it for the next hour: put it right by then, unless the node was down for that long",
                (ahead_ms - self._accepted_ms) // 1000,
            )

    def _remembered_ms(self, last: ClockReading) -> int:
        """After a boot it is not known how long the machine was down: as if time had stood still."""
        if self._boot_id and last.boot_id == self._boot_id:
            return last.ahead_ms
        return last.now_ms - int(self._clock.monotonic() * 1000)

    @property
    def is_in_doubt(self) -> bool:
        """Whether the wall clock is ahead of the time that is accepted."""
        return self._ahead_ms() - self._accepted_ms > NOT_A_JUMP_MS

    def now_ms(self) -> int:
        ahead_ms, now = self._ahead_ms(), self._clock.monotonic()
        if ahead_ms - self._accepted_ms <= NOT_A_JUMP_MS:
            self._accepted_ms = ahead_ms
        elif abs(ahead_ms - self._seen_ms) > NOT_A_JUMP_MS:
            self._seen_ms, self._seen_since = ahead_ms, now
            logger.warning(
                "the clock jumped ahead by %d s; nothing is deleted by its time for the next hour",
                (ahead_ms - self._accepted_ms) // 1000,
            )
        elif now - self._seen_since >= ACCEPTED_AFTER_S:
            self._accepted_ms = ahead_ms
        return self._accepted_ms + int(now * 1000)

    def reading(self) -> ClockReading:
        """To be written down."""
        now_ms = self.now_ms()
        return ClockReading(boot_id=self._boot_id, ahead_ms=self._accepted_ms, now_ms=now_ms)

    def _ahead_ms(self) -> int:
        return self._clock.wall_ms() - int(self._clock.monotonic() * 1000)
