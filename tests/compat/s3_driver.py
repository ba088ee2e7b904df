# SPDX-License-Identifier: Apache-2.0
"""A driver without Spark: commits numbered batches to a table in an object store, in a process to be killed.

Argument: a JSON document with `path`, `options` and `work`: numbers of batches, "write" or "optimize". Prints
each batch that is in the table, and whether it was not there before.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from headrace.client.errors import ClientError
from headrace.pipelines.delta.files import TaskFiles
from headrace.pipelines.delta.optimize import optimize_table
from pyspark_headrace.replays import BatchIdentity, ReplayRule
from pyspark_headrace_delta.commit import BatchNumber, TableCommit
from pyspark_headrace_delta.options import table_settings
from pyspark_headrace_delta.schema import table_schema

COLUMNS = StructType([StructField("batch", LongType()), StructField("row", LongType())])
ROWS = 10


def commit_batch(path: str, options: dict[str, Any], number: int, *, app_id: str = "query") -> bool:
    settings = table_settings({"path": path, **options}, streaming=True)
    rows = pa.table(
        {"batch": pa.array([number] * ROWS, pa.int64()), "row": pa.array(range(ROWS), pa.int64())}
    )
    files = TaskFiles(settings.path, (), task=0, target_size=1 << 20).write(rows.to_batches())
    return TableCommit(
        settings=settings,
        schema=table_schema(COLUMNS, ()),
        files=files,
        overwrite=False,
        batch=BatchNumber(
            app_id=app_id,
            batch=BatchIdentity(number=number, offsets=number + 1),
            rule=ReplayRule(sink="the table", numbered_by="checkpoint"),
        ),
    ).apply()


def write_once(path: str, options: dict[str, Any]) -> bool:
    """A batch write without a number."""
    settings = table_settings({"path": path, **options}, streaming=False)
    rows = pa.table({"batch": pa.array([0] * ROWS, pa.int64()), "row": pa.array(range(ROWS), pa.int64())})
    files = TaskFiles(settings.path, (), task=0, target_size=1 << 20).write(rows.to_batches())
    schema = table_schema(COLUMNS, ())
    return TableCommit(settings=settings, schema=schema, files=files, overwrite=False, batch=None).apply()


def main(document: str) -> int:
    asked = json.loads(document)
    path, options = asked["path"], asked["options"]
    try:
        for work in asked["work"]:
            if work == "optimize":
                print(
                    optimize_table(table_settings({"path": path, **options}, streaming=True).path).files_after
                )
            elif work == "write":
                print(write_once(path, options))
            else:
                print(work, commit_batch(path, options, work), flush=True)
    except ClientError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
