"""What Spark finds under `format("headrace")`: checks options and schemas, and hands out readers and writers.

Has no side effects: Spark makes several per query, each in a process of its own. So that these start fast,
what reads and writes is imported where it is used. Read next: stream_reader.py, batch_reader.py, sink.py.
"""

from __future__ import annotations

from importlib.util import find_spec

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headrace.client.errors import ClientError
from pyspark_headrace.columns import default_schema, projection
from pyspark_headrace.options import read_settings, write_settings
from pyspark_headrace.refused_stream import RefusedStream
from pyspark_headrace.sink_columns import SinkColumns
from pyspark_headrace.workers import settle

_STREAMS_SINCE = (4, 2)


class HeadraceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> str:
        """Of reads. Streams ask for it too, before anybody says that they are streams."""
        settings = read_settings(self.options, streaming=False)
        settle()
        return default_schema(
            settings.columns, include_headers=settings.include_headers, forms=settings.forms
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        _check_packages()
        from pyspark_headrace.batch_reader import BatchReader, PushdownReader

        settings = read_settings(self.options, streaming=False)
        kind = PushdownReader if settings.pushdown else BatchReader
        return kind(settings, projection(schema, settings.forms))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            _check_version("reading as a stream")
            _check_packages()
            settings = read_settings(self.options, streaming=True)
            columns = projection(schema, settings.forms)
        except ClientError as error:
            return RefusedStream(error)
        from pyspark_headrace.stream_reader import StreamReader

        return StreamReader(settings, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ClientError(
                "a topic cannot be overwritten, only appended to", next_step='use .mode("append")'
            )
        _check_packages()
        from pyspark_headrace.sink import BatchWriter

        settings = write_settings(self.options, streaming=False)
        return BatchWriter(settings, SinkColumns.of(schema, topic_given=settings.topic is not None))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Complete mode appends the whole result of every batch, as the official connector does."""
        _check_version("writing as a stream")
        _check_packages()
        from pyspark_headrace.stream_sink import StreamWriter

        settings = write_settings(self.options, streaming=True)
        return StreamWriter(settings, SinkColumns.of(schema, topic_given=settings.topic is not None))


def _check_packages() -> None:
    """Here and not on import: Spark finds no format at all when one pyspark_* package cannot be imported."""
    for name in ("numpy", "pyarrow"):
        if find_spec(name) is None:
            raise ClientError(f"{name} is not installed", next_step="pip install headrace[spark]")


def _check_version(what: str) -> None:
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < _STREAMS_SINCE:
        raise ClientError(
            f"{what} needs PySpark 4.2 or later, and this is {pyspark.__version__}",
            next_step="pip install -U pyspark; batch reads and writes work with 4.0",
        )
