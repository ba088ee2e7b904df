# SPDX-License-Identifier: Apache-2.0
"""Offsets in a Spark checkpoint, moved: what lies in the files afterwards, and when it is refused."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.pipelines.checkpoints.checkpoint import Checkpoint
from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions
from pyspark_headrace.reading.query_lock import QueryLock

QUERY = "43deb35a-1ab5-4f09-b578-2d3cf421a3da"
LONG_AGO = 1_000_000_000


@pytest.fixture(autouse=True)
def own_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "signs").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "signs"))


@pytest.fixture
def query_lock() -> Iterator[QueryLock]:
    shown = QueryLock()
    yield shown
    shown.close()


def at(offset: int) -> Offsets:
    positions = TopicPositions(topic_id="id", partitions={0: Position(offset=offset, epoch=1)})
    return Offsets(query=QUERY, topics={"orders": positions})


def write(folder: Path, begun: int, done: int, *, sources: tuple[str, ...] = ()) -> Path:
    """Batches 0 to `begun`, those to `done` finished; batch N ends at offset 10 * (N + 1)."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for number in range(begun + 1):
        document = json.dumps(at(10 * (number + 1)).to_document())
        metadata = json.dumps({"batchWatermarkMs": number, "conf": {"a": "b"}})
        path = folder / "offsets" / str(number)
        path.write_text("\n".join(["v1", metadata, *sources, document]))
        (folder / "offsets" / f".{number}.crc").write_text("of Hadoop")
        os.utime(path, (LONG_AGO, LONG_AGO))
    for number in range(done + 1):
        path = folder / "commits" / str(number)
        path.write_text(f'v1\n{{"nextBatchWatermarkMs":{number + 5}}}')
        os.utime(path, (LONG_AGO, LONG_AGO))
    return folder


def ends(folder: Path) -> dict[int, int]:
    """Where the batches end; the checksum of a file that was changed must be gone."""
    found = {}
    for path in sorted((folder / "offsets").glob("[0-9]*")):
        document = json.loads(path.read_text().splitlines()[-1])
        found[int(path.name)] = document["topics"]["orders"]["partitions"]["0"]["offset"]
        kept = (folder / "offsets" / f".{path.name}.crc").exists()
        assert kept == (found[int(path.name)] == 10 * (int(path.name) + 1))
    assert not list((folder / "offsets").glob("*.tmp"))
    return found


def test_after_a_finished_batch_comes_an_empty_one(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", 2, 2, sources=("-",))
    checkpoint = Checkpoint(folder)
    assert (checkpoint.last, checkpoint.finished) == (2, True)
    assert checkpoint.current_offsets() == at(30)
    with checkpoint.stopped():
        checkpoint.move(at(7))
    assert ends(folder) == {0: 10, 1: 20, 2: 7, 3: 7}
    version, metadata, other, _ = (folder / "offsets/3").read_text().splitlines()
    assert (version, other) == ("v1", "-")
    assert json.loads(metadata) == {"batchWatermarkMs": 7, "conf": {"a": "b"}}, "the watermark goes on"
    assert not Checkpoint(folder).finished, "Spark runs it first"
    Checkpoint(folder).move(at(8))
    assert ends(folder) == {0: 10, 1: 20, 2: 8, 3: 8}


def test_an_unfinished_batch_is_emptied_but_not_the_first(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", 2, 1)
    checkpoint = Checkpoint(folder)
    assert checkpoint.current_offsets() == at(20)
    checkpoint.move(at(25))
    assert ends(folder) == {0: 10, 1: 25, 2: 25}
    first = write(tmp_path / "first", 0, -1)
    with pytest.raises(ClientError, match=r"the first batch of .* is not finished"):
        Checkpoint(first).move(at(1))
    assert ends(first) == {0: 10}


def test_a_query_that_runs_is_not_moved(tmp_path: Path, query_lock: QueryLock) -> None:
    folder = write(tmp_path / "c", 1, 1)
    query_lock.hold(QUERY)
    with pytest.raises(ClientError, match="is running; stop it first"), Checkpoint(folder).stopped():
        pytest.fail("it was taken for stopped")
    query_lock.close()
    os.utime(folder / "commits/1")  # just now, and yet it is known to have stopped
    with Checkpoint(folder).stopped():
        pass


def test_a_checkpoint_of_another_machine_has_to_be_quiet_for_a_while(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", 1, 1)
    with Checkpoint(folder).stopped():
        pass
    os.utime(folder / "commits/1")
    refused = pytest.raises(ClientError, match="was written to 0 s ago from another machine")
    with refused, Checkpoint(folder).stopped():
        pytest.fail("it was taken for stopped")


def test_a_driver_that_was_faster_wins(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", 1, 1)
    checkpoint = Checkpoint(folder)
    (folder / "offsets/2").write_text((folder / "offsets/1").read_text())
    before = (folder / "offsets/1").read_text()
    with pytest.raises(ClientError, match="it started batch 2 just now; stop it first"):
        checkpoint.move(at(3))
    assert (folder / "offsets/1").read_text() == before


def test_folders_that_are_something_else(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="is not a checkpoint of a Spark query"):
        Checkpoint(tmp_path)
    (tmp_path / "offsets").mkdir()
    with pytest.raises(ClientError, match="has not started a batch yet"):
        Checkpoint(tmp_path)
    (tmp_path / "offsets/0").write_text('v1\n{}\n{"orders": {"0": 1}}')
    with pytest.raises(ClientError, match="has 0 sources of format 'headrace', not one"):
        Checkpoint(tmp_path).current_offsets()
    (tmp_path / "offsets/0").write_text("v9\n{}\n{}")
    with pytest.raises(ClientError, match="has format 'v9', but only 'v1' is supported"):
        Checkpoint(tmp_path).current_offsets()
    (tmp_path / "offsets/0").write_text("v1")
    with pytest.raises(ClientError, match="is missing or damaged"):
        Checkpoint(tmp_path).current_offsets()
