# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/pipelines.md run in one process, without its environment's Python on the path."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

import headrace
from headrace.client.errors import ClientError
from headrace.java import find_java
from headrace.pipelines.definitions.definition_file import pipelines_of
from headrace.pipelines.definitions.definition_keys import KNOWN
from pyspark_headrace.options import READ_NAMES, WRITE_NAMES
from pyspark_headrace_delta.options import NAMES as TABLE_NAMES
from tests.harness.left_out import leave_out
from tests.harness.live.committed import wait_for_markers

TEXT = (Path(__file__).parents[2] / "docs/pipelines.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
ORDERS = 25
TIMEOUT_S = 200


def test_the_examples_run(bootstrap: str, tmp_path: Path) -> None:
    """The session finds Python and Java by itself."""
    try:
        java = find_java()
    except ClientError as error:
        leave_out("Spark", str(error))
    names = ["orders-for-spark", "copies-of-spark", "exact-copies", "counts", "payments", "bad-payments"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(20)
    values = [f"order {number}" for number in range(ORDERS)]
    table = pa.table({"key": ["ann", "bob", "cy", "dee", "eve"] * (ORDERS // 5), "value": values})
    headrace.write(table, "orders-for-spark", bootstrap=bootstrap, key="key")
    payments = pa.table({"value": ['{"customer": "ann", "amount": 2.5}', "?", '{"amount": 4}']})
    headrace.write(payments, "payments", bootstrap=bootstrap)

    environment = {"PATH": f"{java}/bin{os.pathsep}{os.defpath}", "HOME": str(tmp_path)}
    store(bootstrap, tmp_path / "stored", environment)
    script = tmp_path / "examples.py"
    script.write_text("\n".join([f"BOOTSTRAP, FOLDER = {bootstrap!r}, {str(tmp_path)!r}", *EXAMPLES]))
    text = (
        script.read_text().replace('"orders"', '"orders-for-spark"').replace('"copies"', '"copies-of-spark"')
    )
    script.write_text(text)
    ran = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, re.sub(r"^\tat .*\n", "", ran.stderr, flags=re.MULTILINE)[-5000:]
    assert DeltaTable(tmp_path / "table").count() == ORDERS
    watched = ["headrace[orders-for-spark]", "0"]
    assert ran.stdout.split()[-6:] == [str(ORDERS), "6.5", str(ORDERS), *watched, str(ORDERS)]
    assert DeltaTable(tmp_path / "from-history").count() == ORDERS
    wait_for_markers(bootstrap, "copies-of-spark", "exact-copies", "counts")
    copies = headrace.read("copies-of-spark", bootstrap=bootstrap, columns=["value"], value="string")
    assert sorted(copies.read_all()["value"].to_pylist()) == sorted(value.upper() for value in values)
    exact = headrace.read("exact-copies", bootstrap=bootstrap, columns=["value"], value="string")
    assert sorted(exact.read_all()["value"].to_pylist()) == sorted(value.upper() for value in values)
    counts = headrace.read("counts", bootstrap=bootstrap, columns=["value"], value="string")
    assert counts.read_all()["value"].to_pylist() == ["5"] * 5


def store(bootstrap: str, path: Path, environment: dict[str, str]) -> None:
    """The pipeline whose table the examples read, until it has all records."""
    words = ("pipeline", "run", "store", "--topic", "orders-for-spark", "--path", str(path), "--once")
    command = [sys.executable, "-m", "headrace.cli.main", *words, "--bootstrap", bootstrap]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_every_option_is_explained() -> None:
    named = set(re.findall(r"`(\w+)`", TEXT))
    assert {*READ_NAMES, *WRITE_NAMES, *TABLE_NAMES} <= named


def test_the_file_of_pipelines_is_understood_and_every_key_explained() -> None:
    (written,) = re.findall(r"^```toml\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    found = pipelines_of(tomllib.loads(written), "docs/pipelines.md")
    assert [each.name for each in found.pipelines] == ["orders", "revenue"]
    named = set(re.findall(r"`(\w+)`", TEXT))
    assert {key for keys in KNOWN.values() for key in keys} <= named
