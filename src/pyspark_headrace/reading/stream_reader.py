# SPDX-License-Identifier: Apache-2.0
"""Stream reader: offsets as checkpoint documents, and the tasks between two of them.

A reader is pickled into every task, so it holds settings only; the planning process creates the planner.
Spark calls `commit` only when the next batch is planned and never for the last one, so group offsets are
committed from `latestOffset` instead. Read next: planner.py, task.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

from pyspark_headrace.client_pool import close_client, pooled_client
from pyspark_headrace.columns import Projection
from pyspark_headrace.options import ReadSettings
from pyspark_headrace.reading.offsets import read_document
from pyspark_headrace.reading.splits import Range, ranges_between, split
from pyspark_headrace.reading.task_figures import Meter, batch_key, send
from pyspark_headrace.worker_reuse import collecting_later, freezing_after

if TYPE_CHECKING:  # tasks do not load the planner
    from pyspark_headrace.reading.planner import Planner


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPart:
    """What one task of a micro-batch reads."""

    range: Range
    batch: str
    """The key under which the task reports its figures."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`reports`: tasks send their figures to the driver, which must have `install_metrics`."""

    def __init__(self, settings: ReadSettings, projection: Projection, *, reports: bool) -> None:
        self._settings = settings
        self._projection = projection
        self._reports = reports
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def initialOffset(self) -> dict[str, Any]:
        return self._call("initial").to_document()  # type: ignore[no-any-return]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Without new records: `start` itself, so that its text is unchanged and no empty batch runs."""
        limited = not isinstance(limit, ReadAllAvailable)
        end = self._call("latest", read_document(start), limited=limited)
        return start if end is None else end.to_document()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark passes this one limit back; unless it is ReadAllAvailable, all limits that are set apply."""
        limits = self._settings.limits
        if limits.max_rows is not None:
            return ReadMaxRows(limits.max_rows)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_rows is None else ReadMinRows(limits.min_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._call("stop_at_current_end")

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._planner is None else self._planner.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        last = read_document(end)
        ranges = ranges_between(
            read_document(start),
            last,
            reread_truncated=self._settings.on_data_loss == "earliest",
        )
        pieces = split(
            ranges,
            least=self._settings.min_partitions,
            most_rows=self._settings.max_records_per_partition,
        )
        batch = batch_key(last)
        return [InputPartition(BatchPart(range=piece, batch=batch)) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return freezing_after(self._read(partition.value))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            close_client(self._settings.bootstrap, self._settings.security)

    def _read(self, part: BatchPart) -> Iterator[Any]:
        with collecting_later():
            from pyspark_headrace.reading.task import read_range  # not needed for planning

        meter = Meter()
        try:
            yield from read_range(part.range, self._settings, self._projection, meter)
        finally:
            if self._reports:
                send(part.batch, part.range, meter.figures())

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        connections = pooled_client(self._settings.bootstrap, self._settings.security)
        if self._planner is None:
            with collecting_later():
                from pyspark_headrace.reading.planner import Planner

            self._planner = Planner(self._settings, connections)
        return connections.call(getattr(self._planner, name)(*arguments, **options))
