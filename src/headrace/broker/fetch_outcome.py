"""What one look at the partitions of a fetch found, and how it becomes the parts of a reply.

Read next: handlers/fetch.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.fetch_sessions import FetchEntry
from headrace.broker.partition import Partition
from headrace.wire.fetch import FetchResult

if TYPE_CHECKING:
    from headrace.broker.outbox import Part
    from headrace.log.log_slice import LogSlice


class Outcome:
    """One look at all partitions of a request."""

    __slots__ = ("full", "left", "readable", "results", "slices")

    def __init__(self, left: int) -> None:
        self.results: list[tuple[FetchEntry, FetchResult]] = []
        self.slices: list[LogSlice] = []
        self.readable: list[Partition] = []
        self.left = left
        """Bytes that the reply may still hold."""
        self.full = False
        """There is more than the reply can hold, or an error to tell: waiting would not make it better."""

    @property
    def size(self) -> int:
        return sum(part.size for part in self.slices)

    def release(self) -> None:
        for part in self.slices:
            part.release()


def reply_parts(chunks: list[bytes], slices: list[LogSlice]) -> list[Part]:
    """The records of each partition between the pieces of the frame."""
    if not slices:
        return [*chunks]
    parts: list[Part] = []
    for chunk, records in zip(chunks, slices, strict=False):
        parts += (chunk, records)
    parts.append(chunks[-1])
    return parts


def is_news(entry: FetchEntry, result: FetchResult) -> bool:
    return (
        result.size > 0
        or result.error_code != 0
        or result.diverging is not None
        or result.high_watermark != entry.told_high_watermark
        or result.log_start_offset != entry.log_start_offset
    )
