# SPDX-License-Identifier: Apache-2.0
"""The records of a topic that a table does not have yet: exact offsets from the table's end to the topic's.

Fixed once, so that every read of the DataFrame sees the same records. Read next: positions.py (the table's
end), topic_table.py; pyspark_headrace/reading/data_loss.py.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.client.errors import ClientError
from pyspark_headrace.client_pool import PooledClient
from pyspark_headrace.options import ReadSettings
from pyspark_headrace.reading.data_loss import Detection, Loss, detect
from pyspark_headrace.reading.offset_lookup import OffsetLookup, Snapshot
from pyspark_headrace.reading.offsets import Offsets, Position
from pyspark_headrace.reading.splits import Range, ranges_between

_SKIP = "set on_data_loss='skip' to read what there is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    ranges: tuple[Range, ...]

    def options(self) -> dict[str, str]:
        """Options of a batch read of exactly these offsets, of these topics and no others of their names."""
        assigned: dict[str, list[int]] = defaultdict(list)
        starts: dict[str, dict[str, int]] = defaultdict(dict)
        ends: dict[str, dict[str, int]] = defaultdict(dict)
        for each in self.ranges:
            assigned[each.topic].append(each.partition)
            starts[each.topic][str(each.partition)] = each.start
            ends[each.topic][str(each.partition)] = each.end
        ids = {each.topic: each.topic_id for each in self.ranges if each.topic_id is not None}
        documents: dict[str, Any] = {
            "assign": assigned,
            "startingOffsets": starts,
            "endingOffsets": ends,
            "topicIds": ids,
        }
        return {name: json.dumps(document) for name, document in documents.items()}


def find_tail(settings: ReadSettings, end_of_table: Offsets, table: str) -> Tail:
    """What the topics have after the table's end, now. ClientError when records between are gone.

    settings: those of the source; their offsets are not used.
    """
    connections = PooledClient(settings.bootstrap, settings.security)
    try:
        return connections.call(_find(connections, settings, end_of_table, table))
    finally:
        connections.io.close()  # calls may be far apart, and other threads have their own


async def _find(connections: PooledClient, settings: ReadSettings, end: Offsets, table: str) -> Tail:
    lookup = OffsetLookup(
        connections.client,
        settings.selection,
        committed_only=settings.committed_only,
        timeout_ms=settings.timeout_ms,
    )
    await lookup.reach()
    snapshot = await lookup.snapshot(topics_must_exist=False)
    ends_of_epochs = await lookup.ends_of_epochs(end)
    detection = compare(end, snapshot, settings, ends_of_epochs, table)
    return Tail(ranges=ranges_of(detection, snapshot))


def compare(
    end: Offsets, snapshot: Snapshot, settings: ReadSettings, ends_of_epochs: Mapping[Any, int], table: str
) -> Detection:
    """Where the tail begins. With policy `fail`, ClientError for the first loss."""
    _check_names(end, settings, table)
    end = _with_new_partitions(end, snapshot)
    policy = settings.on_data_loss
    detection = detect(
        end,
        snapshot,
        selection=settings.selection,
        ends_of_epochs=ends_of_epochs,
        policy="skip" if policy == "fail" else policy,
    )
    if policy == "fail" and detection.losses:
        raise _error(detection.losses, end, snapshot, table)
    return detection


def _check_names(end: Offsets, settings: ReadSettings, table: str) -> None:
    others = [topic for topic in end.topics if not settings.selection.includes(topic)]
    if others:
        raise ClientError(
            f"the table {table} is stored from topic {others[0]!r}, which is not among those asked for",
            next_step=f"name all of its topics: {', '.join(sorted(end.topics))}",
        )


def _with_new_partitions(end: Offsets, snapshot: Snapshot) -> Offsets:
    """Partitions that were added later, and from which nothing is stored yet, begin at 0."""
    topics = dict(end.topics)
    for topic, held in end.topics.items():
        now = snapshot.get(topic)
        if now is not None and now.topic_id == held.topic_id:
            added = {number: Position(offset=0) for number in now.partitions if number not in held.partitions}
            topics[topic] = replace(held, partitions={**held.partitions, **added})
    return replace(end, topics=topics)


def ranges_of(detection: Detection, snapshot: Snapshot) -> tuple[Range, ...]:
    """From there to the end of each partition."""
    latest = {
        topic: replace(
            held,
            partitions={
                number: Position(offset=snapshot[topic].partitions[number].end) for number in held.partitions
            },
        )
        for topic, held in detection.offsets.topics.items()
    }
    end = replace(detection.offsets, topics=latest)
    return tuple(ranges_between(detection.offsets, end, reread_truncated=False))


def _error(losses: Sequence[Loss], end: Offsets, snapshot: Snapshot, table: str) -> ClientError:
    """All that retention removed, or else the first of what happened."""
    loss = losses[0]
    if loss.kind == "aged out":
        removed = [_removed(each, end, snapshot) for each in losses if each.kind == "aged out"]
        what = (
            f"the table {table} ends before the topic begins: retention removed {'; '.join(removed)} before "
            "they were stored"
        )
        step = f"{_SKIP}, and raise the topic's retention.ms"
    elif loss.kind == "deleted":
        what, step = f"topic {loss.topic!r}, from which the table {table} is stored, was deleted", _SKIP
    elif loss.kind == "recreated":
        what = (
            f"topic {loss.topic!r} was deleted and recreated: its id is {snapshot[loss.topic].topic_id}, and "
            f"the table {table} is stored from the one with id {end.topics[loss.topic].topic_id}"
        )
        step = f"store the new topic in a table of its own, or {_SKIP}: the table, then all of the new topic"
    else:
        what = f"{loss.what.replace('the query had read', f'the table {table} was stored')}"
        step = _SKIP
    return ClientError(what, next_step=step, code="DATA_LOSS")


def _removed(loss: Loss, end: Offsets, snapshot: Snapshot) -> str:
    assert loss.partition is not None
    stored = end.topics[loss.topic].partitions[loss.partition].offset
    first = snapshot[loss.topic].partitions[loss.partition].first
    return f"offsets {stored} to {first - 1} of partition {loss.partition} of topic {loss.topic!r}"
