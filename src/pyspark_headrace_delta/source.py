# SPDX-License-Identifier: Apache-2.0
"""The data source behind `format("headrace_delta")`: checks options, creates readers and writers.

Has no side effects: Spark creates several instances per batch, each in its own process. Readers and writers
are imported where they are used, so that planning starts fast. Read next: batch_writer.py, stream_writer.py,
reader.py.
"""

from __future__ import annotations

from importlib.util import find_spec

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from headrace.client.errors import ClientError
from pyspark_headrace_delta.options import table_settings, table_version
from pyspark_headrace_delta.schema import table_schema


class DeltaSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace_delta"

    def schema(self) -> StructType:
        """The schema of reads."""
        from pyspark_headrace_delta.reader import table_columns

        asked = table_version(self.options)
        return table_columns(asked.place, asked.version)

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_headrace_delta.reader import TableReader, table_columns

        asked = table_version(self.options)
        known = {field.name: field.dataType for field in table_columns(asked.place, asked.version).fields}
        for field in schema.fields:
            if known.get(field.name) != field.dataType:
                kind = field.dataType.simpleString()
                raise ClientError(
                    f"the table {asked.place} has no column {field.name!r} of type {kind}",
                    next_step="leave out .schema(…): the table knows its columns",
                )
        return TableReader(asked.place, schema.fieldNames(), asked.version)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Check the table before the write starts: a batch write may be long."""
        from headrace.pipelines.delta.table import open_table
        from pyspark_headrace_delta.batch_writer import BatchWriter

        settings = table_settings(self.options, streaming=False)
        document = table_schema(schema, settings.partition_by)
        table = open_table(settings.path)
        if table is not None:
            from pyspark_headrace_delta.commit import check_fit

            check_fit(table, document, settings, overwrite=overwrite)
        return BatchWriter(settings, document, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """In complete mode `overwrite` is true."""
        from pyspark_headrace_delta.stream_writer import StreamWriter

        _check_library()
        settings = table_settings(self.options, streaming=True)
        return StreamWriter(settings, table_schema(schema, settings.partition_by), overwrite=overwrite)


def _check_library() -> None:
    """Fail before the first batch, not at its commit."""
    if find_spec("deltalake") is None:
        raise ClientError("deltalake is not installed", next_step="pip install headrace[spark]")
