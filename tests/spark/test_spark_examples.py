# SPDX-License-Identifier: Apache-2.0
"""The projects in examples/pipelines do what they say, with a Spark of their own and on Spark Connect.

What they write is held against what a client wrote before. On Connect they run as a user starts them. A
declarative pipeline always runs on Connect: Spark's command starts the server.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import NewTopic
from deltalake import DeltaTable

import headrace
from headrace.client.tools.groups import Groups
from tests.harness.live.committed import wait_for_markers
from tests.harness.live.node import NodeProcess
from tests.spark.connect_server import connect_server, need_connect
from tests.spark.spark_lab import Broker

EXAMPLES = Path(__file__).parents[2] / "examples/pipelines"
TIMEOUT_S = 240
CLASSIC, CONNECT = "classic", "connect"

Run = Callable[[str, Broker], None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A node of its own, since the examples name their topics."""
    with NodeProcess(tmp_path / "node") as node:
        yield Broker(node, 0)


@pytest.fixture(scope="module")
def server(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server, shared by all examples."""
    need_connect()
    with connect_server(tmp_path_factory.mktemp("connect"), java_home) as address:
        yield address


@pytest.fixture(params=[CLASSIC, CONNECT])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(way: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Runs an example over what there is; its tables and checkpoints are in the folder of the test."""
    if way == CONNECT:
        address = request.getfixturevalue("server")
        yield lambda example, broker: on_connect(example, broker, tmp_path, address)
        return
    spark = request.getfixturevalue("spark")
    shuffles = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")  # as in the example's own session
    yield lambda example, broker: load(example).run(spark, broker.bootstrap, str(tmp_path), once=True)
    spark.conf.set("spark.sql.shuffle.partitions", shuffles)
    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


def on_connect(example: str, broker: Broker, folder: Path, address: str) -> None:
    """In a process without Java, where every warning is an error."""
    asked = ["--bootstrap", broker.bootstrap, "--folder", str(folder), "--master", address, "--once"]
    status, output = run_whole([sys.executable, str(EXAMPLES / example), *asked], env=client_environment())
    assert status == 0, re.sub(r"^\s+at .*\n", "", output, flags=re.MULTILINE)[-8000:]


def client_environment() -> dict[str, str]:
    return {"PATH": os.defpath, "PYTHONWARNINGS": "error,ignore::ResourceWarning"}


def test_plain_structured_streaming(way: str, run: Run, broker: Broker, tmp_path: Path) -> None:
    made = orders(60)
    create(broker, "orders", "revenue")
    fill(broker, "orders", made)
    fill(broker, "orders", [{**made[0], "at": "2026-01-02T04:00:00Z"}])
    headrace.write(pa.table({"value": ["no order"]}), "orders", bootstrap=broker.bootstrap)
    for _ in range(2 if way == CLASSIC else 1):  # the second run finds nothing new to do
        run("plain/orders.py", broker)
    table = rows_of(tmp_path / "orders")
    assert len(table) == len(made) + 1
    assert sum(row["amount"] for row in table) == sum(order["amount"] for order in made)
    assert [row["bytes"] for row in rows_of(tmp_path / "rejects")] == [b"no order"] * 2, "one by each query"

    minutes = values_in(broker, "revenue")
    assert [each["orders"] for each in minutes] == [10] * 6, "all minutes that are over"
    assert sum(each["revenue"] for each in minutes) == sum(order["amount"] for order in made)
    for group in ("store", "revenue"):
        committed = Groups(broker.bootstrap).committed(group)
        assert sum(committed.values()) == len(made) + 2


def test_sessions_with_state(run: Run, broker: Broker) -> None:
    create(broker, "clicks", "sessions")
    clicks = [("ann", "03:00"), ("ann", "03:04"), ("bob", "03:01"), ("ann", "03:20")]
    fill(broker, "clicks", [{"customer": name, "page": "/", "at": at(time)} for name, time in clicks])
    run("sessions/sessions.py", broker)
    first = {("ann", "03:00", "03:04", 2), ("bob", "03:01", "03:01", 1)}
    assert sessions_in(broker) == first, "the second of ann is open"
    more = [("ann", "03:25"), ("cy", "05:00")]
    fill(broker, "clicks", [{"customer": name, "page": "/", "at": at(time)} for name, time in more])
    run("sessions/sessions.py", broker)
    assert sessions_in(broker) == first | {("ann", "03:20", "03:25", 2)}, "a timer ended it"


def sessions_in(broker: Broker) -> set[tuple[str, str, str, int]]:
    found = values_in(broker, "sessions")
    seen = {(each["customer"], each["began"][11:16], each["ended"][11:16], each["clicks"]) for each in found}
    assert len(seen) == len(found), "each once"
    return seen


def test_a_join_of_two_streams(run: Run, broker: Broker, tmp_path: Path) -> None:
    create(broker, "orders", "payments")

    def order(name: str, time: str) -> None:
        fill(broker, "orders", [{"id": name, "amount": 10.0, "at": at(time)}])

    def pay(name: str, time: str) -> None:
        fill(broker, "payments", [{"order_id": name, "paid": 10.0, "paid_at": at(time)}])

    order("paid", "03:00")
    order("unpaid", "03:05")
    pay("unknown", "03:10")
    pay("paid", "03:10")
    run("joins/settled.py", broker)
    assert settled_in(tmp_path) == [("paid", "03:10")], "a payment of the other may still come"
    order("later", "06:00")
    pay("later", "06:05")
    run("joins/settled.py", broker)
    assert settled_in(tmp_path) == [("later", "06:05"), ("paid", "03:10"), ("unpaid", None)]


def settled_in(folder: Path) -> list[tuple[str, str | None]]:
    found = rows_of(folder / "settled")
    return sorted(
        (row["id"], None if row["paid_at"] is None else row["paid_at"].strftime("%H:%M")) for row in found
    )


def test_each_batch_to_two_places(run: Run, broker: Broker, tmp_path: Path) -> None:
    """The first attempt fails between the two writes, and Spark runs its batch again, before the next one."""
    create(broker, "bookings", "balance-changes")
    fill(broker, "bookings", [{"account": "a", "amount": 5.0}, {"account": "b", "amount": 1.0}] * 3)
    in_the_way = tmp_path / "bookings"
    in_the_way.write_text("a file where the table will be")
    with pytest.raises(Exception, match="bookings"):  # whatever Spark makes of it
        run("foreach_batch/balances.py", broker)
    changes = [{"account": "a", "change": 15.0}, {"account": "b", "change": 3.0}]
    assert changes_in(broker) == changes, "the first write was made"
    in_the_way.unlink()
    fill(broker, "bookings", [{"account": "b", "amount": 2.0}])
    run("foreach_batch/balances.py", broker)
    assert changes_in(broker) == [*changes, {"account": "b", "change": 2.0}]
    assert sorted(row["amount"] for row in rows_of(in_the_way)) == [1.0, 1.0, 1.0, 2.0, 5.0, 5.0, 5.0]


def changes_in(broker: Broker) -> list[dict[str, Any]]:
    found = values_in(broker, "balance-changes")
    return sorted(found, key=lambda each: (-each["change"], each["account"]))


TOTALS = ["c0: 20 orders, 1425.00", "c1: 20 orders, 1475.00", "c2: 20 orders, 1525.00"]


def test_totals_in_a_client(way: str, request: pytest.FixtureRequest, broker: Broker) -> None:
    create(broker, "orders")
    fill(broker, "orders", orders(60))
    if way == CLASSIC:
        found = load("connect/totals.py").totals(request.getfixturevalue("spark"), broker.bootstrap)
        assert [f"{row.customer}: {row.orders} orders, {row.total:.2f}" for row in found.collect()] == TOTALS
        return
    address = request.getfixturevalue("server")
    command = [sys.executable, str(EXAMPLES / "connect/totals.py"), "--bootstrap", broker.bootstrap]
    status, output = run_whole([*command, "--master", address], env=client_environment())
    assert (status, output.splitlines()) == (0, TOTALS)


def test_a_declarative_pipeline(java_home: Path, broker: Broker, tmp_path: Path) -> None:
    need_connect()
    made = orders(60)
    create(broker, "orders", "large-orders")
    fill(broker, "orders", made)
    project = tmp_path / "project"
    shutil.copytree(EXAMPLES / "declarative", project)
    spec = project / "spark-pipeline.yml"
    changed = spec.read_text().replace("127.0.0.1:9092", broker.bootstrap)
    spec.write_text(changed.replace("file:///tmp/orders-pipeline", f"file://{tmp_path}"))
    status, output = run_whole(
        [str(Path(sys.executable).with_name("spark-pipelines")), "--conf", "spark.ui.enabled=false", "run"],
        cwd=project,
        env={**os.environ, "JAVA_HOME": str(java_home), "PYSPARK_PYTHON": sys.executable},
    )
    assert status == 0, output[-4000:]
    stored = pq.read_table(project / "spark-warehouse/orders")
    assert sorted(stored["amount"].to_pylist()) == [order["amount"] for order in made]
    totals = pq.read_table(project / "spark-warehouse/customers").to_pylist()
    assert sum(row["total"] for row in totals) == sum(order["amount"] for order in made)
    large = [each["amount"] for each in values_in(broker, "large-orders")]
    assert sorted(large) == [order["amount"] for order in made if order["amount"] >= 100]


def test_every_example_is_in_the_table() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert {name for name in folders if f"| `{name}/` |" not in readme} == set()


def orders(number: int) -> list[dict[str, Any]]:
    """Ten a minute, by three customers."""
    return [
        {"customer": f"c{each % 3}", "amount": each * 2.5, "at": at(f"03:{each // 10:02d}:{each % 10:02d}")}
        for each in range(number)
    ]


def at(time: str) -> str:
    return f"2026-01-02T{time}Z" if time.count(":") == 2 else f"2026-01-02T{time}:00Z"


def create(broker: Broker, *topics: str) -> None:
    for future in broker.admin.create_topics([NewTopic(name, 2, 1) for name in topics]).values():
        future.result(20)


def fill(broker: Broker, topic: str, values: list[dict[str, Any]]) -> None:
    table = pa.table({"value": [json.dumps(value) for value in values]})
    headrace.write(table, topic, bootstrap=broker.bootstrap)


def values_in(broker: Broker, topic: str) -> list[Any]:
    wait_for_markers(broker.bootstrap, topic)
    read = headrace.read(topic, bootstrap=broker.bootstrap).read_all()
    return [json.loads(value) for value in read["value"].to_pylist()]


def rows_of(table: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
    return rows


def run_whole(command: list[str], **options: Any) -> tuple[int, str]:
    """Ends with all that it started: Spark's command starts a Python, which starts a JVM."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    ) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output


def load(example: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("pipeline_example", EXAMPLES / example)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
