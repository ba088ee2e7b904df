"""Records that are not what they are read as: refused with their place, or sent to a topic or a table.

In a topic a record has the original bytes as its value and says in its headers where they came from and what
is wrong with them; a table has a column for each of these. A task that runs again sends them again, under the
number of its attempt. Read next: task.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from headrace.client.arrow.typed import Rejects
from headrace.client.arrow.types import HEADERS
from headrace.client.errors import ClientError
from pyspark_headrace.options import ReadSettings, WriteSettings
from pyspark_headrace.sink_columns import SinkColumns

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
_GATHERED_BYTES = 32 << 20


class RangeRejects(Rejects):
    """Of one task's range of a partition."""

    def finish(self) -> None:
        """The range is read: whatever is still held has to be safe when this returns."""


class Refusing(RangeRejects):
    """The first such record ends the read."""

    def add(self, batch: Any) -> None:
        first = batch.slice(0, 1).to_pylist()[0]
        raise ClientError(
            f"{first['column']} at offset {first['offset']} of partition {first['partition']} "
            f"of topic {first['topic']!r}: {first['error']}",
            next_step='send such records elsewhere with .option("rejectsTopic", …) or "rejectsTable"',
        )


class DeadLetters(RangeRejects):
    """Sends them on before the rows around them are handed to Spark."""

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
        from pyspark_headrace.sink_task import write_rows  # what most reads never need

        write_rows(iter([rows]), self._settings, _COLUMNS)


class RejectsTable(RangeRejects):
    """Adds them to a Delta table, in one commit at the end of the range or several of a bounded size."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._size = 0

    def add(self, batch: Any) -> None:
        attempts = pa.array([_attempt()] * batch.num_rows, pa.int32())
        self._batches.append(batch.append_column("attempt", attempts))
        self._size += batch.nbytes
        if self._size > _GATHERED_BYTES:
            self.finish()

    def finish(self) -> None:
        if not self._batches:
            return
        from headrace.pipelines.delta.files import TaskFiles
        from pyspark_headrace_delta.commit import TableCommit
        from pyspark_headrace_delta.options import table_settings

        settings = table_settings({"path": str(self._path)}, streaming=False)
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        files = TaskFiles(self._path, (), task=task, target_size=settings.target_file_size)
        TableCommit(
            settings=settings,
            schema=_TABLE_SCHEMA,
            files=files.write(self._batches),
            overwrite=False,
            batch=None,
        ).apply()
        self._batches.clear()
        self._size = 0


def rejects_of(settings: ReadSettings) -> RangeRejects:
    if settings.rejects_table is not None:
        return RejectsTable(Path(settings.rejects_table))
    return Refusing() if settings.rejects_topic is None else DeadLetters(settings, settings.rejects_topic)


def _attempt() -> int:
    context = TaskContext.get()
    return 0 if context is None else int(context.attemptNumber())


def _headers(row: dict[str, Any]) -> list[dict[str, Any]]:
    said = {**row, "attempt": _attempt()}
    return [{"key": f"headrace.{name}", "value": str(value).encode()} for name, value in said.items()]
