# SPDX-License-Identifier: Apache-2.0
"""`headrace pipeline offsets` on a live node: a checkpoint beside its topics, whatever happened to them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.cli.main import run

QUERY = "43deb35a-1ab5-4f09-b578-2d3cf421a3da"
FORGOTTEN_ID = "00000000-0000-4000-8000-000000000001"


def checkpoint_at(folder: Path, topic: str, offset: int) -> Path:
    """As a query leaves it that read this far of a topic which is no longer this one."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    held = {"id": FORGOTTEN_ID, "partitions": {"0": {"epoch": 0, "offset": offset}}}
    document = {"query": QUERY, "topics": {topic: held}, "version": 1}
    (folder / "offsets/0").write_text(f"v1\n{{}}\n{json.dumps(document)}")
    (folder / "commits/0").write_text("v1\n{}")
    for name in ("offsets/0", "commits/0"):
        os.utime(folder / name, (0, 0))
    return folder


class Lab:
    def __init__(self, folder: Path, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._bootstrap, self._capsys = folder, bootstrap, capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = run(["pipeline", "offsets", str(self._folder), "--bootstrap", self._bootstrap, *words])
        out, said = self._capsys.readouterr()
        return code, out, said

    def shown(self) -> list[dict[str, Any]]:
        code, out, _ = self("--json")
        assert code == 0
        found: list[dict[str, Any]] = json.loads(out)["offsets"]
        return found

    def moved(self, to: str) -> list[dict[str, Any]]:
        code, out, said = self("--to", to, "--execute", "--json")
        assert code == 0, said
        for path in self._folder.glob("*/*"):
            os.utime(path, (0, 0))  # as if it had been a while ago
        found: list[dict[str, Any]] = json.loads(out)["offsets"]
        return found


def test_a_checkpoint_beside_its_topic(
    bootstrap: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    rows = pa.table({"value": list(map(str, range(20))), "partition": pa.array([0, 1] * 10, pa.int32())})
    headrace.write(rows, topic, bootstrap=bootstrap, partition="partition")
    folder = checkpoint_at(tmp_path / "checkpoint", topic, 4)
    offsets = Lab(folder, bootstrap, capsys)

    old, new = offsets.shown()
    assert (old["state"], old["offset"], old["end"], old["lag"]) == ("recreated", 4, 10, 10)
    assert f"its id is {old['explanation'].split('its id is ')[1][:36]}" in old["explanation"]
    assert (new["offset"], new["lag"]) == (None, 10)
    code, out, said = offsets()
    assert code == 0
    assert out.splitlines()[1].split("\t")[:7] == [topic, "0", "4", "0", "10", "10", "recreated"]
    assert "was deleted and recreated" in said

    before = (folder / "offsets/0").read_text()
    assert offsets("--to", "latest")[0] == 0
    assert (folder / "offsets/0").read_text() == before, "a dry run"
    assert [(each["old"], each["new"]) for each in offsets.moved("latest")] == [(4, 10), (None, 10)]
    assert [(each["state"], each["offset"], each["lag"]) for each in offsets.shown()] == [("ok", 10, 0)] * 2

    wanted = tmp_path / "wanted.json"
    wanted.write_text(json.dumps({topic: {"0": 3, "1": 999}}))
    code, _, said = offsets("--to", str(wanted))
    assert code == 0
    assert "offset 999 is not in the log, using 10" in said
    wanted.write_text(json.dumps({topic: {"0": 3}}))
    assert [each["new"] for each in offsets.moved(str(wanted))] == [3]
    assert [each["offset"] for each in offsets.shown()] == [3, 10], "what is not named stays"

    (future,) = admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    future.result(20)
    gone, _ = offsets.shown()
    assert (gone["state"], gone["first"], gone["lag"]) == ("aged out", 7, 3)
    assert "up to 4 records were removed by retention" in gone["explanation"]
    assert [each["new"] for each in offsets.moved("earliest")] == [7, 0]
    assert [each["new"] for each in offsets.moved("@0")] == [7, 0], "the first since then"
    assert [each["new"] for each in offsets.moved("2100-01-01T00:00:00Z")] == [10, 10], "none since then"

    admin.delete_topics([topic])[topic].result(20)
    assert {each["state"] for each in offsets.shown()} == {"deleted"}
    code, _, said = offsets("--to", "earliest")
    assert code == 0
    assert f"topic '{topic}' was deleted: it is removed from the checkpoint" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--execute"], "needs --to"),
        (["--to", "soon"], "'soon' is not a date and time: use 2026-01-31T12:00:00Z"),
        (["--to", "none.json"], "none.json: No such file"),
        (["--to", "WRONG"], "has no offsets; write"),
        (["--to", "OTHER"], "partition 9 of topic"),
    ],
)
def test_moves_that_cannot_be(
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    (tmp_path / "wrong.json").write_text("[1]")
    (tmp_path / "other.json").write_text(json.dumps({topic: {"9": 1}}))
    files = {"WRONG": str(tmp_path / "wrong.json"), "OTHER": str(tmp_path / "other.json")}
    offsets = Lab(checkpoint_at(tmp_path / "checkpoint", topic, 0), bootstrap, capsys)
    code, _, said = offsets(*(files.get(word, word) for word in words))
    assert code in (1, 2)
    assert message in said
    assert "Traceback" not in said
