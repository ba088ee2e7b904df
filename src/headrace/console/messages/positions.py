# SPDX-License-Identifier: Apache-2.0
"""Where a query begins and ends in each partition.

Read next: page.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.errors import ClientError
from headrace.console.messages.directions import Backwards, Direction, Onwards
from headrace.console.messages.query import Query
from headrace.console.messages.topic_fetch import TopicFetch

MOST_PARTITIONS = 256
"""Read at once: a cursor names each of them."""
_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    begin: Mapping[int, int]
    """Where the query says to begin, within the log."""
    left_out: int
    """Partitions that are too many to be read at once."""

    def ranges(self, query: Query) -> dict[int, tuple[int, int]]:
        if query.way == "newer":
            return {each: (offset, self.ends[each]) for each, offset in self.begin.items()}
        return {each: (self.starts[each], offset) for each, offset in self.begin.items()}


def direction_of(query: Query) -> Direction:
    return Onwards() if query.way == "newer" else Backwards()


async def find_positions(reader: TopicFetch, query: Query) -> Positions:
    """Partitions that cannot be asked are missing; `reader.problems` says why."""
    asked = reader.chosen(list(query.cursor) if query.cursor else query.partitions)
    partitions = asked[:MOST_PARTITIONS]
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            starts = await reader.starts(partitions)
            ends = await reader.ends(starts)
            begin = await _begin(reader, query, starts, ends)
    except TimeoutError:
        raise ClientError(
            f"the brokers did not say within {_TIMEOUT_S} s which offsets topic {query.topic!r} has",
            next_step="look at the cluster page for nodes that are down, then try again",
            code="_TIMED_OUT",
        ) from None
    inside = {each: min(max(begin[each], starts[each]), ends[each]) for each in ends if each in begin}
    return Positions(starts=starts, ends=ends, begin=inside, left_out=len(asked) - len(partitions))


async def _begin(
    reader: TopicFetch, query: Query, starts: Mapping[int, int], ends: Mapping[int, int]
) -> Mapping[int, int]:
    match query.place:
        case "newest":
            return ends
        case "oldest":
            return starts
        case "cursor":
            return query.cursor
        case "offset":
            return dict.fromkeys(ends, query.value)
        case "time":
            found = await reader.at_time(ends, query.value)
            return {each: offset if offset >= 0 else ends[each] for each, offset in found.items()}
