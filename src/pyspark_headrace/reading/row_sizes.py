# SPDX-License-Identifier: Apache-2.0
"""Estimates the bytes per row of each partition from a sample at the next offset to read.

Needed for limits in bytes, since brokers report offsets only. Read next: pyspark_headrace/limits.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.arrow.fetch.fetcher import FIRST_VERSION_BY_ID
from headrace.client.arrow.fetch.sections import whole_batches
from headrace.client.network_client import NetworkClient, TopicView
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from pyspark_headrace.reading.offset_lookup import OffsetLookup

_SAMPLE_BYTES = 64 << 10
_DEFAULT_ROW_BYTES = 100.0


class RowSizes:
    def __init__(self, client: NetworkClient, lookup: OffsetLookup) -> None:
        self._client = client
        self._lookup = lookup

    async def of(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """Bytes per offset as stored in the log, that is, compressed."""
        found = await self._lookup.with_retries(lambda: self._sample(positions))
        return {place: found.get(place, _DEFAULT_ROW_BYTES) for place in positions}

    async def _sample(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        found: dict[TopicPartition, float] = {}
        for node_id, places in self._lookup.by_leader(positions).items():
            for topic in sorted({place.topic for place in places}):
                here = [place for place in places if place.topic == topic]
                reply = await self._fetch(node_id, self._lookup.view(topic), here, positions)
                found |= _sizes(topic, reply)
        return found

    async def _fetch(
        self,
        node_id: int,
        view: TopicView,
        places: Iterable[TopicPartition],
        positions: Mapping[TopicPartition, int],
    ) -> Any:
        connection = await self._client.connection(node_id)
        version, named = view.addressed(connection.version_for(ApiKey.FETCH), FIRST_VERSION_BY_ID, "topic")
        entries = [
            {
                "partition": place.partition,
                "fetch_offset": positions[place],
                "partition_max_bytes": _SAMPLE_BYTES,
            }
            for place in places
        ]
        fields = {
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": _SAMPLE_BYTES * len(entries),
            "isolation_level": 0,
            "topics": [{**named, "partitions": entries}],
        }
        return await connection.call(ApiKey.FETCH, fields, version=version)


def _sizes(topic: str, reply: Any) -> dict[TopicPartition, float]:
    """Sizes of partitions that returned a complete batch; for others the default is used."""
    found = {}
    for data in (data for response in reply.responses for data in response.partitions):
        headers = [header for _, header in whole_batches(memoryview(data.records or b""))]
        if headers:
            offsets = headers[-1].next_offset - headers[0].base_offset
            size = sum(header.size for header in headers)
            found[TopicPartition(topic, int(data.partition_index))] = size / offsets
    return found
