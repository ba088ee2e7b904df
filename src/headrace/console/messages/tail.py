# SPDX-License-Identifier: Apache-2.0
"""New records of a topic as they come: a sample of at most 50 records and 256 KB a second, for ten minutes.

What is more than that is passed over, and counted. A topic of millions of records a second costs no more than
a quiet one: the tail moves on to the end before it falls behind. Read next: topic_fetch.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient, NoSuchTopic
from headrace.client.retry import is_retriable
from headrace.console.endpoint import Feed
from headrace.console.messages.decoding import DecodeLimits, Found, Part, Wanted, decode_forward
from headrace.console.messages.positions import MOST_PARTITIONS
from headrace.console.messages.query import Query
from headrace.console.messages.record import StoredRecord
from headrace.console.messages.shown import document_size, record_document
from headrace.console.messages.topic_fetch import TopicFetch, open_topic
from headrace.console.messages.values import AvroDecoder
from headrace.console.views.view import Document, Source, ViewError

LONGEST_S = 600
RECORDS_PER_S = 50
BYTES_PER_S = 256_000
_TICK_S = 0.5
_LOOKED_AT_PER_TICK = 2_000
"""Records of all partitions together: what is more is passed over without a look."""
_MOST_TAILS = 20

Event = tuple[str, Document]


@dataclass(slots=True)
class _Open:
    """How many tails there are in this process."""

    count: int = 0


_open = _Open()


async def tail(source: Source, query: Query, avro: AvroDecoder) -> Feed:
    """ViewError when there are too many already; ClientError when the topic cannot be read."""
    if _open.count >= _MOST_TAILS:
        raise ViewError(
            f"{_MOST_TAILS} live tails are open already", next_step="close one, then try again", status=429
        )
    security = source.cluster.security.security()
    client = NetworkClient(
        source.cluster.bootstrap, security=security
    )  # its fetches wait: not the views' one
    try:
        reader = await open_topic(client, query.topic, uncommitted=query.uncommitted)
        partitions = reader.chosen(query.partitions)[:MOST_PARTITIONS]
        follower = _Follower(source, reader, partitions, query.wanted(avro))
        await follower.begin()
    except BaseException:
        await client.close()
        raise
    return Feed(events=_events(client, follower, query, avro))


async def _events(
    client: NetworkClient, follower: _Follower, query: Query, avro: AvroDecoder
) -> AsyncIterator[Event]:
    _open.count += 1
    ends = time.monotonic() + LONGEST_S
    try:
        yield "started", {"partitions": follower.partitions, "stops_after": LONGEST_S * 1000}
        while time.monotonic() < ends:
            try:
                look = await follower.look()
            except NoSuchTopic as error:
                yield "problem", _problem(error)
                return
            except ClientError as error:
                yield "problem", _problem(error)
                if not is_retriable(error):
                    return
                look = _Look()
            if look.records or look.not_looked_at or look.looked_at:
                yield "records", _document(look, query, avro)
            await asyncio.sleep(_TICK_S)
        yield (
            "end",
            {
                "text": f"The tail stopped after {LONGEST_S // 60} minutes.",
                "next": "Start it again to see more.",
            },
        )
    finally:
        _open.count -= 1
        await client.close()


@dataclass(slots=True)
class _Look:
    """What one look at the ends of the partitions brought."""

    records: list[StoredRecord] = field(default_factory=list)
    looked_at: int = 0
    not_looked_at: int = 0


class _Follower:
    def __init__(self, source: Source, reader: TopicFetch, partitions: Sequence[int], wanted: Wanted) -> None:
        self.partitions = list(partitions)
        self._source = source
        self._reader = reader
        self._wanted = wanted
        self._positions: dict[int, int] = {}

    async def begin(self) -> None:
        self._positions = await self._reader.ends(self.partitions)

    async def look(self) -> _Look:
        self._reader.problems.clear()
        ends = await self._reader.ends(self.partitions)
        look = _Look()
        ranges = {}
        for partition, end in ends.items():
            first = self._positions.get(partition, end)
            start = max(first, end - self._share(ends))
            look.not_looked_at += start - first if start > first else 0
            self._positions[partition] = min(start, end)
            if start < end:
                ranges[partition] = (start, end)
        parts = await self._reader.fetch(ranges) if ranges else []
        for part, found in await self._source.run(_decode, parts, self._wanted):
            self._positions[part.fetched.partition] = found.next_offset
            look.records += found.records
            look.looked_at += found.looked_at
        look.records.sort(key=lambda record: (record.timestamp_ms or 0, record.partition, record.offset))
        return look

    def _share(self, ends: dict[int, int]) -> int:
        return max(1, _LOOKED_AT_PER_TICK // len(ends))


def _decode(parts: Sequence[Part], wanted: Wanted) -> list[tuple[Part, Found]]:
    limits = DecodeLimits(records=_LOOKED_AT_PER_TICK, size=8 << 20, deadline=time.monotonic() + _TICK_S)
    return [(part, decode_forward(part, wanted, limits)) for part in parts]


def _document(look: _Look, query: Query, avro: AvroDecoder) -> Document:
    chosen = evenly(look.records, round(RECORDS_PER_S * _TICK_S))
    shown: list[Document] = []
    size = 0
    for record in chosen:
        document = record_document(record, query.key_form, query.value_form, avro)
        size += document_size(document)
        if shown and size > BYTES_PER_S * _TICK_S:
            break
        shown.append(document)
    return {
        "records": shown,
        "looked_at": look.looked_at,
        "not_shown": len(look.records) - len(shown),
        "not_looked_at": look.not_looked_at,
    }


def evenly(records: Sequence[StoredRecord], most: int) -> list[StoredRecord]:
    """At most so many of them, at even distances, the newest among them."""
    if len(records) <= most:
        return list(records)
    return [records[(place + 1) * len(records) // most - 1] for place in range(most)]


def _problem(error: ClientError) -> Document:
    return {"error": error.what, "next": error.next_step}
