# SPDX-License-Identifier: Apache-2.0
"""View `topic-distribution` (`topic`): how records, sizes and keys are spread, from a sample of the newest.

    sampled, partitions: [{partition, records, share}], sizes: [{up_to, count}],
    keys: {distinct, top: [{key, count}], none}

`up_to` is null for the largest. Counts of partitions are offsets, not a sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headrace.console.state.model import Snapshot, TopicState
from headrace.console.views.admin_document import document
from headrace.console.views.topics.record_sample import sample_records
from headrace.console.views.topics.topic import find_topic
from headrace.console.views.view import Document, Params, Source, View
from headrace.wire.records import Record

MOST_RECORDS = 5_000
_TOP = 10
_LONGEST_KEY = 80
_BUCKETS = (100, 1_000, 10_000, 100_000, 1_000_000)


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    topic = find_topic(snapshot, params.get("topic", ""))
    records = await sample_records(source.network, topic, MOST_RECORDS)
    parts: Document = {
        "sampled": len(records),
        "partitions": _shares(topic),
        "sizes": _sizes(records),
        "keys": _keys(records),
    }
    return document("topic-distribution", snapshot, parts, unknown=snapshot.unknown)


def _shares(topic: TopicState) -> list[Document]:
    counts = {
        index: None if each.end is None or each.start is None else each.end - each.start
        for index, each in sorted(topic.partitions.items())
    }
    total = sum(count or 0 for count in counts.values())
    return [
        {
            "partition": index,
            "records": count,
            "share": None if count is None or not total else round(count / total, 4),
        }
        for index, count in counts.items()
    ]


def _sizes(records: Sequence[Record]) -> list[Document]:
    sizes = [len(record.key or b"") + len(record.value or b"") for record in records]
    counts: list[Document] = []
    below = 0
    for bound in _BUCKETS:
        at_most = sum(size <= bound for size in sizes)
        counts.append({"up_to": bound, "count": at_most - below})
        below = at_most
    return [*counts, {"up_to": None, "count": len(sizes) - below}]


def _keys(records: Sequence[Record]) -> Document:
    counts = Counter(record.key for record in records if record.key is not None)
    return {
        "distinct": len(counts),
        "top": [{"key": _shown(key), "count": count} for key, count in counts.most_common(_TOP)],
        "none": sum(record.key is None for record in records),
    }


def _shown(key: bytes) -> str:
    text = key[: 4 * _LONGEST_KEY].decode(errors="backslashreplace")
    return text[:_LONGEST_KEY] + ("…" if len(text) > _LONGEST_KEY else "")


VIEW = View(name="topic-distribution", build=build, refresh_s=30.0)
