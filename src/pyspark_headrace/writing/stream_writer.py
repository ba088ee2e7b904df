# SPDX-License-Identifier: Apache-2.0
"""Stream writer: tasks encode or write rows, the driver commits every micro-batch.

Spark supports append and complete mode for Python sinks, not update. A separate module because Spark before
4.1 does not have its base class. Read next: batch_writer.py, delivery.py, publish.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_headrace.options import WriteSettings
from pyspark_headrace.worker_reuse import collecting_later
from pyspark_headrace.writing.columns import SinkColumns
from pyspark_headrace.writing.delivery import Delivery


class StreamWriter(DataSourceStreamArrowWriter):
    """Needs no abort: encoded rows are not in any output topic before the commit."""

    def __init__(self, settings: WriteSettings, columns: SinkColumns) -> None:
        self._settings = settings
        self._columns = columns
        self._delivery = Delivery(settings, awaits_broker=True)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with collecting_later():
            from pyspark_headrace.writing.task import write_task  # not needed for planning

        return write_task(
            iterator,
            self._settings,
            self._columns,
            exactly_once=self._delivery.is_exactly_once(),
            awaits_broker=True,
        )

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        with collecting_later():
            from pyspark_headrace.writing.publish import publish_batch

        publish_batch(messages, self._settings, batch_id)
