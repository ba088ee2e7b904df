"""The sink of a batch write, as Spark sees it: tasks take rows, the driver ends the write.

Its constructor has no side effects: Spark makes one to plan and one to commit, in two processes.
Read next: sink_task.py, publish.py; stream_sink.py (the same for streams).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_headrace.options import WriteSettings
from pyspark_headrace.publish import publish_write
from pyspark_headrace.sink_columns import SinkColumns
from pyspark_headrace.sink_task import write_task


class BatchWriter(DataSourceArrowWriter):
    """Nothing is left to do at abort: what tasks encoded is in no topic that anybody reads."""

    def __init__(self, settings: WriteSettings, columns: SinkColumns) -> None:
        self._settings = settings
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_task(iterator, self._settings, self._columns, awaits_broker=False)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        publish_write(messages, self._settings)
