# SPDX-License-Identifier: Apache-2.0
"""`headrace log kept` and `headrace log clean`: what damage left behind goes on request, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headrace.cli import main

FILES = {
    "meta.properties": 10,
    "recovery-point-offset-checkpoint.damaged-1": 20,
    "orders-0/00000000000000000000.log": 1000,
    "orders-0/00000000000000000000.log.damaged-1": 300,
    "orders-0/00000000000000000000.log.damaged-12": 40,
    "orders-0/00000000000000000000.log.damaged-x": 1,
    "orders-1.1700000000000-stray/00000000000000000000.log": 500,
    "orders-1.1700000000000-stray/leader-epoch-checkpoint": 5,
    "gone-0.1700000000000-kept/00000000000000000000.log": 60,
    "gone-1.abc-delete/00000000000000000000.log": 7,
    "notes.damaged-1/kept-by-somebody": 8,
}
KEPT = {
    "recovery-point-offset-checkpoint.damaged-1": 20,
    "orders-0/00000000000000000000.log.damaged-1": 300,
    "orders-0/00000000000000000000.log.damaged-12": 40,
    "orders-1.1700000000000-stray": 505,
    "gone-0.1700000000000-kept": 60,
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, size in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
    return tmp_path


def run(*arguments: str | Path) -> int:
    return main.run(["log", *(str(each) for each in arguments)])


def files_in(data: Path) -> set[str]:
    return {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}


def test_what_is_kept_is_listed_with_its_size(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("kept", data, "--json") == 0
    *found, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert {os.path.relpath(each["path"], data): each["bytes"] for each in found} == KEPT
    assert {each["kind"] for each in found if "-stray" in each["path"]} == {"log"}
    assert summary == {"event": "summary", "kept": len(KEPT), "bytes": sum(KEPT.values())}
    assert files_in(data) == set(FILES)


def test_one_partition_is_listed_by_its_directory(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("kept", data / "orders-0") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "PATH\tSIZE\tAGE"
    assert [line.split("\t")[0] for line in lines[1:3]] == [f"{0:020d}.log.damaged-{n}" for n in (1, 12)]
    assert lines[-1] == "2 files or logs kept aside, 340 B"


def test_clean_removes_what_was_listed_and_leaves_the_rest(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("clean", data, "--yes") == 0
    gone = {name for name in FILES if name in KEPT or name.partition("/")[0] in KEPT}
    assert files_in(data) == set(FILES) - gone
    assert len(gone) == 6
    assert f"Removed {len(KEPT)} files or logs kept aside, 925 B" in capsys.readouterr().err


@pytest.mark.parametrize("options", [("--dry-run",), ("--older-than", "1h", "--yes")])
def test_nothing_is_removed_that_was_not_asked_for(data: Path, options: tuple[str, ...]) -> None:
    assert run("clean", data, *options) == 0
    assert files_in(data) == set(FILES)


def test_without_a_confirmation_nothing_is_removed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("clean", data) == 1
    assert "add --yes" in capsys.readouterr().err
    assert files_in(data) == set(FILES)


def test_a_directory_that_is_not_headraces_is_left_alone(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "meta.properties").unlink()
    assert run("clean", data, "--yes") == 1
    assert "is not the data directory of a node" in capsys.readouterr().err
    assert files_in(data) == set(FILES) - {"meta.properties"}
