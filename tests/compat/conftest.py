# SPDX-License-Identifier: Apache-2.0
"""Peers that are not on PyPI: Apache Kafka's Java tools and the Go tool chain. Missing ones skip by name.

And a node for tests of groups, where everything that a group waits for is short.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.java_tool import JavaTool
from tests.harness.groups.polled_consumers import QUICK_GROUPS
from tests.harness.left_out import leave_out
from tests.harness.live.node import NodeProcess

_GO_SOURCES = Path(__file__).parent / "go"
_GO_BUILD_TIMEOUT_S = 600


@pytest.fixture(scope="session")
def group_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node whose groups do not make tests wait. Another broker needs the same settings to be as quick."""
    given = os.environ.get("HEADRACE_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with NodeProcess(tmp_path_factory.mktemp("groups"), settings=QUICK_GROUPS) as node:
        yield node.bootstrap


@pytest.fixture
def java(kafka_engine: KafkaEngine, bootstrap: str) -> JavaTool:
    return JavaTool(kafka_engine, bootstrap)


@pytest.fixture(scope="session")
def java_source(kafka_engine: KafkaEngine) -> Callable[..., str]:
    """Runs a single-file Java program on Apache Kafka's class path."""
    if shutil.which("javac") is None:
        leave_out("Java programs", "no javac: a Java development kit is needed to compile them")

    def run(source: Path, *arguments: str, stdin: str = "") -> str:
        result = kafka_engine.tool(str(source), *arguments, stdin=stdin)
        assert result.returncode == 0, result.output
        return result.stdout

    return run


@pytest.fixture(scope="session")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds one of the programs in tests/compat/go with the ordinary go tool."""
    if shutil.which("go") is None:
        leave_out("Go clients", "no Go: install its tool chain (go)")
    folder = tmp_path_factory.mktemp("go")

    def build(name: str) -> Path:
        program = folder / name
        if not program.exists():
            built = subprocess.run(
                ["go", "build", "-o", str(program), "."],
                cwd=_GO_SOURCES / name,
                capture_output=True,
                text=True,
                timeout=_GO_BUILD_TIMEOUT_S,
                check=False,
            )
            assert built.returncode == 0, f"go build of {name} failed:\n{built.stderr}"
        return program

    return build
