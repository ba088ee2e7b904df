# SPDX-License-Identifier: Apache-2.0
"""The files of a starting table: which a batch reads, as which columns, and the place in a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from headrace.client.errors import ClientError
from pyspark_headrace.columns import ColumnFormat, projection
from pyspark_headrace.options import read_settings
from pyspark_headrace.reading import table_files
from pyspark_headrace.reading.offsets import read_document
from pyspark_headrace.reading.table_files import TableFiles, read_piece
from pyspark_headrace.reading.table_position import (
    TablePosition,
    read_position,
    topic_document,
    with_position,
)

TOPIC = {"query": "q", "topics": {}, "version": 1}


OFFSET = {"offset": LongType()}


def projected(columns: dict[str, DataType], **formats: str) -> Any:
    named = {name: ColumnFormat(name=form) for name, form in formats.items()}
    return projection(StructType([StructField(name, kind) for name, kind in columns.items()]), named)


@pytest.fixture
def table(tmp_path: Path) -> TableFiles:
    """Three files of two rows each."""
    for number in range(3):
        columns = {
            "value": pa.array([b"%d" % number, None], pa.binary()),
            "partition": pa.array([0, 0], pa.int32()),
            "offset": [2 * number, 2 * number + 1],
            "date": [f"2026-01-0{number + 1}"] * 2,
        }
        write_deltalake(tmp_path, pa.table(columns), mode="append", partition_by=["date"])
    return TableFiles.newest(str(tmp_path))


def test_limits_hold_by_file_and_every_batch_has_one(table: TableFiles) -> None:
    size = table.files[0].size
    for limits, ends in (
        ({"max_rows": 1}, [1, 2, 3]),
        ({"max_rows": 3}, [2, 3]),
        ({"max_bytes": size + 1}, [2, 3]),
        ({}, [3]),
    ):
        found, first = [], 0
        while first < len(table.files):
            first = table.after(first, **{"max_rows": None, "max_bytes": None, **limits})
            found.append(first)
        assert found == ends


def test_rows_have_the_columns_of_a_topic(table: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = projected({"value": StringType(), **OFFSET, "partition": IntegerType()})
    table.check_columns(wanted)
    pieces = table.pieces(1, 3)
    assert len(pieces) == 1
    rows = [row for batch in read_piece(pieces[0], wanted) for row in batch.to_pylist()]
    assert rows[0] == {"value": "1", "offset": 2, "partition": 0}
    assert [row["offset"] for row in rows] == [2, 3, 4, 5]
    monkeypatch.setattr(table_files, "_TASK_BYTES", 1)
    assert len(table.pieces(0, 3)) == 3


@pytest.mark.parametrize(
    ("columns", "formats", "message"),
    [
        (
            {"timestampType": IntegerType()},
            {},
            "no column 'timestampType', which the query reads",
        ),
        ({"value": StructType()}, {"value": "json"}, "value=json is not decoded from the files"),
    ],
)
def test_columns_that_the_table_cannot_give(
    table: TableFiles, columns: dict[str, DataType], formats: dict[str, str], message: str
) -> None:
    with pytest.raises(ClientError, match=message):
        table.check_columns(projected(columns, **formats))


def test_a_table_of_typed_values_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"value": [1.5], "customer": ["ann"]}))
    with pytest.raises(ClientError, match=r"column 'value' of the table .* is double: a stream starts from"):
        TableFiles.newest(str(tmp_path)).check_columns(projected({"value": BinaryType()}))


def test_the_version_of_the_checkpoint_is_read_and_no_other_table(table: TableFiles, tmp_path: Path) -> None:
    position = TablePosition(id=table.id, version=table.version, next=1)
    DeltaTable(tmp_path).optimize.compact()
    assert TableFiles.at(str(tmp_path), position).files == table.files
    other = tmp_path / "other"
    for _ in range(4):
        write_deltalake(other, pa.table({"value": [b"x"]}), mode="append")
    with pytest.raises(ClientError, match="is another one than that with which the query started"):
        TableFiles.at(str(other), position)


def test_files_that_are_gone_are_named_if_they_were_not_read(table: TableFiles, tmp_path: Path) -> None:
    (tmp_path / table.files[0].path).unlink()
    assert table.pieces(1, 3)
    with pytest.raises(ClientError, match=r"needs the file date=2026-01-01.*, which was removed"):
        table.pieces(0, 1)
    piece = table.pieces(1, 2)[0]
    (tmp_path / table.files[1].path).unlink()
    with pytest.raises(ClientError, match="was removed before it was read") as raised:
        list(read_piece(piece, projected(OFFSET)))
    assert raised.value.code == "DATA_LOSS"


def test_a_place_in_the_files_comes_back_and_earlier_releases_refuse_it() -> None:
    position = TablePosition(id="t", version=3, next=2)
    document = json.loads(json.dumps(with_position(TOPIC, position)))
    assert document["version"] == 2
    assert read_position(document) == position
    assert topic_document(document) == TOPIC
    assert read_position(TOPIC) is None
    with pytest.raises(ClientError, match="in the middle of the files of the table"):
        read_document(document)


@pytest.mark.parametrize(
    "damage",
    [{"version": 1}, {"table": {}}, {"table": None}, {"table": {"id": "t", "version": 1, "next": "?"}}],
)
def test_other_documents_are_refused(damage: dict[str, Any]) -> None:
    document = {**with_position(TOPIC, TablePosition(id="t", version=3, next=2)), **damage}
    with pytest.raises(ClientError, match="no offsets of this source"):
        read_position(document)


def test_options_that_do_not_go_together() -> None:
    options = {"bootstrap": "127.0.0.1:1", "subscribe": "orders", "startingTable": "file:///data/orders"}
    assert read_settings(options, streaming=True).starting_table == "/data/orders"
    with pytest.raises(ClientError, match="'startingTable' and 'startingOffsets' are both set"):
        read_settings({**options, "startingOffsets": "latest"}, streaming=True)
    with pytest.raises(ClientError, match="did you mean 'startingTable'"):
        read_settings({**options, "startingTabel": "/data"}, streaming=True)
