# SPDX-License-Identifier: Apache-2.0
"""Which version of a table is read, where it ends in its topic, and what is refused with its name."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, TableFeatures, write_deltalake

from headrace.client.errors import ClientError
from headrace.pipelines.delta.recorded_batches import SOURCES
from headrace.pipelines.tables.positions import newest_batch, offsets_of
from headrace.pipelines.tables.snapshots import open_snapshot

ROWS = pa.table({"n": [1]})


def write_batch(path: Path, number: int, *, sources: list[str] | None = None) -> None:
    position = {"epoch": 0, "offset": 10 * (number + 1)}
    document = {"query": "q", "topics": {"orders": {"id": "t", "partitions": {"0": position}}}, "version": 1}
    lines = [json.dumps(document)] if sources is None else sources
    metadata = {"appId": "query", "batchId": str(number), SOURCES: json.dumps(lines)}
    properties = CommitProperties(custom_metadata=metadata)
    write_deltalake(path, ROWS, mode="append", commit_properties=properties)


def end_of(path: Path, **version: Any) -> int:
    snapshot = open_snapshot(str(path), **version)
    (position,) = (
        position for _, position in offsets_of(newest_batch(snapshot.table, snapshot.path), snapshot.path)
    )
    return position.offset


def refused(message: str, path: Path, **version: Any) -> None:
    with pytest.raises(ClientError, match=message):
        end_of(path, **version)


def test_a_merge_ends_where_the_batch_before_it_ended(tmp_path: Path) -> None:
    write_batch(tmp_path, 0)
    write_batch(tmp_path, 1)
    DeltaTable(tmp_path).optimize.compact()
    assert end_of(tmp_path) == 20
    assert end_of(tmp_path, version=0) == 10
    write_batch(tmp_path, 2)
    assert open_snapshot(str(tmp_path), offset={"orders": {"0": 29}}).version == 2
    assert open_snapshot(str(tmp_path), offset={"orders": {"0": 30}}).version == 3
    assert open_snapshot(str(tmp_path), offset={"others": {"0": 0}}).version == 3


def test_a_table_that_was_restored_has_no_end(tmp_path: Path) -> None:
    write_batch(tmp_path, 0)
    write_batch(tmp_path, 1)
    DeltaTable(tmp_path).restore(0)
    refused("version 2 of the table .* restored an older one", tmp_path)
    write_batch(tmp_path, 2)
    assert end_of(tmp_path) == 30, "its writer went on from there"


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([], "does not say where its batch ended"),
        (["{}", "{}"], "over 2 sources"),
        (["-"], "another source than a topic"),
        (['{"logOffset": 3}'], "no offsets of this source"),
    ],
)
def test_batches_that_do_not_say_where_they_end(tmp_path: Path, sources: list[str], message: str) -> None:
    write_batch(tmp_path, 0, sources=sources)
    refused(message, tmp_path)


def test_a_table_without_batches_has_no_end(tmp_path: Path) -> None:
    write_deltalake(tmp_path, ROWS)
    refused("has no micro-batch", tmp_path)


def test_versions_that_are_not_there(tmp_path: Path) -> None:
    refused("there is no Delta table in", tmp_path)
    write_batch(tmp_path, 0)
    refused("has no version 7: the newest is 0", tmp_path, version=7)
    refused("has no version -1", tmp_path, version=-1)
    refused("timestamp cannot be 'soon'", tmp_path, timestamp="soon")
    refused("version and timestamp are given", tmp_path, version=0, timestamp="2026-01-01")
    refused("offset cannot be", tmp_path, offset={"orders": 3})
    refused("no version of the table .* ends at or before", tmp_path, offset={"orders": {"0": 3}})


def test_a_time_is_that_of_the_newest_version_before_it(tmp_path: Path) -> None:
    begun = int(time.time())
    at = [begun + 10, begun + 20, begun + 30]
    for number, seconds in enumerate(at):
        write_batch(tmp_path, number)
        # Delta takes the time of a version from its file, which is newer than the time in its history.
        os.utime(tmp_path / "_delta_log" / f"{number:020}.json", (seconds, seconds))
    assert [end_of(tmp_path, timestamp=datetime.fromtimestamp(at[each], UTC)) for each in range(3)] == [
        *(10, 20, 30)
    ]
    text = datetime.fromtimestamp(at[1], UTC).isoformat()
    assert end_of(tmp_path, timestamp=text) == end_of(tmp_path, timestamp=text.removesuffix("+00:00")) == 20
    before = datetime.fromtimestamp(begun - 60, UTC)
    refused("has no version of .*: version 0, the first that its log has, is of", tmp_path, timestamp=before)


def test_files_that_vacuum_removed_are_named(tmp_path: Path) -> None:
    write_batch(tmp_path, 0)
    snapshot = open_snapshot(str(tmp_path))
    (tmp_path / snapshot.files()[0].path).unlink()
    with pytest.raises(ClientError, match=r"version 0 of the table .* needs the file .*parquet"):
        snapshot.files()


def test_features_that_change_rows_are_refused(tmp_path: Path) -> None:
    write_batch(tmp_path, 0)
    table = DeltaTable(tmp_path)
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    assert end_of(tmp_path) == 10, "no file has one"
    use_deletion_vector(tmp_path)
    refused("unsupported reader features: deletionVectors", tmp_path)


def test_column_mapping_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(
        tmp_path,
        pa.schema([("n", pa.int64())]),
        configuration={"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2"},
        raise_if_key_not_exists=False,
    )
    refused("unsupported reader features: columnMapping", tmp_path)


def use_deletion_vector(path: Path) -> None:
    """As another writer would: the newest entry of the log adds the file again, with one."""
    entries = sorted((path / "_delta_log").glob("*.json"))
    add = next(json.loads(line)["add"] for line in entries[0].read_text().splitlines() if '"add"' in line)
    add["deletionVector"] = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 44,
        "cardinality": 1,
    }
    following = path / "_delta_log" / f"{len(entries):020}.json"
    following.write_text(json.dumps({"add": add}) + "\n")
