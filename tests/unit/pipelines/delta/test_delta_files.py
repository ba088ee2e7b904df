# SPDX-License-Identifier: Apache-2.0
"""Files of one task: their names, partitions, sizes and statistics; and nothing left of a failed task."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.pipelines.delta import files as files_module
from headrace.pipelines.delta.files import TaskFiles, WrittenFile
from headrace.pipelines.delta.partitions import folder

UTC = datetime.UTC


def write(
    root: Path, rows: pa.Table, partition_by: tuple[str, ...] = (), size: int = 1 << 30
) -> list[WrittenFile]:
    return TaskFiles(root, partition_by, task=7, target_size=size).write(rows.to_batches())


def statistics(root: Path, **columns: Any) -> dict[str, Any]:
    (file,) = write(root, pa.table(columns))
    found: dict[str, Any] = json.loads(file.statistics)
    return found


def test_attempts_never_share_a_name(tmp_path: Path) -> None:
    rows = pa.table({"x": [1]})
    first, second = write(tmp_path, rows)[0], write(tmp_path, rows)[0]
    assert first.path.startswith("part-00007-")
    assert first.path != second.path
    assert first.size == (tmp_path / first.path).stat().st_size


def test_no_rows_leave_no_file(tmp_path: Path) -> None:
    assert write(tmp_path / "table", pa.table({"x": pa.array([], pa.int64())})) == []
    assert not (tmp_path / "table").exists()


def test_files_end_at_their_size(tmp_path: Path) -> None:
    noise = [os.urandom(1000) for _ in range(1000)]
    batches = pa.table({"x": noise}).to_batches(max_chunksize=50)
    written = TaskFiles(tmp_path, (), task=0, target_size=200_000).write(batches)
    assert len(written) == 5
    assert all(200_000 <= file.size < 300_000 for file in written)
    assert sum(file.rows for file in written) == 1000
    read = [value for file in written for value in pq.read_table(tmp_path / file.path)["x"].to_pylist()]
    assert read == noise, "in their order"


def test_every_partition_has_its_own_files(tmp_path: Path) -> None:
    days = [datetime.date(2026, 11, 15), None, datetime.date(2026, 11, 16)] * 2
    rows = pa.table({"day": days, "n": [1, 2, 3, 4, 5, 6], "who": ["a/b", "ü", "", None, "ü", "a/b"]})
    written = write(tmp_path, rows, ("day", "who"))
    found = {
        (file.partition_values["day"], file.partition_values["who"]): (
            pq.ParquetFile(tmp_path / file.path).read()["n"].to_pylist()
        )
        for file in written
    }
    assert found == {
        ("2026-11-15", "a/b"): [1],
        (None, "ü"): [2, 5],
        ("2026-11-16", None): [3],
        ("2026-11-15", None): [4],
        ("2026-11-16", "a/b"): [6],
    }
    assert {file.path.rpartition("/")[0] for file in written} >= {
        "day=2026-11-15/who=a%2Fb",
        "day=__HIVE_DEFAULT_PARTITION__/who=ü",
    }
    assert {name for file in written for name in file.with_nulls} == {"day", "who"}


def test_folders_are_named_whatever_the_value() -> None:
    assert folder(["a"], ("true",)) == "a=true"
    assert folder(["a"], ("../x\n\0",)) == "a=..%2Fx%0A%00"
    long, other = folder(["a"], ("é" * 300,)), folder(["a"], ("é" * 299,))
    assert len(long.encode()) <= 200
    assert long != other


def test_many_partitions_keep_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_OPEN_FILES", 5)
    before = len(os.listdir("/proc/self/fd"))
    seen: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(4):
            seen.append(len(os.listdir("/proc/self/fd")))
            yield from pa.table({"p": list(range(40)), "x": ["y" * 2000] * 40}).to_batches()

    written = TaskFiles(tmp_path, ("p",), task=0, target_size=1).write(batches())
    assert max(seen) <= before + 6
    assert sum(file.rows for file in written) == 160


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is written out although no partition has a row group's worth."""
    monkeypatch.setattr(files_module, "_WAITING_BYTES", 10_000)
    rows = pa.table({"p": [0, 1] * 500, "x": ["y" * 100] * 1000})
    written = TaskFiles(tmp_path, ("p",), task=0, target_size=1 << 30)
    written._row_group = 20_000
    found = written.write(rows.to_batches(max_chunksize=200))
    assert len(found) == 2
    assert all(pq.ParquetFile(tmp_path / file.path).num_row_groups > 1 for file in found)


@pytest.mark.parametrize("error", [ValueError("bad row"), KeyboardInterrupt()])
def test_a_task_that_fails_leaves_no_file(tmp_path: Path, error: BaseException) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(5):
            yield from pa.table({"x": [os.urandom(40_000) for _ in range(4)]}).to_batches()
        raise error

    with pytest.raises(type(error)):
        TaskFiles(tmp_path, (), task=0, target_size=100_000).write(batches())
    assert list(tmp_path.iterdir()) == []


def test_files_carry_no_zone_of_a_session(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 11, 15, 12, tzinfo=UTC)
    (file,) = write(tmp_path, pa.table({"t": pa.array([moment], pa.timestamp("us", "Europe/Berlin"))}))
    assert pq.read_schema(tmp_path / file.path).field("t").type == pa.timestamp("us", "UTC")


def test_bounds_of_each_type(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=UTC)
    found = statistics(
        tmp_path,
        n=pa.array([3, None, -1], pa.int32()),
        text=["b", "ä", None],
        day=[moment.date()] * 3,
        local=pa.array([moment.replace(tzinfo=None)] * 3, pa.timestamp("us")),
        time=pa.array([moment] * 3, pa.timestamp("us", "Asia/Tokyo")),
        price=pa.array([Decimal("1.10"), Decimal("-2.50"), None], pa.decimal128(10, 2)),
        half=[0.5, -0.25, None],
        flag=[True, False, None],
        raw=[b"a", b"b", None],
        nothing=pa.array([None] * 3, pa.int64()),
        nested=[{"x": 1, "y": [1]}, None, {"x": None, "y": []}],
        pairs=pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        after=[7, 8, 9],
    )
    assert found["numRecords"] == 3
    assert found["minValues"] == {
        "n": -1, "text": "b", "day": "2026-11-15", "local": "2026-11-15T12:00:00.123456",
        "time": "2026-11-15T12:00:00.123456Z", "price": -2.5, "half": -0.25, "flag": False, "after": 7,
    }  # fmt: skip
    greatest = found["maxValues"]
    assert (greatest["text"], greatest["price"], greatest["flag"], greatest["after"]) == ("ä", 1.1, True, 9)
    assert (found["nullCount"]["nothing"], found["nullCount"]["raw"], found["nullCount"]["n"]) == (3, 1, 1)
    assert not {"pairs", "nested"} & set(found["nullCount"])


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_without_a_place_in_the_order_takes_all_bounds_away(tmp_path: Path, number: float) -> None:
    """Readers would take a missing bound beside others for a null, and lose the rows."""
    found = statistics(tmp_path, x=[1.0, number], n=[1, 2])
    assert found == {"numRecords": 2, "nullCount": {"x": 0, "n": 0}}


def test_decimals_keep_their_digits(tmp_path: Path) -> None:
    exact = Decimal("123456789.12345678901234567890")
    (file,) = write(tmp_path, pa.table({"x": pa.array([exact], pa.decimal128(38, 20))}))
    assert json.loads(file.statistics, parse_float=Decimal)["minValues"]["x"] == exact


def test_long_texts_are_cut_on_the_safe_side(tmp_path: Path) -> None:
    found = statistics(tmp_path, x=["a" * 40, "b" * 40])
    assert found["minValues"]["x"] == "a" * 32 <= "a" * 40
    assert found["maxValues"]["x"] == "b" * 32 + "\U0010ffff" > "b" * 40
    greatest = "b" * 32 + "\U0010ffff" * 2
    assert statistics(tmp_path, x=["a", greatest])["maxValues"]["x"] == greatest
    found = statistics(tmp_path, x=["b" * 10_000], n=[1])
    assert found["minValues"] == {"x": "", "n": 1}, "Parquet keeps no bounds of it, and a null would mislead"
    assert found["maxValues"]["x"] > "b" * 10_000
