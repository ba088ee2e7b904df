"""A batch read as Spark calls it: what lies between two places when it is planned, cut into tasks.

PushdownReader is a class of its own since Spark refuses every reader with `pushFilters` while its setting is
off. Read next: places.py, splits.py, task.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.types import TopicPartition
from pyspark_headrace import places
from pyspark_headrace.columns import Projection
from pyspark_headrace.connections import Kept, kept
from pyspark_headrace.offsets import Offsets
from pyspark_headrace.options import ReadSettings
from pyspark_headrace.progress import GroupProgress
from pyspark_headrace.pushdown import Narrowing, narrowing_of
from pyspark_headrace.splits import Range, ranges_between, split
from pyspark_headrace.survey import Survey
from pyspark_headrace.workers import settle, settled

_NO_QUERY = ""


class BatchReader(DataSourceReader):
    def __init__(self, settings: ReadSettings, projection: Projection) -> None:
        self._settings = settings
        self._projection = projection
        self._narrowing = Narrowing()

    def partitions(self) -> Sequence[InputPartition]:
        connections = kept(self._settings.bootstrap, self._settings.security)
        ranges = connections.call(self._ranges(connections))
        settle()
        pieces = split(
            ranges,
            least=self._settings.min_partitions,
            most_rows=self._settings.max_records_per_partition,
        )
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Spark makes one partition of nothing where there is none."""
        if partition.value is None:
            return iter(())
        from pyspark_headrace.task import read_range  # planning has no use for it, and starts faster

        return settled(read_range(partition.value, self._settings, self._projection))

    async def _ranges(self, connections: Kept) -> list[Range]:
        settings = self._settings
        survey = Survey(
            connections.cluster,
            settings.selection,
            committed_only=settings.committed_only,
            timeout_ms=settings.timeout_ms,
        )
        picture = await survey.picture(all_there=True)

        async def committed() -> Mapping[TopicPartition, int]:
            assert settings.group is not None
            return await GroupProgress(connections.cluster, settings.group).committed()

        start = await places.starting(settings, picture, survey, committed, query=_NO_QUERY)
        end = await places.ending(settings, picture, survey, query=_NO_QUERY)
        start, end = (places.held(each, picture, settings.on_data_loss) for each in (start, end))
        ranges = ranges_between(start, end, reread_after_cut=False)
        return self._narrowing.apply(ranges, await self._first_offsets(survey, start))

    async def _first_offsets(self, survey: Survey, start: Offsets) -> Mapping[TopicPartition, int]:
        """Where the earliest time that is asked for begins; records before it are earlier."""
        since_ms = self._narrowing.since_ms
        if since_ms is None:
            return {}
        return await survey.at_times({place: since_ms for place, _ in start})


class PushdownReader(BatchReader):
    """Reads less where filters on topic, partition, offset and timestamp allow; Spark still checks them."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        self._narrowing = narrowing_of(filters)
        return filters
