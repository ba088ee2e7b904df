# SPDX-License-Identifier: Apache-2.0
"""The data source behind `format("headrace")`: checks options, creates readers and writers.

Has no side effects: Spark creates several instances per query, each in its own process. Readers and writers
are imported where they are used, so that planning starts fast. Read next: reading/stream_reader.py,
reading/batch_reader.py, writing/batch_writer.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, ClassVar, NoReturn

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from headrace.client.errors import ClientError
from pyspark_headrace.columns import default_schema, projection
from pyspark_headrace.options import read_settings, write_settings
from pyspark_headrace.worker_reuse import freeze_imports
from pyspark_headrace.writing.columns import SinkColumns

_log = logging.getLogger("pyspark_headrace")

_STREAMS_SINCE = (4, 2)


class HeadraceSource(DataSource):
    tasks_report: ClassVar[bool] = False
    """Whether tasks of streams send figures to the driver."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> str:
        """The schema of reads. Spark also calls it for streams, before it says that they are streams."""
        settings = read_settings(self.options, streaming=False)
        freeze_imports()
        return default_schema(
            settings.columns, include_headers=settings.include_headers, formats=settings.formats
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        _check_packages()
        from pyspark_headrace.reading.batch_reader import BatchReader

        settings = read_settings(self.options, streaming=False)
        if self.options.get("pushdown", "false").lower() == "true":
            _log.warning(
                "option 'pushdown' has no effect any more: Spark applies the pushed filter to other uses of "
                "the DataFrame, too; bound what is read with startingOffsets, startingTimestamp or assign"
            )
        if settings.starting_table is not None:
            raise ClientError(
                "option 'startingTable' is for streams",
                next_step="a batch reads table and topic by headrace.spark.table",
            )
        return BatchReader(settings, projection(schema, settings.formats))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            _check_version("reading as a stream")
            _check_packages()
            settings = read_settings(self.options, streaming=True)
            columns = projection(schema, settings.formats)
        except ClientError as error:
            return RejectedStreamReader(error)
        from pyspark_headrace.reading.stream_reader import StreamReader

        topic = StreamReader(settings, columns, reports=self.tasks_report)
        if settings.starting_table is None:
            return topic
        from pyspark_headrace.reading.table_first import TableFirstReader

        return TableFirstReader(settings, columns, topic)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ClientError(
                "a topic cannot be overwritten, only appended to", next_step='use .mode("append")'
            )
        _check_packages()
        from pyspark_headrace.writing.batch_writer import BatchWriter

        settings = write_settings(self.options, streaming=False)
        return BatchWriter(settings, SinkColumns.of(schema, topic_given=settings.topic is not None))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Complete mode appends the whole result of every batch, as the official connector does."""
        _check_version("writing as a stream")
        _check_packages()
        from pyspark_headrace.writing.stream_writer import StreamWriter

        settings = write_settings(self.options, streaming=True)
        return StreamWriter(settings, SinkColumns.of(schema, topic_given=settings.topic is not None))


class MeasuredSource(HeadraceSource):
    """Registered by `install_metrics` in drivers that receive the figures; others would only pile them up."""

    tasks_report = True


class RejectedStreamReader(DataSourceStreamReader):
    """Raises the reason when Spark first calls it: Spark hides an error raised while a reader is created."""

    def __init__(self, reason: ClientError) -> None:
        self._reason = reason

    def initialOffset(self) -> NoReturn:
        raise self._reason

    def latestOffset(self, start: Any = None, limit: Any = None) -> NoReturn:
        raise self._reason

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._reason


def _check_packages() -> None:
    """Checked here, not at import: one failing import of a pyspark_* package hides every data source."""
    for name in ("numpy", "pyarrow"):
        if find_spec(name) is None:
            raise ClientError(f"{name} is not installed", next_step="pip install headrace[spark]")


def _check_version(what: str) -> None:
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < _STREAMS_SINCE:
        raise ClientError(
            f"{what} needs PySpark 4.2 or later, and this is {pyspark.__version__}",
            next_step="pip install -U pyspark; older versions of Spark read and write batches only",
        )
