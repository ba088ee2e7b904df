# SPDX-License-Identifier: Apache-2.0
"""View `dead-letters` (`topic`, `error`): topics of records whose handling failed, or one of them.

    topics: most records first: [{name, partitions, records (offsets in the log), rate_in, sampled,
             errors: [{error, count, newest_at}], sources: [topics], groups: [names], makers: [names],
             newest_at}]
    looked_at, candidates: topics whose newest records were read, of how many
    topic (with the parameter): null, or the same entry, and
    records: [{partition, offset, at, key, value (its beginning as text), value_bytes, error, kind,
               origin: {topic, partition, offset} | null, group, attempts, column, maker}]
        newest first, at most 100; `error`: only of this kind

A topic is one of dead letters when some of its newest records have an error in their headers: Headrace's,
Kafka Connect's or Spring's. Errors are counted in a sample, with # for numbers: `sampled` records.
"""

from __future__ import annotations

import re
from collections import Counter

from headrace.client.tools.reader import ReadRecord
from headrace.console.state.model import Snapshot, TopicState
from headrace.console.views.admin_document import alarm, asked, command, document
from headrace.console.views.pipelines.dead_letter_sample import DeadLetter, newest_records, read_dead_letter
from headrace.console.views.view import Document, Interest, Params, Source, View, ViewError
from headrace.types import TopicPartition

_REFRESH_S = 10.0
_LIKELY = re.compile(r"dead|dlq|dlt|reject|bad|fail|error|poison|invalid", re.IGNORECASE)
_MOST_TOPICS = 50
_MOST_PARTITIONS = 200
_IN_LIST, _IN_TOPIC = 20, 200
_MOST_RECORDS = 2_000
_SHOWN = 100
_TEXT = 200


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    if params.get("topic"):
        return await _of_topic(source, snapshot, params)
    candidates = sorted(
        (each for each in snapshot.topics.values() if not each.internal and _ranges(each)),
        key=lambda each: (_LIKELY.search(each.name) is None, each.name),
    )
    chosen, ranges = _within_limits(candidates)
    found, answer = await asked(
        source.run(newest_records, source.cluster, ranges, for_each=_IN_LIST, most=_MOST_RECORDS)
    )
    topics = []
    for topic in chosen:
        letters = _letters((found or {}).get(topic.name, []))
        if letters:
            topics.append(_topic(topic, letters))
    topics.sort(key=lambda each: (-(each["records"] or 0), each["name"]))
    parts = {
        "answer": answer,
        "topics": topics,
        "looked_at": len(chosen),
        "candidates": len(candidates),
        "topic": None,
        "records": [],
    }
    return document("dead-letters", snapshot, parts, alarms=_alarms(topics), commands=_commands("TOPIC"))


async def _of_topic(source: Source, snapshot: Snapshot, params: Params) -> Document:
    topic = snapshot.topics.get(params["topic"])
    if topic is None:
        raise ViewError(f"there is no topic {params['topic']!r}", next_step="choose one of the list")
    found, answer = await asked(
        source.run(newest_records, source.cluster, _ranges(topic), for_each=_IN_TOPIC, most=_MOST_RECORDS)
    )
    letters = _letters((found or {}).get(topic.name, []))
    wanted = params.get("error", "")
    parts = {
        "answer": answer,
        "topics": [],
        "looked_at": 1,
        "candidates": 1,
        "topic": _topic(topic, letters),
        "records": [_record(each) for each in letters if not wanted or each.kind == wanted][:_SHOWN],
    }
    return document("dead-letters", snapshot, parts, commands=_commands(topic.name))


def _within_limits(
    candidates: list[TopicState],
) -> tuple[list[TopicState], dict[TopicPartition, tuple[int, int]]]:
    chosen: list[TopicState] = []
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for topic in candidates[:_MOST_TOPICS]:
        own = _ranges(topic)
        if len(ranges) + len(own) > _MOST_PARTITIONS and chosen:
            break
        chosen.append(topic)
        ranges |= own
    return chosen, ranges


def _ranges(topic: TopicState) -> dict[TopicPartition, tuple[int, int]]:
    """Of the partitions that have records and a leader to read from."""
    return {
        TopicPartition(topic.name, each.partition): (each.start or 0, each.end)
        for each in topic.partitions.values()
        if each.end is not None and each.end > (each.start or 0) and each.leader is not None
    }


def _letters(records: list[ReadRecord]) -> list[DeadLetter]:
    return [letter for record in records if (letter := read_dead_letter(record)) is not None]


def _topic(topic: TopicState, letters: list[DeadLetter]) -> Document:
    counted = Counter(each.kind for each in letters)
    newest: dict[str, int | None] = {}
    for each in letters:
        newest.setdefault(each.kind, each.record.timestamp_ms)
    ends = [(each.start, each.end) for each in topic.partitions.values()]
    rates = [each.rate_in for each in topic.partitions.values() if each.rate_in is not None]
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "records": None
        if any(end is None for _, end in ends)
        else sum((end or 0) - (start or 0) for start, end in ends),
        "rate_in": sum(rates) if rates else None,
        "sampled": len(letters),
        "errors": [
            {"error": kind, "count": count, "newest_at": newest[kind]}
            for kind, count in counted.most_common(20)
        ],
        "sources": sorted({each.topic for each in letters if each.topic})[:20],
        "groups": sorted({each.group for each in letters if each.group})[:20],
        "makers": sorted({each.maker for each in letters}),
        "newest_at": letters[0].record.timestamp_ms if letters else None,
    }


def _record(letter: DeadLetter) -> Document:
    record = letter.record
    origin = None
    if letter.topic is not None:
        origin = {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset}
    return {
        "partition": record.partition,
        "offset": record.offset,
        "at": record.timestamp_ms,
        "key": _beginning(record.key),
        "value": _beginning(record.value),
        "value_bytes": None if record.value is None else len(record.value),
        "error": letter.error,
        "kind": letter.kind,
        "origin": origin,
        "group": letter.group,
        "attempts": letter.attempts,
        "column": letter.column,
        "maker": letter.maker,
    }


def _beginning(data: bytes | None) -> str | None:
    return None if data is None else data[: 4 * _TEXT].decode(errors="replace")[:_TEXT]


def _alarms(topics: list[Document]) -> list[Document]:
    return [
        alarm(
            "warning",
            f"records fail now: {each['rate_in']:.1f} per second come into {each['name']!r}",
            f"the most frequent error is: {each['errors'][0]['error']}",
        )
        for each in topics
        if (each["rate_in"] or 0) > 0
    ][:10]


def _commands(topic: str) -> list[Document]:
    return [command("Read them with their headers", "consume", topic, "--from", "beginning", "--json")]


def _interest(params: Params) -> Interest:
    return Interest(topics=frozenset({params["topic"]}) if params.get("topic") else frozenset())


VIEW = View(name="dead-letters", build=build, refresh_s=_REFRESH_S, interest=_interest)
