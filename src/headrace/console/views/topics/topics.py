# SPDX-License-Identifier: Apache-2.0
"""View `topics` (`q`, `sort`, `limit`, `internal`): all topics with their size, rate, readers and problems.

`sort` is a column, with a minus in front for descending. Its document is in docs/design/console.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from headrace.client.partitioning.stored_ranges import RANGES_CONFIG
from headrace.console.state.group_folding import partition_lag
from headrace.console.state.model import PartitionState, Snapshot, TopicState
from headrace.console.views.admin_document import bounded_int, command, document, matching
from headrace.console.views.alarms.alarms import cluster_alarms
from headrace.console.views.lag_figures import rounded
from headrace.console.views.sorting import sorted_rows
from headrace.console.views.view import Document, Params, Source, View

DEFAULT_ROWS, MOST_ROWS = 200, 2_000


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    readers = _readers(snapshot)
    found = [
        _topic(topic, readers.get(topic.name, {}))
        for topic in snapshot.topics.values()
        if matching(params.get("q", ""), topic.name)
    ]
    limit = bounded_int(params, "limit", DEFAULT_ROWS, MOST_ROWS)
    parts: Document = {
        "total": len(found),
        "topics": sorted_rows(found, params.get("sort") or "name", "name", last="internal")[:limit],
    }
    alarms = [each for each in cluster_alarms(snapshot) if (each["path"] or "").startswith("/topics")]
    commands = [command("List the topics", "topics", "list", "--bootstrap", str(source.cluster))]
    return document("topics", snapshot, parts, unknown=snapshot.unknown, alarms=alarms, commands=commands)


def _topic(topic: TopicState, lags: dict[str, int | None]) -> Document:
    partitions = topic.partitions.values()
    known_lags = [lag for lag in lags.values() if lag is not None]
    return {
        "name": topic.name,
        "internal": topic.internal,
        "partitions": len(partitions),
        "replication": max((len(each.replicas) for each in partitions), default=0),
        "records": records_of(partitions),
        "size_bytes": total(each.size_bytes for each in partitions),
        "rate_in": rounded(total_rate(partitions)),
        "under_replicated": sum(each.under_replicated for each in partitions),
        "without_leader": sum(each.leader is None for each in partitions),
        "groups": len(lags),
        "lag": max(known_lags, default=None),
        "range_partitioned": bool(topic.configs[RANGES_CONFIG]) if RANGES_CONFIG in topic.configs else None,
    }


def _readers(snapshot: Snapshot) -> dict[str, dict[str, int | None]]:
    """By topic: the groups that read it, each with its lag there."""
    found: dict[str, dict[str, int | None]] = defaultdict(dict)
    for group in snapshot.groups.values():
        for where, progress in group.progress.items():
            lag = partition_lag(snapshot, where, progress)
            before = found[where.topic].get(group.group_id)
            found[where.topic][group.group_id] = before if lag is None else (before or 0) + lag
        for member in group.members:
            for where in member.assigned:
                found[where.topic].setdefault(group.group_id, None)
    return found


def records_of(partitions: Iterable[PartitionState]) -> int | None:
    """Offsets between start and end: of a compacted topic, more than there are records."""
    return total(
        None if each.end is None or each.start is None else each.end - each.start for each in partitions
    )


def total(numbers: Iterable[int | None]) -> int | None:
    """None when none is known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def total_rate(partitions: Iterable[PartitionState]) -> float | None:
    known = [each.rate_in for each in partitions if each.rate_in is not None]
    return sum(known) if known else None


VIEW = View(name="topics", build=build)
