# SPDX-License-Identifier: Apache-2.0
"""Staging topic `__headrace_staging` for record batches too large for a commit message; retained for a day.

Each task writes to one partition; the driver reads back exactly the batches that it publishes. Batches are
copied, never decoded. Read next: internal_topics.py, publish.py.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.client.arrow.fetch.fetcher import FIRST_VERSION_BY_ID
from headrace.client.arrow.fetch.sections import whole_batches
from headrace.client.arrow.write.ready_batches import ready_batches
from headrace.client.arrow.write.sender import Outgoing, Sender
from headrace.client.arrow.write.write_request import DEFAULT_BUDGET
from headrace.client.arrow.write.writer import send_rows
from headrace.client.connection import ConnectionLost
from headrace.client.errors import BrokerError, ClientError
from headrace.client.network_client import NetworkClient, TopicView
from headrace.client.retry import LOST, Backoff
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from pyspark_headrace.client_pool import PooledClient
from pyspark_headrace.writing.commit_messages import InStaging
from pyspark_headrace.writing.internal_topics import STAGING, find_or_create

_LARGEST_RUN = 8 << 20
_MAX_WAIT_MS = 500


class StagingWriter:
    """Writes the batches of one task attempt; its own producer id identifies them."""

    def __init__(self, connections: PooledClient, *, timeout_ms: int) -> None:
        find_or_create(STAGING, connections, timeout_ms=timeout_ms)
        self._connections = connections
        self._sender = Sender(
            connections.client, STAGING.name, acks=-1, budget=DEFAULT_BUDGET, timeout_ms=timeout_ms
        )
        self._producer = connections.call(self._sender.open(idempotent=True))
        self._partition = random.randrange(self._sender.partitions)
        self._sequences: dict[int, int] = {}

    def put(self, batches: Mapping[tuple[str, int], Sequence[bytearray]]) -> list[InStaging]:
        """Write batches and return their locations once all are acknowledged."""
        signed = {target: self._signed(of_target) for target, of_target in batches.items()}
        everything = (outgoing for of_target in signed.values() for outgoing in of_target)
        send_rows(self._connections.io, self._sender, everything)
        return [
            run
            for (topic, partition), of_target in signed.items()
            for run in self._runs(topic, partition, of_target)
        ]

    def close(self) -> None:
        self._connections.call(self._sender.close())

    def _signed(self, batches: Sequence[bytearray]) -> list[Outgoing]:
        return list(
            ready_batches(((self._partition, batch) for batch in batches), self._producer, self._sequences)
        )

    def _runs(self, topic: str, partition: int, sent: Sequence[Outgoing]) -> list[InStaging]:
        """Combine adjacent batches into runs: other tasks write to the same partition."""
        grouped: list[list[Outgoing]] = []
        for outgoing in sent:
            if outgoing.base_offset < 0:
                raise ClientError(
                    f"the broker did not return the offset of a batch in {STAGING.name!r}",
                    next_step="nothing was published; Spark runs the task again",
                )
            if grouped and _is_adjacent(grouped[-1], outgoing):
                grouped[-1].append(outgoing)
            else:
                grouped.append([outgoing])
        return [
            InStaging(
                topic=topic,
                partition=partition,
                staging_partition=self._partition,
                start=run[0].base_offset,
                end=run[-1].base_offset + len(run[-1].rows),
                size=_size(run),
                producer_id=self._producer.producer_id,
            )
            for run in grouped
        ]


class StagingReader:
    """Reads runs back. Use on one event loop only."""

    def __init__(self, client: NetworkClient, *, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._view: TopicView | None = None

    async def read(self, run: InStaging) -> bytes:
        """The batches of the run; ClientError when they are missing or differ."""
        backoff = Backoff(self._timeout_ms)
        parts: list[bytes] = []
        position = run.start
        while position < run.end:
            try:
                records = await self._fetch(run, position, run.size - sum(map(len, parts)))
                part, position = wanted_batches(memoryview(records or b""), run, position)
            except (*LOST, BrokerError) as error:
                if isinstance(error, BrokerError) and not error.retriable:
                    raise _missing(run, error.what) from error
                self._view = None
                await backoff.wait(error)
                continue
            if part:
                parts.append(part)
                backoff.reset()
            else:
                await backoff.wait(ClientError(f"no more records arrive from topic {STAGING.name!r}"))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _fetch(self, run: InStaging, position: int, size: int) -> Any:
        """Fetch the remaining bytes: the log stores batches as they were sent."""
        if self._view is None:
            self._view = await self._client.find(STAGING.name)
        leader = self._view.leaders.get(run.staging_partition, -1)
        if leader < 0:
            raise ConnectionLost(f"partition {run.staging_partition} of {STAGING.name!r} has no leader now")
        connection = await self._client.connection(leader)
        version, named = self._view.addressed(
            connection.version_for(ApiKey.FETCH), FIRST_VERSION_BY_ID, "topic"
        )
        entry = {
            "partition": run.staging_partition,
            "fetch_offset": position,
            "partition_max_bytes": size,
        }
        fields = {
            "max_wait": _MAX_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": size,
            "isolation_level": 0,
            "topics": [{**named, "partitions": [entry]}],
        }
        reply = await connection.call(ApiKey.FETCH, fields, version=version)
        (data,) = (data for response in reply.responses for data in response.partitions)
        code = ErrorCode(int(data.error_code))
        if code is not ErrorCode.none:
            raise BrokerError(f"partition {run.staging_partition} of {STAGING.name!r}: {code.name}", code)
        return data.records


def wanted_batches(records: memoryview, run: InStaging, position: int) -> tuple[bytes, int]:
    """(batches of the run from `position` on, next position)."""
    end = 0
    for at, header in whole_batches(records):
        if position >= run.end:
            break
        if header.base_offset != position or header.producer_id != run.producer_id:
            raise _missing(run, f"offset {position} holds other records")
        end, position = at + header.size, header.next_offset
    return bytes(records[:end]), position


def _missing(run: InStaging, why: str) -> ClientError:
    return ClientError(
        f"staged rows for topic {run.topic!r} are no longer in {STAGING.name!r}: {why}",
        next_step="nothing was published: start the query again to encode the batch again",
        code="DATA_LOSS",
    )


def _is_adjacent(run: Sequence[Outgoing], outgoing: Outgoing) -> bool:
    last = run[-1]
    return last.base_offset + len(last.rows) == outgoing.base_offset and _size(run) < _LARGEST_RUN


def _size(run: Sequence[Outgoing]) -> int:
    return sum(len(outgoing.batch) for outgoing in run)
