# SPDX-License-Identifier: Apache-2.0
"""`headrace store` on the file of a SQLite store. With nodes: tests/integration/test_store_restore.py."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.main import run
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.sqlite import ENTRIES_FILE, SqliteStore
from headrace.realworld import RealFiles, RealWorld

Output = pytest.CaptureFixture[str]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The folder of a store that a node has used."""
    folder = tmp_path / "store"

    async def main() -> None:
        world = RealWorld()
        cluster = await ClusterMetadata.open(await SqliteStore.open(world, folder), world)
        await cluster.begin_store_epoch()
        await cluster.close()
        await world.tasks.close()

    asyncio.run(main())
    return folder


@pytest.fixture
def open_store(store: Path) -> Iterator[Path]:
    """As while a node has it open."""
    connection = sqlite3.connect(store / ENTRIES_FILE)
    connection.execute("SELECT count(*) FROM entries").fetchone()
    yield store
    connection.close()


def place(folder: Path) -> list[str]:
    return ["--coordination", f"sqlite:{folder}"]


def only_line(capsys: Output) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_store_is_checked_backed_up_and_restored(store: Path, tmp_path: Path, capsys: Output) -> None:
    backup = tmp_path / "backup.db"
    assert run(["store", "check", *place(store)]) == 0
    assert "no damage found, 3 commits, 3 entries" in capsys.readouterr().out
    assert run(["store", "backup", str(backup), *place(store)]) == 0
    assert "Backed up 3 commits" in capsys.readouterr().out
    before = (store / ENTRIES_FILE).read_bytes()
    assert run(["store", "restore", str(backup), *place(store), "--yes", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [Path(path).read_bytes() for path in report["replaced"]] == [before]
    assert report["commits"] == 4
    assert backup.exists()


def test_a_backup_overwrites_nothing(store: Path, tmp_path: Path, capsys: Output) -> None:
    target = tmp_path / "mine"
    target.write_text("mine")
    assert run(["store", "backup", str(target), *place(store)]) == 1
    assert "exists already" in only_line(capsys)
    assert target.read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b"no database at all" * 500])
def test_what_is_no_backup_is_not_restored(
    store: Path, tmp_path: Path, capsys: Output, content: bytes
) -> None:
    wrong = tmp_path / "wrong.db"
    wrong.write_bytes(content)
    files = {path.name: path.read_bytes() for path in store.iterdir()}
    assert run(["store", "restore", str(wrong), *place(store), "--yes"]) == 1
    assert str(wrong) in only_line(capsys)
    assert {path.name: path.read_bytes() for path in store.iterdir()} == files


def test_nothing_is_replaced_while_a_process_has_the_store_open(
    open_store: Path, tmp_path: Path, capsys: Output
) -> None:
    """A connection of this process would not keep this process from locking, hence the commands' own."""
    backup = tmp_path / "backup.db"
    assert run(["store", "backup", str(backup), *place(open_store)]) == 0
    capsys.readouterr()
    for arguments in (["restore", str(backup)], ["accept"]):
        command = [
            sys.executable,
            "-m",
            "headrace.cli.main",
            "store",
            *arguments,
            *place(open_store),
            "--yes",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "stop all nodes first" in done.stderr
    assert [path.name for path in open_store.glob("replaced-*")] == []


def test_nothing_is_replaced_while_the_node_of_the_data_folder_runs(
    store: Path, tmp_path: Path, capsys: Output
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    lock = RealFiles().lock(data / ".lock")
    assert run(["store", "accept", *place(store), "--data", str(data), "--yes"]) == 1
    assert "stop it first" in only_line(capsys)
    lock.release()
    assert run(["store", "accept", *place(store), "--data", str(data), "--yes"]) == 0


def test_a_store_that_is_not_there_is_not_created(tmp_path: Path, capsys: Output) -> None:
    for arguments in (["check"], ["backup", str(tmp_path / "b.db")], ["accept", "--yes"]):
        assert run(["store", *arguments, *place(tmp_path / "none")]) == 1
        assert "there is no coordination store" in only_line(capsys)
    assert not (tmp_path / "none").exists()


def test_files_of_zookeeper_are_its_own_affair(capsys: Output) -> None:
    assert run(["store", "check", "--coordination", "zk://localhost:1/headrace"]) == 1
    assert "ZooKeeper's" in only_line(capsys)


def test_without_a_confirmation_nothing_is_changed(
    store: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (store / ENTRIES_FILE).read_bytes()
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert run(["store", "accept", *place(store)]) == 1
    assert "add --yes" in only_line(capsys)
    assert (store / ENTRIES_FILE).read_bytes() == before
