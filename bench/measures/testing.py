# SPDX-License-Identifier: Apache-2.0
"""The broker of a test against starting Apache Kafka for it; many tests; what an installation takes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pyarrow as pa

import headrace
from bench.cell import Cell
from bench.installed import installed_python, package_sizes, run_or_explain
from bench.model import KAFKA, OS, Figures
from headrace.testing import Broker

TESTS = 100
PACKAGES = (
    "headrace",
    "confluent-kafka",
    "uvloop",
    "kio",
    "Pygments",
    "pydantic_core",
    "cramjam",
    "pydantic",
)
"""The largest, each with a row of its own."""
_TOPIC = "orders"
_MIB = 1 << 20

_COLD = """
import json, time
started, cpu = time.perf_counter(), time.process_time()
from headrace.testing import Broker
with Broker() as broker:
    broker.create_topic("orders")
    ready = time.perf_counter()
    import headrace, pyarrow
    table = pyarrow.table({"value": ["12.50"]})
    client = time.perf_counter()
    headrace.write(table, "orders", bootstrap=broker.bootstrap)
    ended = time.perf_counter()
    cpu = time.process_time() - cpu
print(json.dumps(
    {"broker_s": ready - started, "pyarrow_s": client - ready, "cold_s": ended - started, "cpu_s": cpu}
))
"""
_TEST = """
def test_{number}(kafka):
    kafka.create_topic("orders")
    headrace.write(TABLE, "orders", bootstrap=kafka.bootstrap)
    assert [record.value for record in kafka.records("orders")] == [b"12.50"]
"""
_TEST_FILE = 'import headrace\nimport pyarrow\n\nTABLE = pyarrow.table({"value": ["12.50"]})\n'


def first_produce(cell: Cell) -> Figures:
    """What a test waits for before it can begin: a broker with a topic, and the first acknowledged record.

    In a process that has all modules loaded, as every test but the first.
    """
    table = pa.table({"value": ["12.50"]})
    started = time.perf_counter()
    with _BROKERS[cell.variant](cell) as bootstrap:
        ready = time.perf_counter()
        headrace.write(table, _TOPIC, bootstrap=bootstrap)
        ended = time.perf_counter()
    return {"ready_ms": (ready - started) * 1000, "first_produce_ms": (ended - started) * 1000}


@contextmanager
def _test_broker(cell: Cell) -> Iterator[str]:
    with Broker() as broker:
        broker.create_topic(_TOPIC)
        yield broker.bootstrap


@contextmanager
def _apache_kafka(cell: Cell) -> Iterator[str]:
    """As a script would start it: format the folder, start, create the topic."""
    prepared = cell.nodes.prepare(cell.variant)
    cell.own_node = node = prepared.launch()
    try:
        cell.create_topic(name=_TOPIC)
        yield node.bootstrap
    finally:
        node.kill()
        cell.own_node = None
        shutil.rmtree(prepared.log_path.parent, ignore_errors=True)


_BROKERS: dict[str, Callable[[Cell], AbstractContextManager[str]]] = {KAFKA: _apache_kafka, OS: _test_broker}


def cold_import(cell: Cell) -> Figures:
    """The same for the first test of a run: a new process, with nothing imported."""
    figures: Figures = json.loads(run_or_explain(_arrow_python(), "-c", _COLD, timeout_s=60))
    return figures


def many_tests(cell: Cell) -> Figures:
    """A test file with 100 tests, each with a broker of its own, from the start of pytest to its end."""
    count = cell.scaled(TESTS)
    folder = cell.nodes.new_folder("tests")
    folder.mkdir(parents=True)
    tests = "".join(_TEST.format(number=number) for number in range(count))
    (folder / "test_orders.py").write_text(_TEST_FILE + tests)
    (folder / "pytest.ini").write_text("[pytest]\n")  # or pytest takes the settings of this tree
    python = _arrow_python()
    started = time.perf_counter()
    printed = run_or_explain(
        python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder), timeout_s=300
    )
    seconds = time.perf_counter() - started
    if f"{count} passed" not in printed:
        raise RuntimeError(f"the tests did not pass:\n{printed[-2000:]}")
    shutil.rmtree(folder)
    return {"tests_s": seconds}


def installed_size(cell: Cell) -> Figures:
    """What `pip install headrace` adds to an empty environment."""
    sizes = package_sizes(installed_python())
    figures = {f"{name}_mib": sizes[name] / _MIB for name in PACKAGES}
    others = sum(size for name, size in sizes.items() if name not in PACKAGES) / _MIB
    return {**figures, "others_mib": others, "whole_mib": sum(sizes.values()) / _MIB}


def _arrow_python() -> str:
    return str(installed_python("arrow", "pytest"))
