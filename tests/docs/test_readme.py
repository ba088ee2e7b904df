# SPDX-License-Identifier: Apache-2.0
"""The README is short and says what to know before installing. test_walk.py follows its commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MOST_BYTES = 9_000
MOST_PICTURE_BYTES = 150_000
FOR_DEVELOPERS = {"bench", "dev", "docs", "fuzz"}
BENCHMARKS = ROOT / "docs" / "benchmarks"
REASONS = {"tables": "arrow.md", "tests": "testing.md", "failover": "cluster.md"}
"""What speaks for it, and the published run that each figure is from."""
TIMEOUT_S = 60


def _section(title: str) -> str:
    assert f"\n## {title}\n" in README
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_it_is_short() -> None:
    assert len(README.encode()) <= MOST_BYTES


def test_its_pictures_exist_and_are_small() -> None:
    """`make recording` and `make pictures` write them."""
    shown = re.findall(r'<img src="([^"]+)"', README)
    assert {"docs/pictures/demo.svg", "docs/pictures/console-cluster.png"} <= set(shown)
    for name in shown:
        assert (ROOT / name).stat().st_size < MOST_PICTURE_BYTES, name


def test_reasons_and_limitations_come_before_the_installation() -> None:
    titles = re.findall(r"^## (.+)$", README, flags=re.MULTILINE)
    assert titles[:3] == ["Why", "Limitations", "Install"]
    assert "docs/pictures/demo.svg" in README.partition("## Why")[0]


@pytest.mark.parametrize("table", REASONS.values(), ids=REASONS.keys())
def test_every_reason_links_to_the_run_of_its_figure(table: str) -> None:
    if not (BENCHMARKS / table).exists():
        pytest.skip(f"docs/benchmarks/{table} is not published yet")
    assert f"docs/benchmarks/{table}" in _section("Why")


def test_every_extra_for_users_is_listed() -> None:
    listed = set(re.findall(r"^\| `headrace\[(\w+)\]` \|", _section("Install"), flags=re.MULTILINE))
    assert listed == set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS
    assert "pip install headrace\n" in _section("Install")
    assert "Java 17 or newer" in _section("Install")


def test_limitations_name_what_was_tested_on_one_machine_only() -> None:
    assert "Clusters of several hosts have been tested on one machine only" in _section("Limitations")


def test_the_comparison_says_when_not_to_use_it() -> None:
    comparison = _section("Compared with others")
    header = comparison.strip().splitlines()[0]
    assert [cell.strip() for cell in header.strip("|").split("|")][1:] == [
        "Headrace", "Apache Kafka", "Redpanda", "kfake", "testcontainers",
    ]  # fmt: skip
    assert "**Do not use Headrace**" in comparison


def test_no_row_of_a_benchmark_is_repeated() -> None:
    rows = {
        line.split(" | ")[0]
        for table in BENCHMARKS.glob("*.md")
        for line in table.read_text().splitlines()
        if line.startswith("| ") and table.name != "README.md"
    }
    assert not [line for line in README.splitlines() if line.split(" | ")[0] in rows - {"| measure"}]


def test_its_test_passes(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?def test_.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    example = example.rpartition("```python\n")[2]
    (tmp_path / "test_example.py").write_text(example)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "headrace.testing.pytest_plugin", str(tmp_path)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
