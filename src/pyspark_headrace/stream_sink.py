"""The sink of a streaming query, as Spark sees it: tasks take rows, the driver ends every micro-batch.

Spark has append and complete mode for Python sinks, not update. A module of its own since Spark before 4.1
has no base class for it. Read next: sink.py, publish.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_headrace.options import WriteSettings
from pyspark_headrace.publish import publish_batch
from pyspark_headrace.sink_columns import SinkColumns
from pyspark_headrace.sink_task import write_task


class StreamWriter(DataSourceStreamArrowWriter):
    """Nothing is left to do at abort: what tasks encoded is in no topic that anybody reads."""

    def __init__(self, settings: WriteSettings, columns: SinkColumns) -> None:
        self._settings = settings
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_task(iterator, self._settings, self._columns, awaits_broker=True)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        publish_batch(messages, self._settings, batch_id)
