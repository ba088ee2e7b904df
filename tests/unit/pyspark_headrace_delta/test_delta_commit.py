# SPDX-License-Identifier: Apache-2.0
"""Commits to real tables: each batch once, whoever tries it, however often, whatever happens between."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from headrace.client.errors import ClientError
from headrace.pipelines.delta.files import TaskFiles, WrittenFile
from headrace.pipelines.delta.optimize import optimize_table
from headrace.pipelines.delta.recorded_batches import recorded_batches
from headrace.pipelines.delta.table import open_table
from pyspark_headrace.replays import BatchIdentity, ReplayRule
from pyspark_headrace_delta import commit as commit_module
from pyspark_headrace_delta.commit import BatchNumber, TableCommit
from pyspark_headrace_delta.options import table_settings
from pyspark_headrace_delta.schema import table_schema

ROWS = pa.table({"number": pa.array([1, 2, 3], pa.int64()), "name": ["one", None, "three"]})
COLUMNS = {"number": "long", "name": "string"}
BY_VERSION = ReplayRule(sink="the table", numbered_by="txnVersion")


def written(path: Path, rows: pa.Table, partition_by: Sequence[str] = ()) -> list[WrittenFile]:
    return TaskFiles(path, partition_by, task=0, target_size=1 << 20).write(rows.to_batches())


def commit(
    path: Path,
    batch: BatchNumber | None = None,
    *,
    rows: pa.Table = ROWS,
    columns: dict[str, str] = COLUMNS,
    files: list[WrittenFile] | None = None,
    overwrite: bool = False,
    **options: str,
) -> bool:
    """One attempt to have these rows in the table."""
    settings = table_settings({"path": str(path), **options}, streaming=True)
    return TableCommit(
        settings=settings,
        schema=table_schema(_schema(columns), settings.partition_by),
        files=written(path, rows, settings.partition_by) if files is None else files,
        overwrite=overwrite,
        batch=batch,
    ).apply()


def _schema(columns: dict[str, str]) -> StructType:
    fields = [
        {"name": name, "type": kind, "nullable": False, "metadata": {}} for name, kind in columns.items()
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


def numbered(
    number: int, app_id: str = "query", query_id: str | None = None, *, offsets: int | None = None
) -> BatchNumber:
    batch = BatchIdentity(number=number, offsets=number + 1 if offsets is None else offsets)
    rule = ReplayRule(sink="the table", numbered_by="checkpoint")
    return BatchNumber(app_id=app_id, batch=batch, rule=rule, query_id=query_id)


def rows_in(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return rows


def log_entries(path: Path) -> int:
    return len(list((path / "_delta_log").glob("*.json")))


def interrupt(monkeypatch: pytest.MonkeyPatch, *between: Callable[[], Any]) -> list[int]:
    """Has something happen after each opening of the table and before the commit on it; counts openings."""
    opened: list[int] = []
    waiting = list(between)
    really_open = open_table

    def open_then(path: Path) -> Any:
        table = really_open(path)
        opened.append(1)
        if waiting:
            waiting.pop(0)()
        return table

    monkeypatch.setattr(commit_module, "open_table", open_then)
    return opened


def test_the_table_is_made_by_its_first_commit(tmp_path: Path) -> None:
    path = tmp_path / "deep/in/orders"
    assert commit(path, numbered(0))
    assert log_entries(path) == 1
    assert rows_in(path) == ROWS.to_pylist()
    assert DeltaTable(path).transaction_version("query") == 0


def test_a_batch_that_is_tried_again_counts_once(tmp_path: Path) -> None:
    assert commit(tmp_path, numbered(0))
    assert commit(tmp_path, numbered(1))
    for _ in range(2):
        assert not commit(tmp_path, numbered(1))
    assert len(rows_in(tmp_path)) == 6
    assert log_entries(tmp_path) == 2


def test_a_commit_records_where_the_sources_of_its_batch_end(tmp_path: Path) -> None:
    batch = BatchIdentity(number=3, offsets=1, sources=('{"version": 1}',))
    commit(tmp_path, replace(numbered(3), batch=batch))
    (found,) = recorded_batches(DeltaTable(tmp_path))
    assert (found.app_id, found.number, found.sources) == ("query", 3, batch.sources)


@pytest.mark.parametrize(
    ("again", "message"),
    [(numbered(0), "goes on with batch 0"), (numbered(1, offsets=99), "offsets differ")],
    ids=["an earlier number", "the same number with other offsets"],
)
def test_a_batch_of_an_older_checkpoint_is_refused(tmp_path: Path, again: BatchNumber, message: str) -> None:
    commit(tmp_path, numbered(0))
    commit(tmp_path, numbered(1))
    with pytest.raises(ClientError, match=message):
        commit(tmp_path, again)
    assert len(rows_in(tmp_path)) == 6


def test_a_replay_in_a_table_of_an_earlier_release_is_known_by_its_number(tmp_path: Path) -> None:
    earlier = numbered(3)
    commit(tmp_path, BatchNumber(app_id="query", batch=earlier.batch, rule=BY_VERSION))
    assert not commit(tmp_path, earlier)
    assert commit(tmp_path, numbered(4))
    assert not commit(tmp_path, numbered(4))


def test_versions_of_batch_writes_count_upwards(tmp_path: Path) -> None:
    def write(version: int) -> bool:
        batch = BatchIdentity(number=version)
        return commit(tmp_path, BatchNumber(app_id="job", batch=batch, rule=BY_VERSION))

    assert [write(3), write(3), write(5)] == [True, False, True]
    with pytest.raises(ClientError, match="has txnVersion 5 already"):
        write(4)


def test_queries_count_by_themselves(tmp_path: Path) -> None:
    assert commit(tmp_path, numbered(5, "one"))
    assert commit(tmp_path, numbered(5, "other"))
    assert len(rows_in(tmp_path)) == 6


def test_the_same_batch_committed_in_between_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two drivers of one query: both saw a table without the batch."""
    commit(tmp_path, numbered(0))
    others: list[bool] = []
    opened = interrupt(monkeypatch, lambda: others.append(commit(tmp_path, numbered(1))))
    assert not commit(tmp_path, numbered(1))
    assert others == [True]
    assert len(opened) == 3, "the other's, and ours a second time after the first failed"
    assert len(rows_in(tmp_path)) == 6


def test_the_same_first_batch_in_between_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[bool] = []
    interrupt(monkeypatch, lambda: others.append(commit(tmp_path, numbered(0))))
    assert not commit(tmp_path, numbered(0))
    assert others == [True]
    assert rows_in(tmp_path) == ROWS.to_pylist()


def test_another_query_that_makes_the_table_in_between_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, lambda: commit(tmp_path, numbered(0, "other")))
    assert commit(tmp_path, numbered(0))
    assert len(rows_in(tmp_path)) == 6


def test_a_column_added_in_between_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tmp_path, numbered(0))
    wider = ROWS.append_column("more", pa.array([1.5, 2.5, None]))
    interrupt(
        monkeypatch,
        lambda: commit(
            tmp_path,
            numbered(0, "other"),
            rows=wider,
            columns={**COLUMNS, "more": "double"},
            mergeSchema="true",
        ),
    )
    assert commit(tmp_path, numbered(1))
    assert len(rows_in(tmp_path)) == 9


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_merged_in_between_are_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """`headrace pipeline optimize` beside a running query, in append and in complete mode."""
    for version in range(3):
        commit(tmp_path, numbered(version))
    interrupt(monkeypatch, lambda: optimize_table(tmp_path))
    assert commit(tmp_path, numbered(3), overwrite=overwrite)
    assert len(DeltaTable(tmp_path).file_uris()) == (1 if overwrite else 2)
    assert len(rows_in(tmp_path)) == (3 if overwrite else 12)


@pytest.mark.parametrize("round_number", range(6))
def test_many_drivers_at_once_write_a_batch_once(tmp_path: Path, round_number: int) -> None:
    """Real threads on a table that does not exist yet: one of them makes it."""
    with ThreadPoolExecutor(8) as pool:
        attempts = [pool.submit(commit, tmp_path, numbered(0)) for _ in range(8)]
        assert sorted(attempt.result() for attempt in attempts) == [False] * 7 + [True]
    assert len(rows_in(tmp_path)) == 3


def test_many_queries_at_once_all_get_their_turn(tmp_path: Path) -> None:
    def run(query: str) -> list[bool]:
        return [commit(tmp_path, numbered(version, query)) for version in range(5)]

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(run, "abcdef")) == [[True] * 5] * 6
    assert len(rows_in(tmp_path)) == 6 * 5 * 3
    assert log_entries(tmp_path) == 30


def test_repeated_conflicts_end_in_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tmp_path, numbered(0))
    monkeypatch.setattr(commit_module, "_FIRST_BACKOFF_S", 0)
    number = iter(range(1000))

    def set_a_property() -> None:
        table = DeltaTable(tmp_path)
        table.alter.set_table_properties({f"custom.{next(number)}": "x"}, raise_if_not_exists=False)

    interrupt(monkeypatch, *[set_a_property] * commit_module._TRIES)
    with pytest.raises(ClientError, match=r"rejected the commit: .*run it again"):
        commit(tmp_path, numbered(1))
    assert len(rows_in(tmp_path)) == 3


def test_a_name_that_another_query_has_counted_under_is_refused(tmp_path: Path) -> None:
    """Else a query with a new checkpoint would lose its first batches without a word."""
    for version in (0, 1):
        assert commit(tmp_path, numbered(version, "orders", "first"))
    assert not commit(tmp_path, numbered(1, "orders", "first"))
    with pytest.raises(ClientError, match="'orders' was used by another query up to batch 1"):
        commit(tmp_path, numbered(0, "orders", "second"))
    assert commit(tmp_path, numbered(2, "orders", "second")), "a number that is new is no danger"
    assert len(rows_in(tmp_path)) == 9


def test_only_named_files_are_in_the_table(tmp_path: Path) -> None:
    orphans = written(tmp_path, ROWS)
    commit(tmp_path, numbered(0))
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    assert len(rows_in(tmp_path)) == 3
    assert orphans[0].path not in str(DeltaTable(tmp_path).file_uris())


def test_a_file_that_the_driver_does_not_see_is_refused(tmp_path: Path) -> None:
    files = written(tmp_path, ROWS)
    (tmp_path / files[0].path).unlink()
    with pytest.raises(ClientError, match="the driver does not see it there; give a path on a file system"):
        commit(tmp_path, numbered(0), files=files)
    assert not (tmp_path / "_delta_log").exists()


def test_complete_results_replace_each_other_once(tmp_path: Path) -> None:
    for version in (0, 1, 1):
        commit(tmp_path, numbered(version), overwrite=True)
    assert rows_in(tmp_path) == ROWS.to_pylist()
    commit(tmp_path, numbered(2), files=[], overwrite=True)
    assert rows_in(tmp_path) == []
    assert log_entries(tmp_path) == 3


def test_new_columns_need_to_be_allowed(tmp_path: Path) -> None:
    commit(tmp_path, numbered(0))
    wider = ROWS.append_column("more", pa.array([1.5, 2.5, None]))
    columns = {**COLUMNS, "more": "double"}
    with pytest.raises(ClientError, match=r"has no column 'more'; set .*mergeSchema"):
        commit(tmp_path, numbered(1), rows=wider, columns=columns)
    assert commit(tmp_path, numbered(1), rows=wider, columns=columns, mergeSchema="true")
    assert commit(tmp_path, numbered(2), rows=ROWS.select(["number"]), columns={"number": "long"})
    found = rows_in(tmp_path)
    assert sorted(str(row["more"]) for row in found) == ["1.5", "2.5", *["None"] * 7]
    assert not commit(tmp_path, numbered(2), rows=wider, columns=columns, mergeSchema="true")


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"number": "string", "name": "string"}, {}, "'number' is string, but long in the table; cast it"),
        ({"NUMBER": "long", "name": "string"}, {}, "'NUMBER' is written 'number' in the table"),
        (COLUMNS, {"partitionBy": "name"}, "is not partitioned, the rows are partitioned by name; leave out"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    tmp_path: Path, columns: dict[str, str], options: dict[str, str], said: str
) -> None:
    commit(tmp_path, numbered(0))
    with pytest.raises(ClientError, match=said):
        commit(tmp_path, numbered(1), columns=columns, files=[], **options)


def test_the_partitions_of_the_table_count(tmp_path: Path) -> None:
    commit(tmp_path, numbered(0), partitionBy="name")
    with pytest.raises(ClientError, match=r'partitioned by name, .* add .option\("partitionBy", "name"\)'):
        commit(tmp_path, numbered(1))
    found = rows_in(tmp_path)
    assert sorted((row["number"], row["name"]) for row in found) == [(1, "one"), (2, None), (3, "three")]


def test_nulls_in_a_column_that_has_none_are_refused(tmp_path: Path) -> None:
    strict = pa.schema([pa.field("number", pa.int64()), pa.field("name", pa.string(), nullable=False)])
    DeltaTable.create(tmp_path, strict)
    with pytest.raises(ClientError, match="'name' is null in some rows"):
        commit(tmp_path, numbered(0))
    with pytest.raises(ClientError, match="'name' is null in some rows"):
        commit(tmp_path, numbered(0), rows=ROWS.select(["number"]), columns={"number": "long"})
    assert commit(tmp_path, numbered(0), rows=ROWS.slice(0, 1))


def test_a_table_with_constraints_is_refused_by_name(tmp_path: Path) -> None:
    commit(tmp_path, numbered(0))
    DeltaTable(tmp_path).alter.add_constraint({"positive": "number > 0"})
    with pytest.raises(ClientError, match="needs unsupported writer features: checkConstraints"):
        commit(tmp_path, numbered(1))


def test_a_table_to_append_to_is_not_replaced(tmp_path: Path) -> None:
    commit(tmp_path, numbered(0))
    DeltaTable(tmp_path).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(ClientError, match=r"is append-only: delta.appendOnly is true"):
        commit(tmp_path, numbered(1), overwrite=True)
    assert commit(tmp_path, numbered(1))


def test_a_damaged_transaction_log_is_an_error(tmp_path: Path) -> None:
    commit(tmp_path, numbered(0))
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text("{not JSON")
    with pytest.raises(
        ClientError, match=r"cannot be opened: .*see whether the files in .*_delta_log are whole"
    ):
        commit(tmp_path, numbered(1))


def test_the_transaction_log_names_the_query_of_a_batch(tmp_path: Path) -> None:
    commit(tmp_path, numbered(7))
    entry = json.loads((tmp_path / "_delta_log" / f"{0:020}.json").read_text().splitlines()[0])
    assert (entry["commitInfo"]["appId"], entry["commitInfo"]["batchId"]) == ("query", 7)


def test_a_replay_is_known_after_the_log_was_cut(tmp_path: Path) -> None:
    """Long queries: checkpoints of the log hold the last batch's number when its entry is gone."""
    for version in range(3):
        commit(tmp_path, numbered(version))
    assert commit(tmp_path, numbered(0, "other"))
    DeltaTable(tmp_path).create_checkpoint()
    for version in range(3):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    assert not commit(tmp_path, numbered(2))
    assert commit(tmp_path, numbered(3))
    assert len(rows_in(tmp_path)) == 15


def test_drivers_in_processes_of_their_own_write_every_batch_once(tmp_path: Path) -> None:
    """Three that all run the same twelve batches, as after a network split that left old drivers alive."""
    spawn = multiprocessing.get_context("spawn")
    drivers = [spawn.Process(target=_run_batches, args=(tmp_path,)) for _ in range(3)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(120)
    assert all(driver.exitcode == 0 for driver in drivers)
    assert len(rows_in(tmp_path)) == 12 * 3
    assert DeltaTable(tmp_path).transaction_version("query") == 11


def _run_batches(path: Path) -> None:
    """Until another driver is ahead: Spark ends a query whose sink raises an error."""
    for number in range(12):
        try:
            commit(path, numbered(number))
        except ClientError as error:
            if f"goes on with batch {number}" in str(error):
                return
            raise


def test_every_commit_keeps_the_users_text(tmp_path: Path) -> None:
    commit(tmp_path, numbered(0), userMetadata="made by orders")
    commit(tmp_path, numbered(1), userMetadata="made by orders, again")
    commit(tmp_path, numbered(2))
    commit(tmp_path, userMetadata="by hand")
    assert [each.user_metadata for each in recorded_batches(DeltaTable(tmp_path))] == [
        *(None, "made by orders, again", "made by orders")
    ]
    assert DeltaTable(tmp_path).history(1)[0]["userMetadata"] == "by hand"
