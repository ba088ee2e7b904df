# SPDX-License-Identifier: Apache-2.0
"""A topic in memory for scans: real batches, cut into fetches of a few records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.client.arrow.fetch.sections import Fetched
from headrace.console.messages.decoding import Part
from headrace.console.messages.record import StoredRecord
from headrace.wire.records import Record, build_batch


class FakeReader:
    """`partitions`: timestamps of each one's records; the values are their offsets."""

    def __init__(self, partitions: Mapping[int, Sequence[int]], *, batch: int = 3) -> None:
        self.problems: dict[int, str] = {}
        self.fetches = 0
        self._partitions = partitions
        self._batch = batch

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        return {partition: (0, len(times)) for partition, times in self._partitions.items()}

    async def fetch(self, ranges: Mapping[int, tuple[int, int]]) -> list[Part]:
        self.fetches += 1
        return [self._part(partition, first, end) for partition, (first, end) in ranges.items()]

    def _part(self, partition: int, first: int, end: int) -> Part:
        """The batch with that offset, as brokers send it: it may begin before."""
        start = first // self._batch * self._batch
        times = self._partitions[partition][start : start + self._batch]
        records = [
            Record(start + place, time, None, b"%d" % (start + place)) for place, time in enumerate(times)
        ]
        data = bytes(build_batch(records, base_offset=start))
        return Part(fetched=Fetched(partition, data, first, end), settled=1 << 62, show_aborted=False)


async def run_here(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


def record(**fields: Any) -> StoredRecord:
    return StoredRecord(**{"partition": 0, "offset": 0, "timestamp_ms": 0, **fields})
