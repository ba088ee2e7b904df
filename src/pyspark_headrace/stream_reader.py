"""The streaming source as Spark calls it: positions in and out as documents, tasks between two of them.

A reader is pickled into every task, so it holds settings only; the planner is made in the planning process.
Spark calls `commit` only when the next batch is planned and never for the last: progress is told from
`latestOffset` instead. Read next: planner.py, task.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_headrace.columns import Projection
from pyspark_headrace.connections import drop, kept
from pyspark_headrace.offsets import read_document
from pyspark_headrace.options import ReadSettings
from pyspark_headrace.splits import ranges_between, split
from pyspark_headrace.workers import settled

if TYPE_CHECKING:  # tasks load what reads, and not what plans
    from pyspark_headrace.planner import Planner


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, settings: ReadSettings, projection: Projection) -> None:
        self._settings = settings
        self._projection = projection
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def initialOffset(self) -> dict[str, Any]:
        return self._call("initial").to_document()  # type: ignore[no-any-return]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Nothing new: `start` itself, so that its text stays the same and no empty batch is made."""
        limited = not isinstance(limit, ReadAllAvailable)
        end = self._call("latest", read_document(start), limited=limited)
        return start if end is None else end.to_document()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark asks for one limit and hands it back; all that are set count whenever it is not all."""
        limits = self._settings.limits
        if limits.max_rows is not None:
            return ReadMaxRows(limits.max_rows)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_rows is None else ReadMinRows(limits.min_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._call("stop_at_what_is_there")

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._planner is None else self._planner.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = ranges_between(
            read_document(start),
            read_document(end),
            reread_after_cut=self._settings.on_data_loss == "earliest",
        )
        pieces = split(
            ranges,
            least=self._settings.min_partitions,
            most_rows=self._settings.max_records_per_partition,
        )
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from pyspark_headrace.task import read_range  # planning has no use for it, and starts faster

        return settled(read_range(partition.value, self._settings, self._projection))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            drop(self._settings.bootstrap, self._settings.security)

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        connections = kept(self._settings.bootstrap, self._settings.security)
        if self._planner is None:
            from pyspark_headrace.planner import Planner

            self._planner = Planner(self._settings, connections)
        return connections.call(getattr(self._planner, name)(*arguments, **options))
