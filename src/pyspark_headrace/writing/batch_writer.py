# SPDX-License-Identifier: Apache-2.0
"""Batch writer: tasks encode or write rows, the driver commits them.

Its constructor has no side effects: Spark creates one to plan and one to commit, in two processes.
Read next: delivery.py, task.py, publish.py; stream_writer.py (the same for streams).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_headrace.options import WriteSettings
from pyspark_headrace.worker_reuse import collecting_later
from pyspark_headrace.writing.columns import SinkColumns
from pyspark_headrace.writing.delivery import Delivery


class BatchWriter(DataSourceArrowWriter):
    """Needs no abort: encoded rows are not in any output topic before the commit."""

    def __init__(self, settings: WriteSettings, columns: SinkColumns) -> None:
        self._settings = settings
        self._columns = columns
        self._delivery = Delivery(settings, awaits_broker=False)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with collecting_later():
            from pyspark_headrace.writing.task import write_task  # not needed for planning

        return write_task(
            iterator,
            self._settings,
            self._columns,
            exactly_once=self._delivery.is_exactly_once(),
            awaits_broker=False,
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with collecting_later():
            from pyspark_headrace.writing.publish import publish_write

        publish_write(messages, self._settings)
