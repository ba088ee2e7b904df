# SPDX-License-Identifier: Apache-2.0
"""`headrace pipeline status` on a live node: checkpoints as queries leave them, by folder, file and name."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import CommitProperties, Transaction, write_deltalake

import headrace
from headrace.cli.main import run
from headrace.pipelines.checkpoints.identity import FILE
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.reading.query_lock import QueryLock

SPARKS_ID = "9b3c0d0e-0000-4000-8000-000000000001"


class Lab:
    """A topic of two partitions with ten records each, and what the command prints."""

    def __init__(self, bootstrap: str, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap, self.topic, self._capsys = bootstrap, topic, capsys
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
        rows = pa.table({"value": list(map(str, range(20))), "partition": pa.array([0, 1] * 10, pa.int32())})
        headrace.write(rows, topic, bootstrap=bootstrap, partition="partition")
        connections = pooled_client(bootstrap)
        self._topic_id = str(connections.call(connections.client.topic(topic)).topic_id)
        self.query = str(uuid.uuid4())  # its lock file stays

    def checkpoint(self, folder: Path, *ends: int, finished: int | None = None) -> Path:
        """Of a query whose batches ended at these offsets in both partitions."""
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": SPARKS_ID}))
        for number, end in enumerate(ends):
            partitions = {each: {"epoch": 0, "offset": end} for each in ("0", "1")}
            held = {"id": self._topic_id, "partitions": partitions}
            document = {"query": self.query, "topics": {self.topic: held}, "version": 1}
            (folder / f"offsets/{number}").write_text(f"v1\n{{}}\n{json.dumps(document)}")
        for number in range(len(ends) if finished is None else finished):
            (folder / f"commits/{number}").write_text("v1\n{}")
        return folder

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = run(["pipeline", "status", *words])
        out, said = self._capsys.readouterr()
        return code, out, said

    def shown(self, target: str | Path, *words: str) -> list[dict[str, Any]]:
        code, out, said = self(str(target), "--bootstrap", self.bootstrap, "--json", *words)
        assert code == 0, said
        found: list[dict[str, Any]] = json.loads(out)["queries"]
        return found


@pytest.fixture
def lab(bootstrap: str, topic: str, capsys: pytest.CaptureFixture[str]) -> Lab:
    return Lab(bootstrap, topic, capsys)


def test_the_last_batch_and_the_lag(lab: Lab, tmp_path: Path) -> None:
    folder = lab.checkpoint(tmp_path / "orders", 2, 7)
    (found,) = lab.shown(folder)
    assert (found["name"], found["batch"], found["unfinished_batch"]) == ("orders", 1, None)
    assert (found["offsets_read"], found["lag"], found["sink_batch"]) == (10, 6, None)
    assert [each["lag"] for each in found["offsets"]] == [3, 3]
    assert found["finished_at"].endswith("Z")
    code, out, said = lab(str(folder), "--bootstrap", lab.bootstrap)
    assert (code, said) == (0, "")
    queries, partitions = (block.splitlines() for block in out.split("\n\n"))
    name, state, batch, _, offsets, lag, sink = queries[1].split("\t")
    assert (name, state, batch, offsets, lag, sink) == ("orders", "unknown", "1", "10", "6", "-")
    assert partitions[1:] == [f"orders\t{lab.topic}\t{each}\t7\t10\t3\tok" for each in (0, 1)]


def test_a_batch_that_was_not_finished(lab: Lab, tmp_path: Path) -> None:
    folder = lab.checkpoint(tmp_path / "orders", 2, 7, 10, finished=2)
    (found,) = lab.shown(folder)
    assert (found["batch"], found["unfinished_batch"], found["lag"]) == (1, 2, 6)
    assert "batch 2 was started and is not finished" in lab(str(folder), "-b", lab.bootstrap)[2]
    first = lab.checkpoint(tmp_path / "first", 2, finished=0)
    (found,) = lab.shown(first)
    assert (found["batch"], found["unfinished_batch"], found["lag"], found["offsets"]) == (None, 0, None, [])


def test_whether_it_runs_on_this_machine(lab: Lab, tmp_path: Path) -> None:
    folder = lab.checkpoint(tmp_path / "orders", 2)
    lock = QueryLock()
    lock.hold(lab.query)
    try:
        assert lab.shown(folder)[0]["state"] == "running"
    finally:
        lock.close()
    assert lab.shown(folder)[0]["state"] == "stopped"


def test_a_file_of_pipelines_and_the_batches_of_their_sinks(lab: Lab, tmp_path: Path) -> None:
    tables = {name: tmp_path / "tables" / name for name in ("delta", "parquet")}
    lines = [f'bootstrap = "{lab.bootstrap}"', f'checkpoints = "{tmp_path / "checkpoints"}"']
    for name, path in tables.items():
        folder = lab.checkpoint(tmp_path / "checkpoints" / name, 2, 7)
        (folder / FILE).write_text(json.dumps({"kind": "store", "path": str(path), "format": name}))
        lines += [f"[store.{name}]", f'topic = "{lab.topic}"', f'path = "{path}"', f'format = "{name}"']
    lines += ["[copy.new]", f'topic = "{lab.topic}"', 'to = "copies"']
    written = CommitProperties(app_transactions=[Transaction(SPARKS_ID, 1)])
    write_deltalake(tables["delta"], pa.table({"value": ["a"]}), commit_properties=written)
    for name in ("0", "1", "9.compact", "10"):
        path = tables["parquet"] / "_spark_metadata" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("v1")
    file = tmp_path / "pipelines.toml"
    file.write_text("\n".join(lines))
    found = lab.shown(file)
    assert [(each["name"], each["sink_batch"], each["lag"]) for each in found] == [
        ("delta", 1, 6),
        ("parquet", 10, 6),
        ("new", None, None),
    ]
    assert found[2]["state"] == "not started"


def test_a_pipeline_by_its_name(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "headrace" / "pipelines"
    for name in ("revenue", "revenue.topic", "other"):
        lab.checkpoint(folder / name, 2)
    assert [each["name"] for each in lab.shown("revenue")] == ["revenue", "revenue.topic"]
    code, _, said = lab("revenu", "-b", lab.bootstrap)
    assert code == 1
    assert "there is no checkpoint, file or pipeline 'revenu'" in said
    assert "other, revenue, revenue.topic; or the checkpointLocation" in said


def test_what_cannot_be(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "pipelines.toml"
    assert "there is no file" in lab(str(file))[2]
    file.write_text(f'[copy.new]\ntopic = "{lab.topic}"\nto = "copies"')
    code, _, said = lab(str(file), "-X", "client.id=x")
    assert code == 2
    assert "-X" in said
    assert "is not a checkpoint" in lab(str(tmp_path), "-b", lab.bootstrap)[2]
    folder = lab.checkpoint(tmp_path / "orders", 2)
    (folder / FILE).write_text(json.dumps({"kind": "store", "path": str(tmp_path), "format": "delta"}))
    (tmp_path / "_delta_log").mkdir()
    (folder / "metadata").write_text("{}")
    assert lab.shown(folder)[0]["sink_batch"] is None, "there is no table yet"
