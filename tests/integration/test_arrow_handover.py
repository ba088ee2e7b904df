# SPDX-License-Identifier: Apache-2.0
"""A selection in a notebook: handed over to pandas, polars and DuckDB, shown, watched while it is read."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.arrow.read import selection as selection_module
from headrace.client.errors import ClientError

ROWS: list[Any] = [
    {"id": number, "item": {"price": number / 2, "name": f"n{number % 3}"}} for number in range(90)
]


@pytest.fixture(scope="module")
def orders(bootstrap: str) -> Any:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, 3, 1) for name in ("handed-over", "again")]).values():
        created.result(20)
    headrace.write(
        pa.Table.from_pylist(ROWS),
        "handed-over",
        bootstrap=bootstrap,
        key="id",
        value=["id", "item"],
        partitioner="round_robin",
    )
    return headrace.topic("handed-over", bootstrap=bootstrap).typed(key="int64", value="json")


def test_pandas_gets_flat_columns(orders: Any) -> None:
    frame = orders.select("key", "value", "timestamp").to_pandas().sort_values("key")
    assert isinstance(frame, pd.DataFrame)
    assert list(frame) == ["key", "value.id", "value.item.price", "value.item.name", "timestamp"]
    assert frame["value.item.price"].sum() == sum(row["item"]["price"] for row in ROWS)
    assert str(frame["timestamp"].dtype) == "datetime64[ms, UTC]"


def test_polars_keeps_structs(orders: Any) -> None:
    for frame in (orders.to_polars(), pl.DataFrame(orders), pl.from_arrow(orders.to_reader())):
        assert frame.shape == (90, 8)
        found = frame.sort("key").get_column("value").to_list()
        assert found == ROWS


def test_duckdb_queries_a_selection_and_a_reader(orders: Any) -> None:
    expected = [("n0", 30), ("n1", 30), ("n2", 30)]
    query = "select value.item.name, count(*) from {} group by 1 order by 1"
    relation = orders.to_duckdb()
    assert relation.query("records", query.format("records")).fetchall() == expected
    reader = orders.to_reader()
    with duckdb.connect() as connection:
        connection.register("incoming", reader)
        assert connection.sql(query.format("incoming")).fetchall() == expected
        assert orders.to_duckdb(connection).shape == (90, 8)


def test_other_libraries_read_the_arrow_stream_interface(orders: Any) -> None:
    table = pa.table(orders)
    assert sorted(table["value"].to_pylist(), key=lambda row: row["id"]) == ROWS
    again = pa.RecordBatchReader.from_stream(orders.flat()).read_all()
    assert "value.item.name" in again.column_names
    polars = pl.DataFrame(orders).select("key", pl.col("value").struct.field("id"))
    assert headrace.write(polars, "again", bootstrap=orders.bootstrap, key="key", value="id").records == 90
    back = headrace.topic("again", bootstrap=orders.bootstrap).typed(value="int64").to_arrow()
    assert sorted(back["value"].to_pylist()) == list(range(90))


def test_columns_are_handed_over_without_a_copy(orders: Any) -> None:
    table = orders.select("offset").to_arrow().combine_chunks()
    series = pl.from_arrow(table).get_column("offset")
    address = table["offset"].chunk(0).buffers()[1].address
    assert series.to_arrow().buffers()[1].address == address


def test_a_notebook_shows_what_a_selection_holds(bootstrap: str, orders: Any) -> None:
    shown = orders.between(start=10, end=20)._repr_html_()
    assert "headrace.topic(&#x27;handed-over&#x27;" in shown
    assert "<tr><td>1</td><td>10</td><td>20</td><td>10</td></tr>" in shown
    assert "<th>all</th><td></td><td></td><td>30</td>" in shown
    assert [tuple(each) for each in orders.between(end=5).extent()] == [(0, 0, 5), (1, 0, 5), (2, 0, 5)]
    missing = headrace.topic("missing", bootstrap=bootstrap)._repr_html_()
    assert "<p>topic &#x27;missing&#x27; does not exist; list them: headrace topics list</p>" in missing


def test_secrets_are_not_shown(orders: Any) -> None:
    from headrace.client.sasl import Plain

    security = headrace.Security(sasl=Plain(user="ann", password="s3cret"))
    assert "s3cret" not in repr(headrace.topic("orders", security=security))


def test_a_library_that_is_missing_is_named(orders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ClientError, match="polars is not installed; pip install polars"):
        orders.to_polars()
    assert selection_module._needs("duckdb") is duckdb


READ = "import headrace; headrace.read('handed-over', bootstrap={!r}, progress={}).read_all()"
WRITE = "import headrace, pyarrow as pa; headrace.write(pa.table({{'value': ['x'] * 9}}), 'again', bootstrap={!r}, progress={})"  # noqa: E501


def on_a_terminal(program: str) -> str:
    """What the program shows on one."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen([sys.executable, "-c", program], stderr=terminal, env=environment) as process:
        os.close(terminal)
        shown = b""
        try:
            while chunk := os.read(controller, 4096):
                shown += chunk
        except OSError:  # Linux says so when the other end is closed
            pass
        os.close(controller)
        assert process.wait(60) == 0, shown
    return shown.decode()


@pytest.mark.parametrize(("program", "what"), [(READ, "reading handed-over"), (WRITE, "writing again")])
def test_progress_is_shown_when_asked_for(bootstrap: str, orders: Any, program: str, what: str) -> None:
    shown = on_a_terminal(program.format(bootstrap, True))
    assert what in shown
    assert "records" in shown


def test_progress_can_be_switched_off(bootstrap: str, orders: Any) -> None:
    assert on_a_terminal(READ.format(bootstrap, False)) == ""


def test_values_are_as_python_reads_them(orders: Any) -> None:
    raw = headrace.topic("handed-over", bootstrap=orders.bootstrap).between(end=5).to_arrow()
    typed = orders.between(end=5).to_arrow()
    assert [json.loads(data) for data in raw["value"].to_pylist()] == typed["value"].to_pylist()
