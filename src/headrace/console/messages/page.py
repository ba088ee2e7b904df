# SPDX-License-Identifier: Apache-2.0
"""One page of a topic's records: at most 500 records, 2 MB and 5 seconds, with cursors to go on from.

Read next: scan.py, shown.py.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from headrace.console.messages.commands import consume_commands
from headrace.console.messages.positions import Positions, direction_of, find_positions
from headrace.console.messages.query import Query, cursor_text
from headrace.console.messages.scan import Scan, ScanOptions
from headrace.console.messages.shown import document_size, record_document
from headrace.console.messages.topic_fetch import TopicFetch, open_topic
from headrace.console.messages.values import AvroDecoder
from headrace.console.views.view import Document, Source

MOST_RECORDS = 500
MOST_BYTES = 1_900_000
TIME_S = 4.5

Stop = Literal["limit", "bytes", "time", "end"]


@dataclass(slots=True)
class _Collected:
    records: list[Document]
    stop: Stop


async def read_page(source: Source, query: Query, avro: AvroDecoder) -> Document:
    started = time.monotonic()
    reader = await open_topic(source.network, query.topic, uncommitted=query.uncommitted)
    positions = await find_positions(reader, query)
    ranges = positions.ranges(query)
    options = ScanOptions(
        run=source.run, wanted=query.wanted(avro), limit=query.limit, deadline=started + TIME_S
    )
    scan = Scan(reader, direction_of(query), ranges, options)
    found = await _collect(scan, query, avro) if ranges else _Collected([], "end")
    return {
        "topic": query.topic,
        "at": int(time.time() * 1000),
        "partitions": reader.partitions,
        "direction": query.way,
        "records": found.records,
        "stopped_by": found.stop,
        "looked_at": scan.looked_at,
        "took": round((time.monotonic() - started) * 1000),
        "offsets": [
            {"partition": each, "start": positions.starts[each], "end": end}
            for each, end in positions.ends.items()
        ],
        **_cursors(query, positions, scan),
        "problems": _problems(reader, positions),
        "commands": consume_commands(query, source.cluster),
    }


async def _collect(scan: Scan, query: Query, avro: AvroDecoder) -> _Collected:
    records: list[Document] = []
    size = 0
    while len(records) < query.limit:
        record = await scan.peek()
        if record is None:
            return _Collected(records, "end" if scan.finished else "time")
        document = record_document(record, query.key_form, query.value_form, avro)
        size += document_size(document)
        if records and size > MOST_BYTES:
            return _Collected(records, "bytes")
        records.append(document)
        scan.take()
    return _Collected(records, "limit")


def _cursors(query: Query, positions: Positions, scan: Scan) -> Document:
    """`newer` goes on after the page, also where the log ends now; `older` before it."""
    began, ended = positions.begin, scan.cursor()
    newest, oldest = (ended, began) if query.way == "newer" else (began, ended)
    return {
        "newer": cursor_text(newest),
        "older": cursor_text(oldest),
        "more_newer": any(offset < positions.ends[each] for each, offset in newest.items()),
        "more_older": any(offset > positions.starts[each] for each, offset in oldest.items()),
    }


def _problems(reader: TopicFetch, positions: Positions) -> list[Document]:
    problems: list[Document] = [
        {"partition": partition, "text": text} for partition, text in sorted(reader.problems.items())
    ]
    if positions.left_out:
        text = f"{positions.left_out} more partitions were left out; choose partitions to see them"
        problems.append({"partition": None, "text": text})
    return problems
