# SPDX-License-Identifier: Apache-2.0
"""Damaged logs, full disks and slow nodes, from the events in `__headrace_events`.

The newest event of each log, disk and node counts. Read by plain Fetch requests: a client with a group would
make a cluster create `__consumer_offsets`. Read next: cli/groups/events.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.brokers import Brokers, run
from headrace.errors import HeadraceError
from headrace.types import EVENTS_TOPIC, EVENTS_VERSION
from headrace.wire.api_key import ApiKey
from headrace.wire.batch import HEADER_SIZE, read_header
from headrace.wire.records import iter_records

_NEWEST = 5_000
"""How many events are read: older ones are in the nodes' log files."""
_REPLY_BYTES = 4 << 20
_NEWEST_BY_NAME = 12
"""Later versions of Fetch know topics by their ids."""
_NEWEST_OFFSETS = 7
_EARLIEST, _LATEST = -2, -1

Key = tuple[str, int, int]
"""Topic, partition and node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRange:
    """Of a log that is served nevertheless, since no other replica can take over."""

    first_offset: int
    last_offset: int
    log_start: int
    log_end: int
    """When the damage was found."""
    reason: str


@dataclass(slots=True)
class DiskEvents:
    damaged: dict[Key, str]
    """Logs that are offline, and why."""
    full: dict[int, str]
    """Nodes whose disk is full, and why."""
    repairing: dict[Key, str] = field(default_factory=dict)
    """Those of the offline logs whose damaged range is being fetched, and which it is."""
    ranges: dict[Key, list[DamagedRange]] = field(default_factory=dict)
    slow: dict[int, str] = field(default_factory=dict)
    """Nodes that were found slow, and why."""


def disk_events(cluster: Cluster, *, timeout_ms: int = 10_000) -> DiskEvents:
    """Raises ClientError when the cluster does not answer. Creates no topic."""
    found = DiskEvents({}, {})
    for value in run(_newest_events(cluster, timeout_ms)):
        _take(found, value)
    return found


async def _newest_events(cluster: Cluster, timeout_ms: int) -> list[bytes | None]:
    async with Brokers(cluster, timeout_ms=timeout_ms) as brokers:
        metadata = await brokers.metadata([EVENTS_TOPIC])
        leader = _leader(metadata)
        if leader is None:
            return []
        start = await _offset(brokers, leader, _EARLIEST)
        stop = await _offset(brokers, leader, _LATEST)
        offset, values = max(start, stop - _NEWEST), []
        while offset < stop:
            records, following = await _fetch(brokers, leader, offset)
            if following == offset:
                break
            values += records
            offset = following
        return values


def _leader(metadata: Any) -> int | None:
    """None: no such topic, or no node leads it."""
    for topic in metadata.topics:
        for partition in topic.partitions:
            if int(partition.partition_index) == 0 and int(partition.leader_id) >= 0:
                return int(partition.leader_id)
    return None


async def _offset(brokers: Brokers, leader: int, timestamp: int) -> int:
    fields = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": EVENTS_TOPIC, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}],
    }
    reply = await brokers.call_node(leader, ApiKey.LIST_OFFSETS, fields, newest=_NEWEST_OFFSETS)
    return max((int(each.offset) for topic in reply.topics for each in topic.partitions), default=0)


async def _fetch(brokers: Brokers, leader: int, offset: int) -> tuple[list[bytes | None], int]:
    """Values, and the offset to go on from."""
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": _REPLY_BYTES}
    fields = {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": _REPLY_BYTES,
        "isolation_level": 0,
        "topics": [{"topic": EVENTS_TOPIC, "partitions": [partition]}],
    }
    reply = await brokers.call_node(leader, ApiKey.FETCH, fields, newest=_NEWEST_BY_NAME)
    values: list[bytes | None] = []
    for response in reply.responses:
        for data in response.partitions:
            try:
                for batch, next_offset in _batches(memoryview(data.records or b"")):
                    values += [record.value for record in iter_records(batch) if record.offset >= offset]
                    offset = next_offset
            except HeadraceError as error:
                raise ClientError(f"topic {EVENTS_TOPIC!r} cannot be read: {error}") from None
    return values, offset


def _batches(view: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Whole batches and the offset after each; a last one that is cut off is left out."""
    position = 0
    while position + HEADER_SIZE <= len(view):
        header = read_header(view, position)
        if position + header.size > len(view):
            return
        yield view[position : position + header.size], header.next_offset
        position += header.size


def _take(found: DiskEvents, value: bytes | None) -> None:
    try:
        document: dict[str, Any] = json.loads(value or b"")
        if int(document.get("version", 1)) > EVENTS_VERSION:
            return
        kind, details = document["kind"], document["details"]
        node = int(details.get("node", -1))
        if kind in ("disk_full", "disk_room"):
            found.full.pop(node, None)
            if kind == "disk_full":
                found.full[node] = str(details["reason"])
        elif kind in ("slow_node", "fast_node"):
            found.slow.pop(node, None)
            if kind == "slow_node":
                found.slow[node] = _why_slow(node, details)
        elif kind == "node_up":  # what it still finds damaged, it tells again
            found.ranges = {key: ranges for key, ranges in found.ranges.items() if key[2] != node}
        elif kind in _OF_LOGS:
            _OF_LOGS[kind](found, (str(document["topic"]), int(document["partition"]), node), details)
    except (ValueError, KeyError, TypeError, AttributeError):
        return  # written by a newer release in another format


def _why_slow(node: int, details: dict[str, Any]) -> str:
    by, typical_ms, others_ms = (int(details[name]) for name in ("by", "typical_ms", "others_ms"))
    found_by = "by itself, its disk" if by == node else f"by node {by}"
    return (
        f"slow, as found {found_by}: {typical_ms} ms to acknowledge an append, the fastest other {others_ms}"
    )


def _offline(found: DiskEvents, key: Key, details: dict[str, Any]) -> None:
    found.damaged[key] = str(details["reason"])
    found.ranges.pop(key, None)


def _online(found: DiskEvents, key: Key, details: dict[str, Any]) -> None:
    found.damaged.pop(key, None)
    found.repairing.pop(key, None)


def _repairing(found: DiskEvents, key: Key, details: dict[str, Any]) -> None:
    found.repairing[key] = str(details["reason"])


def _damaged_ranges(found: DiskEvents, key: Key, details: dict[str, Any]) -> None:
    """All damaged segments of a log that stays online; none when it is whole again."""
    found.ranges[key] = [
        DamagedRange(
            first_offset=int(first),
            last_offset=int(last),
            log_start=int(details["log_start"]),
            log_end=int(details["log_end"]),
            reason=str(reason),
        )
        for first, last, reason in details["ranges"]
    ]


_OF_LOGS = {
    "offline": _offline,
    "online": _online,
    "repairing": _repairing,
    "damaged_ranges": _damaged_ranges,
}
