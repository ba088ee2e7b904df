# SPDX-License-Identifier: Apache-2.0
"""Bounds of a read: offsets or times, resolved to a range of offsets for every partition.

Read next: prefetch.py (fetches them), reader.py (the public call).
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from headrace.client.arrow.fetch.fetcher import READ_COMMITTED
from headrace.client.errors import BrokerError, ClientError
from headrace.client.network_client import NetworkClient, TopicView
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

EARLIEST, LATEST = -2, -1

Bound = int | Mapping[int, int] | datetime | None
"""An offset of all partitions, offsets by partition, a time, or None for the beginning or the end."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A time means the first offset with that timestamp or a later one; `end` is exclusive."""

    start: Bound = None
    end: Bound = None
    partitions: tuple[int, ...] | None = None
    committed_only: bool = True

    async def resolve(self, client: NetworkClient, view: TopicView) -> dict[int, tuple[int, int]]:
        """Partition to (start, end), without empty ranges."""
        chosen = self._chosen(view)
        first = await self.offsets(client, view, dict.fromkeys(chosen, EARLIEST))
        last = await self.offsets(client, view, dict.fromkeys(chosen, LATEST))
        starts = await self._bound(client, view, self.start, first, last)
        ends = await self._bound(client, view, self.end, last, last)
        ranges = {
            each: (
                max(starts.get(each, first[each]), first[each]),
                min(ends.get(each, last[each]), last[each]),
            )
            for each in chosen
        }
        return {each: (low, high) for each, (low, high) in ranges.items() if low < high}

    def _chosen(self, view: TopicView) -> list[int]:
        if self.partitions is None:
            return view.partitions
        for partition in self.partitions:
            if partition not in view.leaders:
                raise ClientError(
                    f"topic {view.name!r} has no partition {partition}: they are 0 to {len(view.leaders) - 1}"
                )
        return sorted(set(self.partitions))

    async def _bound(
        self,
        client: NetworkClient,
        view: TopicView,
        bound: Bound,
        otherwise: dict[int, int],
        last: dict[int, int],
    ) -> Mapping[int, int]:
        if bound is None:
            return otherwise
        if isinstance(bound, int):
            return dict.fromkeys(otherwise, bound)
        if isinstance(bound, Mapping):
            return bound
        at = await self.offsets(client, view, dict.fromkeys(otherwise, milliseconds(bound)))
        return {each: offset if offset >= 0 else last[each] for each, offset in at.items()}

    async def offsets(
        self, client: NetworkClient, view: TopicView, times: Mapping[int, int]
    ) -> dict[int, int]:
        """ListOffsets: partition to the first offset at or after the time; -1: there is none."""
        by_node: dict[int, list[int]] = defaultdict(list)
        for partition in times:
            by_node[view.leaders[partition]].append(partition)
        found: dict[int, int] = {}
        for node_id, partitions in by_node.items():
            fields = {
                "replica_id": -1,
                "isolation_level": READ_COMMITTED if self.committed_only else 0,
                "topics": [{"name": view.name, "partitions": _entries(partitions, times)}],
            }
            connection = await client.connection(node_id)
            reply = await connection.call(ApiKey.LIST_OFFSETS, fields)
            for entry in (entry for topic in reply.topics for entry in topic.partitions):
                code = ErrorCode(int(entry.error_code))
                if code is not ErrorCode.none:
                    where = f"partition {entry.partition_index} of {view.name!r}"
                    raise BrokerError(f"{where}: {code.name}", code)
                found[int(entry.partition_index)] = int(entry.offset)
        return found


def since(last: str | timedelta) -> datetime:
    """The time of `last` ago: `10m`, `2.5h`, `1d`, or a timedelta."""
    if isinstance(last, timedelta):
        duration_ms = last.total_seconds() * 1000
    else:
        match = _DURATION.fullmatch(last) if isinstance(last, str) else None
        if match is None:
            raise ClientError(f"{last!r} is not a duration", next_step="write it like 30s, 10m, 2.5h or 7d")
        duration_ms = float(match[1]) * _UNITS_MS[match[2]]
    return datetime.fromtimestamp(time.time() - duration_ms / 1000).astimezone()


def milliseconds(moment: datetime) -> int:
    """A time without a zone is local time, as everywhere in Python."""
    return max(0, round(moment.timestamp() * 1000))


def _entries(partitions: Iterable[int], times: Mapping[int, int]) -> list[dict[str, int]]:
    return [
        {"partition_index": each, "current_leader_epoch": -1, "timestamp": times[each]} for each in partitions
    ]
