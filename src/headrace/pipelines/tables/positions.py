# SPDX-License-Identifier: Apache-2.0
"""Where a version of a table ends in its topic, from what the sink recorded with its micro-batches.

Merges change no rows: the offsets of the batch before them hold. Independent of Spark. Read next:
delta/recorded_batches.py, tails.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.pipelines.delta.recorded_batches import RecordedBatch, batch_of, commits, recorded_batches
from pyspark_headrace.reading.offsets import Offsets, read_document

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from headrace.pipelines.delta.table import TablePlace

_STORE_AGAIN = "let `headrace pipeline run store` add another record to the topic's table, and read it again"


def newest_batch(table: DeltaTable, path: TablePlace) -> RecordedBatch:
    """The batch with which the opened version ends; ClientError when the log does not say it."""
    for version, info in commits(table):
        if str(info.get("operation", "")).upper() == "RESTORE":
            raise ClientError(
                f"version {version} of the table {path} restored an older one: where its rows end in the "
                "topic is not known",
                next_step="store the topic in a new table, or read this one with headrace.spark.delta",
            )
        batch = batch_of(version, info)
        if batch is not None:
            return batch
    raise ClientError(
        f"the log of the table {path} has no micro-batch, so that its end in the topic is not known",
        next_step=f"is it the table of `headrace pipeline run store`? Then {_STORE_AGAIN}",
    )


def offsets_of(batch: RecordedBatch, path: TablePlace) -> Offsets:
    """The end of the batch; ClientError when it was not recorded, or is that of another source."""
    if not batch.sources:
        raise ClientError(
            f"version {batch.version} of the table {path} does not say where its batch ended in the topic: "
            "it was written by an earlier release, or by a query whose checkpoint the sink did not know",
            next_step=_STORE_AGAIN,
        )
    if len(batch.sources) > 1:
        raise ClientError(
            f"the table {path} is written by a query over {len(batch.sources)} sources, not from one topic",
            next_step="read it with headrace.spark.delta",
        )
    return _read(batch.sources[0], path)


def version_at(table: DeltaTable, path: TablePlace, ends: Mapping[str, Mapping[int, int]]) -> int:
    """The newest version without records at or after these offsets, later merges included."""
    newest = int(table.version())
    for batch in recorded_batches(table):
        if _is_within(offsets_of(batch, path), ends):
            return newest
        newest = batch.version - 1
    raise ClientError(
        f"no version of the table {path} that its log still has ends at or before {json.dumps(ends)}",
        next_step="choose later offsets",
    )


def _is_within(reached: Offsets, ends: Mapping[str, Mapping[int, int]]) -> bool:
    return all(
        position.offset <= ends[place.topic][place.partition]
        for place, position in reached
        if place.partition in ends.get(place.topic, {})
    )


def _read(line: str, path: TablePlace) -> Offsets:
    try:
        document = json.loads(line)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ClientError(
            f"the table {path} is written from another source than a topic: {line[:100]}",
            next_step="read it with headrace.spark.delta",
        )
    return read_document(document)
