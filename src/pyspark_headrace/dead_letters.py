"""Records that are not what they are read as: refused with their place, or sent to a topic of their own.

In that topic a record has the original bytes as its value and says in its headers where they came from and
what is wrong with them. A task that runs again sends them again. Read next: task.py.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from headrace.client.arrow.typed import Rejects
from headrace.client.arrow.types import HEADERS
from headrace.client.errors import ClientError
from pyspark_headrace.options import ReadSettings, WriteSettings
from pyspark_headrace.sink_columns import SinkColumns
from pyspark_headrace.sink_task import write_rows

_COLUMNS = SinkColumns(names=frozenset({"value", "headers"}))


class Refusing(Rejects):
    """The first such record ends the read."""

    def add(self, batch: Any) -> None:
        first = batch.slice(0, 1).to_pylist()[0]
        raise ClientError(
            f"{first['column']} at offset {first['offset']} of partition {first['partition']} "
            f"of topic {first['topic']!r}: {first['error']}",
            next_step='send such records elsewhere with .option("rejectsTopic", …)',
        )


class DeadLetters(Rejects):
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
        write_rows(iter([rows]), self._settings, _COLUMNS)


def rejects_of(settings: ReadSettings) -> Rejects:
    return Refusing() if settings.rejects_topic is None else DeadLetters(settings, settings.rejects_topic)


def _headers(row: dict[str, Any]) -> list[dict[str, Any]]:
    context = TaskContext.get()
    said = {**row, "attempt": 0 if context is None else context.attemptNumber()}
    return [{"key": f"headrace.{name}", "value": str(value).encode()} for name, value in said.items()]
