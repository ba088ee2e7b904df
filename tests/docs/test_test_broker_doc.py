# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/test-broker.md pass as tests, with the fixtures of the plugin and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from headrace.client.errors import ClientError
from headrace.java import find_java
from headrace.testing import Broker, pytest_plugin
from tests.harness.left_out import leave_out

TEXT = (Path(__file__).parents[2] / "docs/test-broker.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


SPARK = "def test_spark("


def run_examples(examples: list[str], folder: Path) -> str:
    (folder / "test_examples.py").write_text("\n\n".join(examples))
    plugins = ["-p", "headrace.testing.pytest_plugin", "-p", "xdist", "-n", "2"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, str(folder)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_examples_pass(tmp_path: Path) -> None:
    examples = [example for example in EXAMPLES if SPARK not in example]
    count = sum(example.count("def test_") for example in examples)
    assert f"{count} passed" in run_examples(examples, tmp_path)


def test_the_spark_example_passes(tmp_path: Path) -> None:
    try:
        find_java()
    except ClientError as error:
        leave_out("Spark", str(error))
    assert "1 passed" in run_examples([example for example in EXAMPLES if SPARK in example], tmp_path)


def test_every_fixture_is_in_the_table() -> None:
    fixtures = {name for name in vars(pytest_plugin) if name.startswith("kafka")}
    assert fixtures == set(re.findall(r"^\| `(kafka\w*)` \|", TEXT, flags=re.MULTILINE))


def test_every_method_is_explained() -> None:
    names = [name for name in vars(Broker) if not name.startswith("_")]
    assert [name for name in names if not re.search(rf"\b{name}\b", TEXT)] == []
