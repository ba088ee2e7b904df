# SPDX-License-Identifier: Apache-2.0
"""`headrace pipeline new`: what it writes, and what it refuses. tests/spark/test_new_project.py runs it."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.client.errors import ClientError
from headrace.pipelines.project import check_name, create_project
from headrace.version import __version__

FILES = {
    ".gitignore",
    "README.md",
    "pyproject.toml",
    "src/order_totals/__init__.py",
    "src/order_totals/__main__.py",
    "src/order_totals/pipeline.py",
    "tests/conftest.py",
    "tests/test_pipeline.py",
}


def test_a_project_has_its_name_everywhere(tmp_path: Path) -> None:
    files = create_project("order_totals", tmp_path / "made")
    assert {str(path) for path in files} == FILES
    for path in files:
        text = (tmp_path / "made" / path).read_text()
        assert "$" not in text
        assert path.suffix != ".py" or ast.parse(text)
    project = tomllib.loads((tmp_path / "made/pyproject.toml").read_text())
    assert project["project"]["dependencies"] == [f"headrace[spark]>={__version__}"]
    assert project["project"]["scripts"] == {"order-totals": "order_totals.__main__:main"}


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    new = ["pipeline", "new", "order_totals", "--dir", str(folder)]
    assert main.run([*new, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["project"], set(found["files"])) == (str(folder), FILES)
    assert main.run(new) == 1
    assert "is not an empty directory; name another: --dir" in capsys.readouterr().err


def test_the_directory_has_the_projects_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["pipeline", "new", "order_totals"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == sorted(f"order_totals/{name}" for name in FILES)
    assert "cd order_totals && pytest" in captured.err


@pytest.mark.parametrize(
    ("name", "reason", "suggestion"),
    [
        ("Order-Totals", "lower-case letters", "order_totals"),
        ("2026", "lower-case letters", "pipeline_2026"),
        ("é", "lower-case letters", "orders_pipeline"),
        ("../orders", "lower-case letters", "orders"),
        ("lambda", "a word of Python", "lambda_pipeline"),
        ("json", "another package", "json_pipeline"),
        ("headrace", "another package", "headrace_pipeline"),
    ],
)
def test_a_name_that_no_package_can_have_is_refused(
    name: str, reason: str, suggestion: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ClientError, match=f"{reason}.*; for example {suggestion}$"):
        check_name(name)
    assert main.run(["pipeline", "new", name, "--dir", str(tmp_path / "made")]) == 2
    assert f"for example {suggestion}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClientError, match="name another place: --dir"):
        create_project("order_totals", tmp_path / "file/below")
