"""Reads one range of a partition into Arrow batches of Spark's types; runs in Spark's Python workers.

Ends where the fetch position reaches the range's end. Read next: connections.py; prefetch.py of the client.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.client.arrow.bounds import Bounds
from headrace.client.arrow.cluster import Cluster, TopicView
from headrace.client.arrow.prefetch import Prefetch
from headrace.client.arrow.typed import TypedDecoder
from headrace.client.errors import ClientError
from pyspark_headrace.arrow_columns import ArrowColumns
from pyspark_headrace.columns import Projection
from pyspark_headrace.connections import Kept, kept
from pyspark_headrace.dead_letters import rejects_of
from pyspark_headrace.options import ReadSettings
from pyspark_headrace.patience import patiently
from pyspark_headrace.splits import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeBounds(Bounds):
    """Bounds that are known: nobody has to be asked, but the topic must still be the same one."""

    wanted: Range

    async def resolve(self, cluster: Cluster, view: TopicView) -> dict[int, tuple[int, int]]:
        wanted = self.wanted
        topic_id = None if view.topic_id is None else str(view.topic_id)
        if topic_id != wanted.topic_id:
            raise ClientError(
                f"topic {wanted.topic!r} was deleted and created anew after the read was planned",
                next_step="run the query again; it then says what is lost",
                code="DATA_LOSS",
            )
        return {wanted.partition: (wanted.start, wanted.end)}


def read_range(wanted: Range, settings: ReadSettings, projection: Projection) -> Iterator[Any]:
    may_begin_later = wanted.from_earliest or settings.on_data_loss != "fail"
    bounds = RangeBounds(
        wanted=wanted,
        start=None if may_begin_later else wanted.start,
        committed_only=settings.committed_only,
    )
    columns = ArrowColumns(projection)
    rejects = rejects_of(settings)
    decoder = TypedDecoder(
        wanted.topic,
        columns.wanted,
        key=columns.format_of("key"),
        value=columns.format_of("value"),
        rejects=rejects,
    )
    connections = kept(settings.bootstrap, settings.security)
    try:
        for chunk in _chunks(connections, wanted.topic, bounds, settings):
            for batch in decoder.decode(chunk):
                yield columns.to_spark(batch)
        rejects.finish()
    except ClientError as error:
        if error.code != "OFFSET_OUT_OF_RANGE":
            raise
        raise ClientError(
            f"{error.what}: records aged out between planning and reading",
            next_step="set onDataLoss=skip to go on, and give the topic a longer retention.ms",
            code="DATA_LOSS",
        ) from error


def _chunks(connections: Kept, topic: str, bounds: Bounds, settings: ReadSettings) -> Iterator[Any]:
    prefetch = Prefetch(
        connections.cluster, topic, bounds, budget=settings.budget, timeout_ms=settings.timeout_ms
    )
    try:
        connections.call(patiently(prefetch.open, timeout_ms=settings.timeout_ms))
        while (chunk := connections.call(prefetch.next_chunk())) is not None:
            yield chunk
    finally:
        connections.call(prefetch.close())  # also when Spark wants no more of it
