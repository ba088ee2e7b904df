# SPDX-License-Identifier: Apache-2.0
"""Reads one offset range into Arrow batches of Spark's types; runs in Spark's Python workers.

Ends when the fetch position reaches the range's end. Read next: pyspark_headrace/client_pool.py;
client/arrow/read/prefetch.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.client.arrow.read.bounds import Bounds
from headrace.client.arrow.read.prefetch import Prefetch, chunk_bytes
from headrace.client.arrow.read.typed import TypedDecoder
from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient, TopicView
from headrace.client.retry import Backoff, retry
from pyspark_headrace.client_pool import PooledClient, pooled_client
from pyspark_headrace.columns import Projection
from pyspark_headrace.options import ReadSettings
from pyspark_headrace.reading.arrow_columns import ArrowColumns
from pyspark_headrace.reading.rejects import rejects_for
from pyspark_headrace.reading.splits import Range
from pyspark_headrace.reading.task_figures import Meter

_log = logging.getLogger("pyspark_headrace")


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeBounds(Bounds):
    """Known bounds: no lookup is needed, but the topic id must not have changed."""

    wanted: Range

    async def resolve(self, client: NetworkClient, view: TopicView) -> dict[int, tuple[int, int]]:
        wanted = self.wanted
        topic_id = None if view.topic_id is None else str(view.topic_id)
        if topic_id != wanted.topic_id:
            raise ClientError(
                f"topic {wanted.topic!r} was deleted and recreated after the read was planned",
                next_step="run the query again; it then reports what is lost. "
                "A DataFrame is planned by its first action: load it again",
                code="DATA_LOSS",
            )
        return {wanted.partition: (wanted.start, wanted.end)}


def read_range(
    wanted: Range,
    settings: ReadSettings,
    projection: Projection,
    meter: Meter | None = None,
    *,
    in_batch_read: bool = False,
) -> Iterator[Any]:
    """`in_batch_read`: the range may have been planned by an earlier action on the same DataFrame."""
    meter = meter or Meter()
    may_begin_later = wanted.from_earliest or settings.on_data_loss != "fail"
    bounds = RangeBounds(
        wanted=wanted,
        start=None if may_begin_later else wanted.start,
        committed_only=settings.committed_only,
    )
    columns = ArrowColumns(projection)
    rejects = rejects_for(settings)
    decoder = TypedDecoder(
        wanted.topic,
        columns.wanted,
        key=columns.format_of("key"),
        value=columns.format_of("value"),
        rejects=rejects,
    )
    connections = pooled_client(settings.bootstrap, settings.security)
    try:
        for chunk in meter.fetching(_chunks(connections, bounds, settings), chunk_bytes):
            yield from meter.decoding(map(columns.to_spark, decoder.decode(chunk)))
        rejects.finish()
    except ClientError as error:
        if error.code != "OFFSET_OUT_OF_RANGE":
            raise
        raise ClientError(
            f"{error.what}: records were removed by retention between planning and reading"
            + (". A DataFrame or view keeps the offsets of its first action" if in_batch_read else ""),
            next_step=("load it again for new offsets, or " if in_batch_read else "")
            + "set onDataLoss=skip to continue, and raise the topic's retention.ms",
            code="DATA_LOSS",
        ) from error


def _chunks(connections: PooledClient, bounds: RangeBounds, settings: ReadSettings) -> Iterator[Any]:
    wanted = bounds.wanted

    def report(partition: int, first: int, end: int) -> None:
        if wanted.from_earliest and first == wanted.start:
            return  # not a position: the log begins later
        _log.warning(
            "partition %d of topic %r: up to %d records from offset %d to %d were removed by retention "
            "before this task read them; it continues (onDataLoss=%s)",
            *(partition, wanted.topic, end - first, first, end - 1, settings.on_data_loss),
        )

    prefetch = Prefetch(
        connections.client,
        wanted.topic,
        bounds,
        budget=settings.budget,
        timeout_ms=settings.timeout_ms,
        on_removed=report,
    )
    try:
        connections.call(retry(prefetch.open, Backoff(settings.timeout_ms).wait))
        while (chunk := connections.call(prefetch.next_chunk())) is not None:
            yield chunk
    finally:
        connections.call(prefetch.close())  # also when Spark stops early
