# SPDX-License-Identifier: Apache-2.0
"""The rows of a snapshot as Spark's own Parquet reader gives them: columns and filters reach the files.

Partition values are those of the table's log. Where the names of a file's folders say the same, Spark takes
them from there, and a filter leaves files out; elsewhere they are added as literals. Tables in object stores
are read through Arrow: Spark would need a jar. Read next: snapshots.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from headrace.client.errors import ClientError
from headrace.pipelines.delta.partitions import text_of
from headrace.pipelines.delta.scan import TableFile
from headrace.pipelines.delta.table import ObjectStorePath
from headrace.pipelines.jobs.records import quoted
from headrace.pipelines.tables.session_setting import session_setting
from headrace.pipelines.tables.snapshots import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_BY_FOLDER = frozenset({"string", "long", "integer", "short", "byte", "boolean", "date"})
_LISTED_BY_JOB = "spark.sql.sources.parallelPartitionDiscovery.threshold"
"""Spark runs a job of one task a file to look at more than 32 files, whose names are known here."""
_STRICT = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "__globPaths__": "false"}
"""Sessions may be told to leave out files that they cannot read: a table would lose rows without a word."""


def native_rows(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    """All columns, in the table's order."""
    if isinstance(snapshot.path, ObjectStorePath):
        return _through_arrow(spark, snapshot)
    schema = spark_schema(snapshot)
    files = snapshot.files()
    if not files:
        return spark.createDataFrame([], schema)
    partition_by = snapshot.partition_columns
    plain = {field["name"] for field in snapshot.schema["fields"] if str(field["type"]) in _BY_FOLDER}
    by_folder = set(partition_by) <= plain
    named: list[str] = []
    others: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for file in files:
        path = _checked(snapshot.path, file)
        if by_folder and _says_the_same(file, partition_by):
            named.append(path)
        else:
            others[tuple(file.partition_values.get(name) for name in partition_by)].append(path)
    frames = []
    if named:
        base = {"basePath": f"file:{snapshot.path}"} if partition_by else {}
        frames.append(_parquet(spark, named, schema, base))
    frames += [
        _with_literals(spark, paths, schema, dict(zip(partition_by, values, strict=True)))
        for values, paths in others.items()
    ]
    columns = [quoted(name) for name in schema.fieldNames()]
    return reduce(lambda left, right: left.unionAll(right), (frame.select(*columns) for frame in frames))


def _through_arrow(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    reader = spark.read.format("headrace_delta").options(**snapshot.storage.sink_options())
    return reader.option("versionAsOf", snapshot.version).load(str(snapshot.path))


def spark_schema(snapshot: Snapshot) -> StructType:
    """Without the table's own remarks on its columns."""
    from pyspark.sql.types import StructField, StructType

    document = StructType.fromJson(snapshot.schema)
    return StructType([StructField(field.name, field.dataType) for field in document.fields])


def _parquet(
    spark: SparkSession, paths: Sequence[str], schema: StructType, options: Mapping[str, str]
) -> DataFrame:
    least = max(len(paths) + 1, int(spark.conf.get(_LISTED_BY_JOB, None) or 0))
    with session_setting(spark, _LISTED_BY_JOB, str(least)):
        return spark.read.options(**_STRICT, **options).schema(schema).parquet(*paths)


def _with_literals(
    spark: SparkSession, paths: Sequence[str], schema: StructType, values: Mapping[str, Any]
) -> DataFrame:
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    stored = StructType([field for field in schema.fields if field.name not in values])
    literals = {name: functions.lit(value).cast(schema[name].dataType) for name, value in values.items()}
    return _parquet(spark, paths, stored, {}).withColumns(literals)


def _says_the_same(file: TableFile, partition_by: Sequence[str]) -> bool:
    """Whether Spark reads from the names of the folders what the table's log says."""
    folders = PurePosixPath(file.path).parent.parts
    if len(folders) != len(partition_by):
        return False
    for folder, name in zip(folders, partition_by, strict=True):
        column, _, value = folder.partition("=")
        text = text_of(file.partition_values.get(name))
        if text == _NULL_FOLDER or _unescaped(column) != name:
            return False
        if _unescaped(value) != (_NULL_FOLDER if text is None else text):
            return False
    return True


def _unescaped(name: str) -> str:
    """As Spark does it: each escape is one character."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), name)


def _checked(folder: Path, file: TableFile) -> str:
    """The file's address. Spark passes over files whose names it takes for hidden ones."""
    name = PurePosixPath(file.path).name
    if name.startswith((".", "_")):
        raise ClientError(
            f"the table {folder} has a file {file.path}, which Spark takes for a hidden one",
            next_step='read it with format("headrace_delta")',
        )
    return f"file:{folder / file.path}"
