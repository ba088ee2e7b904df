"""Batches too many for a task's message, kept for a day in the topic `__headrace_staging`.

Tasks write them there, each to one partition; the driver reads back exactly those that it is to publish.
Bytes are moved, never decoded. Read next: internal_topics.py, publish.py.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.client.arrow.bounds import TryAgain
from headrace.client.arrow.cluster import LOST, Cluster, Patience, TopicView
from headrace.client.arrow.prefetch import FETCH, FIRST_VERSION_BY_ID
from headrace.client.arrow.ready_batches import ready_batches
from headrace.client.arrow.sections import whole_batches
from headrace.client.arrow.sender import Outgoing, Sender
from headrace.client.arrow.writer import DEFAULT_BUDGET, send_rows
from headrace.client.connection import ConnectionLost
from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode
from pyspark_headrace.connections import Kept
from pyspark_headrace.internal_topics import STAGING, find_or_create
from pyspark_headrace.sink_messages import InStaging

_LARGEST_RUN = 8 << 20
_MAX_WAIT_MS = 500


class StagingWriter:
    """For one attempt of a task: an idempotent producer of its own, so that its batches can be told apart."""

    def __init__(self, connections: Kept, *, timeout_ms: int) -> None:
        find_or_create(STAGING, connections, timeout_ms=timeout_ms)
        self._connections = connections
        self._sender = Sender(
            connections.cluster, STAGING.name, acks=-1, budget=DEFAULT_BUDGET, timeout_ms=timeout_ms
        )
        self._producer = connections.call(self._sender.open(idempotent=True))
        self._partition = random.randrange(self._sender.partitions)
        self._sequences: dict[int, int] = {}

    def put(self, batches: Mapping[tuple[str, int], Sequence[bytearray]]) -> list[InStaging]:
        """Returns when all of them are safe, with the places where they lie."""
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
        """Batches that lie side by side make one run: other tasks write to the same partition."""
        together: list[list[Outgoing]] = []
        for outgoing in sent:
            if outgoing.base_offset < 0:
                raise ClientError(
                    f"a batch is in {STAGING.name!r}, but its broker forgot where",
                    next_step="nothing was published; Spark runs the task again",
                )
            if together and _adjoins(together[-1], outgoing):
                together[-1].append(outgoing)
            else:
                together.append([outgoing])
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
            for run in together
        ]


class StagingReader:
    """Reads runs back. One event loop only."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._view: TopicView | None = None

    async def read(self, run: InStaging) -> bytes:
        """Every batch of the run. ClientError when it is no longer there as it was written."""
        patience = Patience(self._timeout_ms)
        parts: list[bytes] = []
        position = run.start
        while position < run.end:
            try:
                records = await self._fetch(run, position, run.size - sum(map(len, parts)))
                part, position = wanted_batches(memoryview(records or b""), run, position)
            except (*LOST, TryAgain) as error:
                if isinstance(error, TryAgain) and not error.retriable:
                    raise _gone(run, error.what) from error
                self._view = None
                await patience.wait(error)
                continue
            if part:
                parts.append(part)
                patience.progress()
            else:
                await patience.wait(ClientError(f"nothing more comes of topic {STAGING.name!r}"))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _fetch(self, run: InStaging, position: int, size: int) -> Any:
        """Asks for as many bytes as are left: they lie in the log as they were sent."""
        if self._view is None:
            self._view = await self._cluster.find(STAGING.name)
        leader = self._view.leaders.get(run.staging_partition, -1)
        if leader < 0:
            raise ConnectionLost(f"partition {run.staging_partition} of {STAGING.name!r} has no leader now")
        connection = await self._cluster.connection(leader)
        version, named = self._view.addressed(connection.version_for(FETCH), FIRST_VERSION_BY_ID, "topic")
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
        reply = await connection.call(FETCH, fields, version=version)
        (data,) = (data for response in reply.responses for data in response.partitions)
        code = ErrorCode(int(data.error_code))
        if code is not ErrorCode.none:
            raise TryAgain(f"partition {run.staging_partition} of {STAGING.name!r}: {code.name}", code)
        return data.records


def wanted_batches(records: memoryview, run: InStaging, position: int) -> tuple[bytes, int]:
    """(the batches of the run that begin at `position`, where the next one begins)."""
    end = 0
    for at, header in whole_batches(records):
        if position >= run.end:
            break
        if header.base_offset != position or header.producer_id != run.producer_id:
            raise _gone(run, f"other records lie at offset {position}")
        end, position = at + header.size, header.next_offset
    return bytes(records[:end]), position


def _gone(run: InStaging, why: str) -> ClientError:
    return ClientError(
        f"rows of topic {run.topic!r} that a task left in {STAGING.name!r} are not there any more: {why}",
        next_step="nothing was published: start the query again, and it encodes the batch anew",
        code="DATA_LOSS",
    )


def _adjoins(run: Sequence[Outgoing], outgoing: Outgoing) -> bool:
    last = run[-1]
    return last.base_offset + len(last.rows) == outgoing.base_offset and _size(run) < _LARGEST_RUN


def _size(run: Sequence[Outgoing]) -> int:
    return sum(len(outgoing.batch) for outgoing in run)
