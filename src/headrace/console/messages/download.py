# SPDX-License-Identifier: Apache-2.0
"""Records as a file: JSON lines as `headrace produce --json-lines` takes them, Parquet, or one value.

Sent while they are read, with the same filter as the page; at most a million records and 1 GB. A failure in
the middle ends the transfer, so that the browser reports it: a short file never looks like a whole one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from headrace.client.errors import ClientError
from headrace.console.endpoint import Download
from headrace.console.messages.commands import iso_time, json_bytes
from headrace.console.messages.directions import Onwards
from headrace.console.messages.positions import direction_of, find_positions
from headrace.console.messages.query import Query
from headrace.console.messages.record import StoredRecord
from headrace.console.messages.scan import Scan, ScanOptions
from headrace.console.messages.topic_fetch import TopicFetch, open_topic
from headrace.console.messages.values import AvroDecoder
from headrace.console.views.view import Source, ViewError

MOST_RECORDS = 1_000_000
MOST_BYTES = 1 << 30
_LONGEST_S = 1_800
_STALLED_S = 30
_CHUNK_RECORDS = 1_000
_CHUNK_BYTES = 1 << 20
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")


class Encoder(Protocol):
    """Turns records into pieces of a file. Blocking."""

    def encode(self, records: Sequence[StoredRecord]) -> bytes: ...

    def finish(self) -> bytes: ...


async def download(source: Source, query: Query, form: str, avro: AvroDecoder) -> Download:
    encoder, suffix, media_type = _encoder(form, query.topic)
    reader = await open_topic(source.network, query.topic, uncommitted=query.uncommitted)
    positions = await find_positions(reader, query)
    options = ScanOptions(run=source.run, wanted=query.wanted(avro), limit=_CHUNK_RECORDS, deadline=0)
    scan = Scan(reader, direction_of(query), positions.ranges(query), options)
    _refuse_problems(reader)
    if positions.left_out:
        raise ViewError(
            f"topic {query.topic!r} has too many partitions for one file",
            next_step="choose some of its partitions",
            status=400,
        )
    name = f"{_NOT_IN_NAMES.sub('_', query.topic)[:200]}.{suffix}"
    return Download(
        name=name, media_type=media_type, chunks=_chunks(source, reader, scan, query.limit, encoder)
    )


async def download_part(source: Source, topic: str, partition: int, offset: int, part: str) -> Download:
    """The key or the value of one record, whole and as it is."""
    reader = await open_topic(source.network, topic, uncommitted=True)
    reader.chosen([partition])
    await reader.ends([partition])
    options = ScanOptions(
        run=source.run, wanted=lambda record: True, limit=1, deadline=time.monotonic() + _STALLED_S
    )
    record = await Scan(reader, Onwards(), {partition: (offset, offset + 1)}, options).peek()
    _refuse_problems(reader)
    data = None if record is None else record.value if part == "value" else record.key
    if data is None:
        what = "there is no such record" if record is None else f"the {part} of the record is null"
        raise ViewError(f"{what}: topic {topic!r}, partition {partition}, offset {offset}")
    name = f"{_NOT_IN_NAMES.sub('_', topic)[:200]}-{partition}-{offset}-{part}.bin"
    return Download(name=name, media_type="application/octet-stream", chunks=_whole(data))


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), _CHUNK_BYTES):
        yield data[start : start + _CHUNK_BYTES]


async def _chunks(
    source: Source, reader: TopicFetch, scan: Scan, limit: int, encoder: Encoder
) -> AsyncIterator[bytes]:
    ends = time.monotonic() + _LONGEST_S
    records, sent = 0, 0
    while records < limit and sent < MOST_BYTES:
        if time.monotonic() > ends:
            raise ClientError(f"the download took longer than {_LONGEST_S // 60} minutes")
        batch = await _next_batch(scan, limit - records)
        _refuse_problems(reader)
        if not batch:
            break
        records += len(batch)
        chunk = await source.run(encoder.encode, batch)
        sent += len(chunk)
        if chunk:
            yield chunk
    if last := await source.run(encoder.finish):
        yield last


async def _next_batch(scan: Scan, most: int) -> list[StoredRecord]:
    """As many as make a chunk; none at the end."""
    batch: list[StoredRecord] = []
    size = 0
    while len(batch) < min(most, _CHUNK_RECORDS) and size < _CHUNK_BYTES:
        scan.options.deadline = time.monotonic() + _STALLED_S
        before = scan.looked_at
        record = await scan.peek()
        if record is None:
            if scan.finished:
                break
            if scan.looked_at == before:
                raise ClientError("no more records arrive from the brokers", code="_TIMED_OUT")
            continue
        batch.append(record)
        size += record.size
        scan.take()
    return batch


def _refuse_problems(reader: TopicFetch) -> None:
    for partition, text in reader.problems.items():
        raise ClientError(
            f"partition {partition} of topic {reader.topic!r} cannot be read: {text}",
            next_step="choose other partitions, or try again later",
        )


def _encoder(form: str, topic: str) -> tuple[Encoder, str, str]:
    if form in ("", "jsonl"):
        return _JsonLines(topic), "jsonl", "application/x-ndjson"
    if form != "parquet":
        raise ViewError(f"format={form!r} is no format of files", next_step="jsonl or parquet", status=400)
    try:
        from headrace.console.messages.parquet import ParquetEncoder
    except ImportError:
        raise ViewError(
            "Parquet needs an extra that is not installed",
            next_step='pip install "headrace[arrow]", or download JSON lines',
            status=501,
        ) from None
    return ParquetEncoder(topic), "parquet", "application/vnd.apache.parquet"


class _JsonLines:
    """As `headrace consume --json` prints them."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def encode(self, records: Sequence[StoredRecord]) -> bytes:
        return b"".join(self._line(record) for record in records)

    def finish(self) -> bytes:
        return b""

    def _line(self, record: StoredRecord) -> bytes:
        document: dict[str, Any] = {
            "topic": self._topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": iso_time(record.timestamp_ms),
            "timestamp_type": "append" if record.append_time else "create",
            "key": json_bytes(record.key),
            "value": json_bytes(record.value),
            "headers": [[name, json_bytes(value)] for name, value in record.headers],
        }
        return json.dumps(document, ensure_ascii=False).encode(errors="replace") + b"\n"
