# SPDX-License-Identifier: Apache-2.0
"""Records that cannot be decoded: fail the read, or write them to a topic or a Delta table.

In a topic the record's value is the original bytes, and its headers hold their origin and the error; a table
has a column for each of these. A retried task writes them again, with its attempt number. Read next: task.py.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from headrace.client.arrow.kernels.types import HEADERS
from headrace.client.arrow.read.typed import Rejects
from headrace.client.errors import ClientError
from headrace.pipelines.delta.table import TablePlace
from pyspark_headrace.options import ReadSettings, WriteSettings
from pyspark_headrace.writing.columns import SinkColumns

_COLUMNS = SinkColumns(names=frozenset({"value", "headers"}))
_TABLE_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (
            *(("topic", "string"), ("partition", "integer"), ("offset", "long"), ("column", "string")),
            *(("error", "string"), ("bytes", "binary"), ("attempt", "integer")),
        )
    ],
}
_BUFFER_BYTES = 32 << 20


class RangeRejects(Rejects):
    """Rejected records of one task's range."""

    def finish(self) -> None:
        """Called at the end of the range: buffered rejects are durable when it returns."""


class FailOnReject(RangeRejects):
    """Fails the read at the first rejected record."""

    def add(self, batch: Any) -> None:
        first = batch.slice(0, 1).to_pylist()[0]
        raise ClientError(
            f"{first['column']} at offset {first['offset']} of partition {first['partition']} "
            f"of topic {first['topic']!r}: {first['error']}",
            next_step='write such records elsewhere with .option("rejectsTopic", …) or "rejectsTable"',
        )


class LeaveOutRejects(RangeRejects):
    """Drops them: another query reports them."""

    def add(self, batch: Any) -> None:
        """Nothing to do."""


class RejectsTopic(RangeRejects):
    """Writes rejects to a topic before the surrounding rows are returned to Spark."""

    def __init__(self, settings: ReadSettings, topic: str) -> None:
        super().__init__()
        self._settings = WriteSettings(
            bootstrap=settings.bootstrap,
            topic=topic,
            compression="none",
            timeout_ms=settings.timeout_ms,
            security=settings.security,
        )

    def add(self, batch: Any) -> None:
        headers = pa.array([_headers(row) for row in batch.drop_columns(["bytes"]).to_pylist()], HEADERS)
        rows = pa.RecordBatch.from_arrays([batch.column("bytes"), headers], ["value", "headers"])
        from pyspark_headrace.writing.task import write_rows  # most reads never need it

        write_rows(iter([rows]), self._settings, _COLUMNS)


class RejectsTable(RangeRejects):
    """Writes rejects to a Delta table: one commit at the end of the range, or several of bounded size."""

    def __init__(self, place: TablePlace) -> None:
        super().__init__()
        self._place = place
        self._size = 0

    def add(self, batch: Any) -> None:
        attempts = pa.array([_attempt()] * batch.num_rows, pa.int32())
        self._batches.append(batch.append_column("attempt", attempts))
        self._size += batch.nbytes
        if self._size > _BUFFER_BYTES:
            self.finish()

    def finish(self) -> None:
        if not self._batches:
            return
        from headrace.pipelines.delta.files import TaskFiles
        from pyspark_headrace_delta.commit import TableCommit
        from pyspark_headrace_delta.options import append_settings

        settings = append_settings(self._place)
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        files = TaskFiles(self._place, (), task=task, target_size=settings.target_file_size)
        TableCommit(
            settings=settings,
            schema=_TABLE_SCHEMA,
            files=files.write(self._batches),
            overwrite=False,
            batch=None,
        ).apply()
        self._batches.clear()
        self._size = 0


def rejects_for(settings: ReadSettings) -> RangeRejects:
    if not settings.report_rejects:
        return LeaveOutRejects()
    if settings.rejects_table is not None:
        return RejectsTable(settings.rejects_table)
    if settings.rejects_topic is not None:
        return RejectsTopic(settings, settings.rejects_topic)
    return FailOnReject()


def _attempt() -> int:
    context = TaskContext.get()
    return 0 if context is None else int(context.attemptNumber())


def _headers(row: dict[str, Any]) -> list[dict[str, Any]]:
    fields = {**row, "attempt": _attempt()}
    return [{"key": f"headrace.{name}", "value": str(value).encode()} for name, value in fields.items()]
