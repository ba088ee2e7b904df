# SPDX-License-Identifier: Apache-2.0
"""View `topic` (`topic`): each partition's log with its leader, readers, segments and open transactions.

Its document is described in docs/design/console.md. Read next: groups/readers.py, retention.py.
"""

from __future__ import annotations

from headrace.client.errors import ClientError
from headrace.client.partitioning.stored_ranges import StoredRanges, read_configs
from headrace.console.state.model import PartitionDetails, PartitionState, Snapshot, TopicState
from headrace.console.views.admin_document import command, document
from headrace.console.views.alarms.alarms import topic_alarms
from headrace.console.views.groups.readers import TopicReader, readers_of
from headrace.console.views.lag_figures import rounded, together
from headrace.console.views.topics.retention import retention_edge
from headrace.console.views.topics.topics import records_of, total, total_rate
from headrace.console.views.view import Document, Interest, Params, Source, View, ViewError

_NO_DETAILS = PartitionDetails()
MOST_PARTITIONS = 1_000


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    topic = find_topic(snapshot, params.get("topic", ""))
    readers, ranges = readers_of(snapshot, topic), _ranges(topic)
    partitions = [topic.partitions[index] for index in sorted(topic.partitions)]
    parts: Document = {
        "topic": {
            "name": topic.name,
            "id": topic.topic_id,
            "internal": topic.internal,
            "replication": max((len(each.replicas) for each in partitions), default=0),
            "configs": dict(topic.configs),
        },
        "records": records_of(partitions),
        "rate_in": rounded(total_rate(partitions)),
        "size_bytes": total(each.size_bytes for each in partitions),
        "partitions": [
            _partition(topic, each, [one for one in readers if one.where.partition == each.partition], ranges)
            for each in partitions[:MOST_PARTITIONS]
        ],
        "groups": _groups(readers),
    }
    where = ("--bootstrap", str(source.cluster))
    return document(
        "topic",
        snapshot,
        parts,
        unknown=snapshot.unknown,
        alarms=topic_alarms(snapshot, topic),
        commands=[
            command("Describe the topic", "topics", "describe", topic.name, *where),
            command("Read it from its beginning", "consume", topic.name, "--from", "beginning", *where),
            command("Its settings", "configs", "get", "--topic", topic.name, *where),
        ],
    )


def find_topic(snapshot: Snapshot, name: str) -> TopicState:
    topic = snapshot.topics.get(name)
    if topic is None and snapshot.problem:
        raise ViewError(snapshot.problem, next_step=None, status=503)
    if topic is None:
        raise ViewError(f"topic {name!r} does not exist", next_step="choose one of the list of topics")
    return topic


def _partition(
    topic: TopicState, partition: PartitionState, readers: list[TopicReader], ranges: StoredRanges | None
) -> Document:
    details = topic.details.get(partition.partition, _NO_DETAILS)
    producers = details.producers
    return {
        "partition": partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "offline": list(partition.offline),
        "start": partition.start,
        "end": partition.end,
        "last_stable": _last_stable(partition),
        "size_bytes": partition.size_bytes,
        "rate_in": rounded(partition.rate_in),
        "key_range": _key_range(ranges, partition.partition),
        "segments": None
        if details.segments is None
        else [
            {"base": each.base, "bytes": each.bytes, "newest": each.newest_ms} for each in details.segments
        ],
        "retention_edge": retention_edge(topic, partition, details),
        "open_transactions": [
            {
                "producer_id": each.producer_id,
                "transactional_id": None,
                "start": each.transaction_start,
                "since": each.last_seen_ms,
            }
            for each in producers or ()
            if each.transaction_start is not None
        ],
        "producers": None
        if producers is None
        else [
            {"producer_id": each.producer_id, "last_seen": each.last_seen_ms, "client_id": None}
            for each in producers
        ],
        "readers": [each.document() for each in readers],
    }


def _last_stable(partition: PartitionState) -> int | None:
    """It was asked for before the end: never more than that."""
    if partition.last_stable is None or partition.end is None:
        return partition.last_stable
    return min(partition.last_stable, partition.end)


def _ranges(topic: TopicState) -> StoredRanges | None:
    try:
        return read_configs(topic.name, topic.topic_id or "", topic.configs)
    except ClientError:
        return None  # of a newer release


def _key_range(ranges: StoredRanges | None, partition: int) -> Document | None:
    if ranges is None or partition >= len(ranges.ranges):
        return None
    key_range = ranges.ranges[partition]
    return {
        "min": key_range.low.decode(errors="backslashreplace"),
        "max": key_range.high.decode(errors="backslashreplace"),
    }


def _groups(readers: list[TopicReader]) -> list[Document]:
    by_group: dict[str, list[TopicReader]] = {}
    for reader in readers:
        by_group.setdefault(reader.group.group_id, []).append(reader)
    found = []
    for group_id, its in sorted(by_group.items()):
        figures = together(each.figures for each in its)
        found.append(
            {
                "id": group_id,
                "state": its[0].group.state,
                "lag": figures.lag,
                "behind": figures.behind,
                "trend": figures.trend,
            }
        )
    return found


VIEW = View(
    name="topic",
    build=build,
    interest=lambda params: Interest(topics=frozenset([params.get("topic", "")])),
    history=True,
)
