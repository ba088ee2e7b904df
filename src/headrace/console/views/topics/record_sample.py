# SPDX-License-Identifier: Apache-2.0
"""The newest records of a topic's partitions, as a sample: one Fetch to each leader, bounded in bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.client.network_client import NetworkClient
from headrace.console.state.model import TopicState
from headrace.errors import HeadraceError
from headrace.wire.api_key import ApiKey
from headrace.wire.batch import HEADER_SIZE, read_header
from headrace.wire.records import Record, iter_records

_NEWEST_BY_NAME = 12
"""From version 13 on, Fetch names topics by their ids."""
_MOST_PARTITIONS = 64
_PARTITION_BYTES = 256 << 10
_REPLY_BYTES = 4 << 20
_TIMEOUT_MS = 10_000
_LANE = "samples"


async def sample_records(network: NetworkClient, topic: TopicState, most: int) -> list[Record]:
    """About `most` of the newest records. Raises ClientError where a leader does not answer."""
    chosen = [each for each in topic.partitions.values() if each.leader is not None and each.end]
    chosen = chosen[:_MOST_PARTITIONS]
    share = max(1, most // max(1, len(chosen)))
    leaders: dict[int, dict[int, int]] = {}
    for each in chosen:
        first = max(each.start or 0, (each.end or 0) - share)
        if each.leader is not None and first < (each.end or 0):
            leaders.setdefault(each.leader, {})[each.partition] = first
    asked = (_fetch(network, node_id, topic.name, offsets) for node_id, offsets in leaders.items())
    found = await asyncio.gather(*asked)
    return [record for records in found for record in records][:most]


async def _fetch(
    network: NetworkClient, node_id: int, topic: str, offsets: Mapping[int, int]
) -> list[Record]:
    connection = await network.connection(node_id, _LANE)
    partitions = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": _PARTITION_BYTES}
        for index, offset in offsets.items()
    ]
    fields = {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": _REPLY_BYTES,
        "isolation_level": 0,
        "topics": [{"topic": topic, "partitions": partitions}],
    }
    version = min(connection.version_for(ApiKey.FETCH), _NEWEST_BY_NAME)
    reply = await connection.call(ApiKey.FETCH, fields, version=version, timeout_ms=_TIMEOUT_MS)
    found: list[Record] = []
    for response in reply.responses:
        for data in response.partitions:
            if int(data.error_code) == 0:
                first = offsets.get(int(data.partition_index), 0)
                found += [record for record in _records(data.records) if record.offset >= first]
    return found


def _records(data: Any) -> Iterator[Record]:
    """Of whole batches; one that cannot be read ends the sample."""
    view, position = memoryview(data or b""), 0
    try:
        while position + HEADER_SIZE <= len(view):
            header = read_header(view, position)
            if position + header.size > len(view):
                return
            if not header.is_control:
                yield from iter_records(view[position : position + header.size])
            position += header.size
    except HeadraceError:
        return
