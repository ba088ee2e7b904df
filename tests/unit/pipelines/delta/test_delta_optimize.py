# SPDX-License-Identifier: Apache-2.0
"""OptimizeResult of real tables: rows stay, files become fewer, and only what nobody can need is removed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from headrace.cli.main import run
from headrace.client.errors import ClientError
from headrace.pipelines.definitions.keys import parse_size
from headrace.pipelines.delta.optimize import optimize_table

DAY_S = 86_400
BATCHES = 6


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six small commits over two partitions, and files that no commit names: an old one and a fresh one."""
    path = tmp_path / "orders"
    for number in range(BATCHES):
        write_deltalake(
            path,
            pa.table({"number": [number], "side": [f"a/b {number % 2}"]}),
            mode="append",
            partition_by=["side"],
            commit_properties=CommitProperties(app_transactions=[Transaction("query", number)]),
        )
    for name, age_days in (("old.parquet", 8), ("fresh.parquet", 6)):
        (path / name).write_bytes(b"x" * 100)
        then = time.time() - age_days * DAY_S
        os.utime(path / name, (then, then))
    return path


def numbers(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["number"].to_pylist())


def test_small_files_are_merged_and_orphans_removed(table: Path) -> None:
    care = optimize_table(table)
    assert (care.files_before, care.small_files, care.files_after) == (BATCHES, BATCHES, 2)
    assert (care.orphans, care.orphan_bytes) == (1, 100)
    assert not (table / "old.parquet").exists()
    assert (table / "fresh.parquet").exists(), "its attempt may still commit it"
    assert numbers(table) == list(range(BATCHES))
    assert DeltaTable(table).transaction_version("query") == BATCHES - 1, "a replay is still known"
    again = optimize_table(table)
    assert (again.small_files, again.files_after, again.orphans) == (0, 2, 0)


def test_a_dry_run_changes_nothing(table: Path) -> None:
    version = DeltaTable(table).version()
    care = optimize_table(table, dry_run=True)
    assert (care.small_files, care.files_after, care.orphans) == (BATCHES, BATCHES, 1)
    assert (table / "old.parquet").exists()
    assert DeltaTable(table).version() == version


def test_less_than_the_table_retains_needs_force(table: Path) -> None:
    with pytest.raises(ClientError, match=r"keeps removed files longer than 24 h: .*add --force"):
        optimize_table(table, retain_hours=24)
    assert optimize_table(table, retain_hours=24, force=True).orphans == 2
    assert numbers(table) == list(range(BATCHES))


def interrupt(monkeypatch: pytest.MonkeyPatch, between: Callable[[], Any], times: int) -> None:
    """Something happens after files were merged and before the commit that names them, so many times."""
    really_commit = DeltaTable.create_write_transaction
    left = [times]

    def commit(table: DeltaTable, *arguments: Any, **options: Any) -> None:
        if left[0]:
            left[0] -= 1
            with monkeypatch.context() as undone:
                undone.setattr(DeltaTable, "create_write_transaction", really_commit)
                between()
        really_commit(table, *arguments, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)


@pytest.mark.parametrize("by_the_library", [True, False])
def test_merging_twice_at_once_does_not_double_rows(
    table: Path, monkeypatch: pytest.MonkeyPatch, by_the_library: bool
) -> None:
    """The library alone would: it takes the second merge of the same files."""
    other = DeltaTable(table).optimize.compact if by_the_library else partial(optimize_table, table)
    interrupt(monkeypatch, other, 1)
    with pytest.raises(
        ClientError, match=r"others changed the files .* nothing was changed here; run it again"
    ):
        optimize_table(table)
    assert numbers(table) == list(range(BATCHES))
    assert len(DeltaTable(table).file_uris()) == 2


def test_rows_that_were_replaced_meanwhile_do_not_come_back(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = pa.table({"number": [100], "side": ["a/b 0"]})
    interrupt(monkeypatch, lambda: write_deltalake(table, new, mode="overwrite"), 1)
    with pytest.raises(ClientError, match="others changed the files"):
        optimize_table(table)
    assert numbers(table) == [100]


def test_a_stream_that_commits_meanwhile_is_no_hindrance(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = pa.table({"number": [100], "side": ["a/b 0"]})
    interrupt(monkeypatch, lambda: write_deltalake(table, more, mode="append"), 5)
    assert optimize_table(table).files_after == 2 + 5
    assert numbers(table) == [*range(BATCHES), *[100] * 5]


def test_files_are_merged_up_to_their_size(table: Path) -> None:
    sizes = DeltaTable(table).get_add_actions()["size_bytes"].to_pylist()
    care = optimize_table(table, target_size=2 * min(sizes))
    assert care.files_after == 4, "of three files in each partition two make a large one"
    assert numbers(table) == list(range(BATCHES))


def test_columns_that_came_later_are_kept(table: Path) -> None:
    more = pa.table({"number": [100], "side": ["a/b 0"], "more": [1.5]})
    write_deltalake(table, more, mode="append", schema_mode="merge")
    before = DeltaTable(table).to_pyarrow_table().sort_by("number").to_pylist()
    optimize_table(table)
    assert DeltaTable(table).to_pyarrow_table().sort_by("number").to_pylist() == before


def test_old_versions_are_readable_within_the_time_retained(table: Path) -> None:
    version = DeltaTable(table).version()
    optimize_table(table)
    before = DeltaTable(table, version=version)
    assert before.to_pyarrow_table().num_rows == BATCHES


def test_a_table_to_append_to_may_be_optimized(table: Path) -> None:
    DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "true"})
    assert optimize_table(table).files_after == 2


def test_a_table_of_unknown_features_is_left_alone(table: Path) -> None:
    DeltaTable(table).alter.add_constraint({"positive": "number >= 0"})
    with pytest.raises(ClientError, match="needs unsupported writer features: checkConstraints"):
        optimize_table(table)


def test_the_command_reports_what_it_did(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "optimize", str(table), "--dry-run", "--json"]) == 0
    would = json.loads(capsys.readouterr().out)
    assert (would["dry_run"], would["small_files"], would["orphans"]) == (True, BATCHES, 1)
    assert run(["pipeline", "optimize", str(table), "--target-size", "1m"]) == 0
    assert capsys.readouterr().out == (
        "Merged small files: 6 files before, 2 now.\nRemoved 1 unreferenced files (100 B).\n"
    )
    assert run(["pipeline", "optimize", str(table)]) == 0
    assert capsys.readouterr().out.startswith("Nothing to merge among 2 files.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nowhere"], "there is no Delta table in /nowhere; check the path"),
        (["/nowhere", "--target-size", "big"], "'big' is not a size: use 64m or 1g"),
        (["/nowhere", "--retain", "soon"], "'soon' is not a duration"),
        (["hdfs://host/table"], "only file systems and object stores are supported, not hdfs:"),
    ],
)
def test_tables_that_cannot_be_optimized_are_errors(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "optimize", *arguments]) != 0
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1024", 1024),
        ("64k", 65536),
        ("128 MiB", 128 << 20),
        ("1GB", 1 << 30),
        ("0", None),
        ("big", None),
        ("-1", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_size(text) == size
