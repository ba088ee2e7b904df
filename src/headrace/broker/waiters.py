"""Requests that wait: a produce for the high watermark, a fetch for enough bytes.

Plain objects with callbacks, no tasks: thousands of them may stand at once, and completing one costs a call.
Read next: partition.py (who wakes them), handlers/produce.py and handlers/fetch.py (who makes them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partition import Partition


class AckWaiter:
    """Waits until the high watermark has passed `last_offset` (R17)."""

    __slots__ = ("deadline", "done", "last_offset")

    def __init__(self, last_offset: int, deadline: float, done: Callable[[ErrorCode], None]) -> None:
        self.last_offset = last_offset
        self.deadline = deadline
        self.done = done


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class FetchWaiter:
    """Waits until `missing_bytes` have become readable in its partitions, or its time is up.

    That of a replica is woken by any change of a log's ends.
    """

    __slots__ = ("_complete", "_missing_bytes", "_partitions", "_timer", "of_replica")

    def __init__(
        self,
        partitions: list[Partition],
        missing_bytes: int,
        complete: Callable[[], None],
        *,
        of_replica: bool = False,
    ) -> None:
        self.of_replica = of_replica
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._complete: Callable[[], None] | None = complete
        self._timer: Cancellable | None = None
        for partition in partitions:
            partition.add_fetch_waiter(self)

    def start_timer(self, timer: Cancellable) -> None:
        self._timer = timer

    def more(self, byte_count: int) -> None:
        self._missing_bytes -= byte_count
        if self._missing_bytes <= 0:
            self.finish()

    def finish(self) -> None:
        """Time is up, enough has come, or a partition changed hands: answer with what there is, once."""
        complete = self._complete
        self.cancel()
        if complete is not None:
            complete()

    def cancel(self) -> None:
        self._complete = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._partitions:
            partition.remove_fetch_waiter(self)
