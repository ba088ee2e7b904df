# SPDX-License-Identifier: Apache-2.0
"""Which batches a table's log has, with the ends of their sources."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from headrace.pipelines.delta.recorded_batches import SOURCES, recorded_batches

ROWS = pa.table({"n": [1]})


def write(path: Path, **metadata: str) -> None:
    properties = CommitProperties(custom_metadata=metadata) if metadata else None
    write_deltalake(path, ROWS, mode="append", commit_properties=properties)


def test_batches_are_listed_from_the_newest_and_other_commits_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, appId="query", batchId="0", **{SOURCES: '["{}", "-"]'})
    write(tmp_path, appId="query", batchId="1")
    write(tmp_path)
    newest, oldest = recorded_batches(DeltaTable(tmp_path))
    assert (newest.version, newest.number, newest.sources) == (1, 1, ())
    assert (oldest.version, oldest.app_id, oldest.sources) == (0, "query", ("{}", "-"))
    assert 0 < oldest.timestamp_ms <= newest.timestamp_ms


def test_an_older_version_knows_its_own_batches_only(tmp_path: Path) -> None:
    write(tmp_path, appId="query", batchId="0")
    write(tmp_path, appId="query", batchId="1")
    assert [each.number for each in recorded_batches(DeltaTable(tmp_path, version=0))] == [0]
