"""What Spark finds under `format("headrace_delta")`: checks options and columns, hands out writers.

Has no side effects: Spark makes several per batch, each in a process of its own. So that these start fast,
what reads and writes is imported where it is used. Read next: sink.py, stream_sink.py, reader.py.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from pyspark_headrace_delta.options import table_settings
from pyspark_headrace_delta.schema import table_schema


class DeltaSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace_delta"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write may be long: what keeps the table from taking it is said before it begins."""
        from headrace.pipelines.delta.table import open_table
        from pyspark_headrace_delta.sink import BatchWriter

        settings = table_settings(self.options, streaming=False)
        document = table_schema(schema, settings.partition_by)
        table = open_table(settings.path)
        if table is not None:
            from pyspark_headrace_delta.commit import check_fit

            check_fit(table, document, settings, overwrite=overwrite)
        return BatchWriter(settings, document, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """In complete mode `overwrite` is true."""
        from pyspark_headrace_delta.stream_sink import StreamWriter

        settings = table_settings(self.options, streaming=True)
        return StreamWriter(settings, table_schema(schema, settings.partition_by), overwrite=overwrite)
