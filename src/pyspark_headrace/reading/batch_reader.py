# SPDX-License-Identifier: Apache-2.0
"""Batch reader: the offsets between start and end at planning time, split into tasks.

It must not take filters (`pushFilters`): Spark keeps the plan of a DataFrame's last filter for all other uses
of that DataFrame, which then lack rows. Read next: offset_specs.py, splits.py, task.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.client.errors import ClientError
from headrace.types import TopicPartition
from pyspark_headrace.client_pool import PooledClient, pooled_client
from pyspark_headrace.columns import Projection
from pyspark_headrace.options import ReadSettings
from pyspark_headrace.reading import offset_specs
from pyspark_headrace.reading.offset_lookup import OffsetLookup, Snapshot
from pyspark_headrace.reading.progress import GroupProgress
from pyspark_headrace.reading.splits import Range, ranges_between, split
from pyspark_headrace.worker_reuse import collecting_later, freeze_imports, freezing_after

_NO_QUERY = ""


class BatchReader(DataSourceReader):
    def __init__(self, settings: ReadSettings, projection: Projection) -> None:
        self._settings = settings
        self._projection = projection

    def partitions(self) -> Sequence[InputPartition]:
        connections = pooled_client(self._settings.bootstrap, self._settings.security)
        ranges = connections.call(self._ranges(connections))
        freeze_imports()
        pieces = split(
            ranges,
            least=self._settings.min_partitions,
            most_rows=self._settings.max_records_per_partition,
        )
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Spark passes one empty partition when there are none; before 4.2, None."""
        if partition is None or partition.value is None:
            return iter(())
        with collecting_later():
            from pyspark_headrace.reading.task import read_range  # not needed for planning

        rows = read_range(partition.value, self._settings, self._projection, in_batch_read=True)
        return freezing_after(rows)

    async def _ranges(self, connections: PooledClient) -> list[Range]:
        settings = self._settings
        lookup = OffsetLookup(
            connections.client,
            settings.selection,
            committed_only=settings.committed_only,
            timeout_ms=settings.timeout_ms,
        )
        snapshot = await lookup.snapshot(topics_must_exist=True)
        if not snapshot:
            raise ClientError(
                f"no topic matches subscribePattern {settings.selection.pattern!r}",
                next_step="list the topics: headrace topics list",
            )
        _check_ids(settings, snapshot)

        async def committed() -> Mapping[TopicPartition, int]:
            assert settings.group is not None
            return await GroupProgress(connections.client, settings.group).committed()

        start = await offset_specs.resolve_starting(settings, snapshot, lookup, committed, query=_NO_QUERY)
        end = await offset_specs.resolve_ending(settings, snapshot, lookup, query=_NO_QUERY)
        start, end = (offset_specs.within_log(each, snapshot, settings.on_data_loss) for each in (start, end))
        return ranges_between(start, end, reread_truncated=False)


def _check_ids(settings: ReadSettings, snapshot: Snapshot) -> None:
    for topic, topic_id in settings.topic_ids.items():
        if topic in snapshot and snapshot[topic].topic_id != topic_id:
            raise ClientError(
                f"topic {topic!r} was deleted and recreated: its id is {snapshot[topic].topic_id}, and the "
                f"read was made for the one with id {topic_id}",
                next_step="make the DataFrame again; that reports what is lost",
                code="DATA_LOSS",
            )
