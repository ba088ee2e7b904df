"""How many bytes a row takes, about: a few batches of every partition are looked at where it is read next.

What a limit of bytes needs, since brokers count offsets only. Read next: limits.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.arrow.cluster import Cluster, TopicView
from headrace.client.arrow.prefetch import FETCH, FIRST_VERSION_BY_ID
from headrace.client.arrow.sections import whole_batches
from headrace.types import TopicPartition
from pyspark_headrace.survey import Survey

_SAMPLE_BYTES = 64 << 10
_UNKNOWN = 100.0


class RowSizes:
    def __init__(self, cluster: Cluster, survey: Survey) -> None:
        self._cluster = cluster
        self._survey = survey

    async def of(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """Bytes per offset as they lie in the log, compressed if they are."""
        found = await self._survey.patiently(lambda: self._sample(positions))
        return {place: found.get(place, _UNKNOWN) for place in positions}

    async def _sample(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        found: dict[TopicPartition, float] = {}
        for node_id, places in self._survey.by_leader(positions).items():
            for topic in sorted({place.topic for place in places}):
                here = [place for place in places if place.topic == topic]
                reply = await self._fetch(node_id, self._survey.view(topic), here, positions)
                found |= _sizes(topic, reply)
        return found

    async def _fetch(
        self,
        node_id: int,
        view: TopicView,
        places: Iterable[TopicPartition],
        positions: Mapping[TopicPartition, int],
    ) -> Any:
        connection = await self._cluster.connection(node_id)
        version, named = view.addressed(connection.version_for(FETCH), FIRST_VERSION_BY_ID, "topic")
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
        return await connection.call(FETCH, fields, version=version)


def _sizes(topic: str, reply: Any) -> dict[TopicPartition, float]:
    """Of partitions that gave a whole batch; others are left to a guess until the next trigger."""
    found = {}
    for data in (data for response in reply.responses for data in response.partitions):
        headers = [header for _, header in whole_batches(memoryview(data.records or b""))]
        if headers:
            offsets = headers[-1].next_offset - headers[0].base_offset
            size = sum(header.size for header in headers)
            found[TopicPartition(topic, int(data.partition_index))] = size / offsets
    return found
