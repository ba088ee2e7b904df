"""The sink of a streaming query: every micro-batch is written at least once.

Spark has append and complete mode for Python sinks, not update. A module of its own since Spark before 4.1
has no base class for it. Read next: sink.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_headrace.options import WriteSettings
from pyspark_headrace.sink import write_rows
from pyspark_headrace.sink_columns import SinkColumns


class StreamWriter(DataSourceStreamArrowWriter):
    """Nothing is left to do at commit or abort: what a task wrote is in the topic already."""

    def __init__(self, settings: WriteSettings, columns: SinkColumns) -> None:
        self._settings = settings
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_rows(iterator, self._settings, self._columns)
