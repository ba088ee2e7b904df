# SPDX-License-Identifier: Apache-2.0
"""Compose files against the schema of the compose specification, as the library of Docker Compose has it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.harness.left_out import leave_out

ROOT = Path(__file__).resolve().parents[2]
MODULE = "github.com/compose-spec/compose-go/v2@v2.16.2"
FILES = (
    ROOT / "compose.yaml",
    ROOT / "deploy" / "compose.three-hosts.yaml",
    ROOT / "tests" / "unit" / "config" / "drawn-compose.yaml",
)

pytestmark = pytest.mark.compat_go


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Draft202012Validator:
    """Fetched as a module of Go; nothing of it is kept here."""
    if shutil.which("go") is None:
        leave_out("the compose schema", "no Go: install its tool chain (go)")
    folder = tmp_path_factory.mktemp("compose")
    done = subprocess.run(
        ["go", "mod", "download", "-json", MODULE],
        cwd=folder, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        leave_out("the compose schema", f"{MODULE} could not be fetched: {done.stdout[-300:]}")
    text = Path(json.loads(done.stdout)["Dir"], "schema", "compose-spec.json").read_text()
    found = json.loads(text)
    Draft202012Validator.check_schema(found)
    return Draft202012Validator(found)


def _errors(schema: Draft202012Validator, document: Any) -> list[str]:
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in schema.iter_errors(document)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_compose_file_is_as_the_schema_has_it(schema: Draft202012Validator, path: Path) -> None:
    assert _errors(schema, yaml.safe_load(path.read_text())) == []


def test_every_compose_file_of_the_repository_is_checked() -> None:
    found = {
        path
        for folder in ("deploy", "docs", "examples", "tests")
        for path in (ROOT / folder).rglob("*compose*.y*ml")
    }
    assert found | set(ROOT.glob("*compose*.y*ml")) == set(FILES)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("depend_on", ["zookeeper"]),
        ("restart", True),
        ("ports", "127.0.0.1:9092:9092"),
        ("environment", {"KAFKA_BROKER_ID": ["1"]}),
        ("volumes", [{"target": "/var/lib/kafka/data"}]),
    ],
)
def test_the_schema_refuses_a_mistake(schema: Draft202012Validator, key: str, value: Any) -> None:
    document = yaml.safe_load(FILES[0].read_text())
    document["services"]["kafka"][key] = value
    assert any(error.startswith("services.kafka") for error in _errors(schema, document))
