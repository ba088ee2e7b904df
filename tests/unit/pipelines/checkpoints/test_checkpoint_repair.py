# SPDX-License-Identifier: Apache-2.0
"""A checkpoint beside its sink: which is ahead, what a repair writes, and when there is none."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from headrace.cli.main import run
from headrace.client.errors import ClientError
from headrace.pipelines.checkpoints.checkpoint import Checkpoint
from headrace.pipelines.checkpoints.checkpoint_repair import check_repairable, compare, repair
from headrace.pipelines.checkpoints.sinks import TableSink
from headrace.pipelines.delta.recorded_batches import APP_ID, BATCH_ID, SOURCES, offsets_app_id, query_app_id
from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions, read_document
from pyspark_headrace.reading.query_lock import QueryLock
from pyspark_headrace.replays import BatchIdentity, fingerprint

QUERY = "0f5c3a36-9b7c-4a39-8a0c-0c4f7a1c5a11"
SOURCE = "43deb35a-1ab5-4f09-b578-2d3cf421a3da"
LONG_AGO = 1_000_000_000


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "locks").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "locks"))


def line(offset: int) -> str:
    positions = TopicPositions(topic_id="id", partitions={0: Position(offset=offset, epoch=1)})
    return json.dumps(Offsets(query=SOURCE, topics={"orders": positions}).to_document())


def entry(number: int, *, at: int = 0, sources: Sequence[str] = ()) -> str:
    """Batch N ends at offset 10 * (N + 1); `at` is the time at which it was begun."""
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": at, "conf": {"a": "b"}})
    return "\n".join(["v1", metadata, *(sources or [line(10 * (number + 1))])])


def write(folder: Path, begun: int, done: int, *, at: int = 0) -> Checkpoint:
    """Batches 0 to `begun`, those to `done` finished."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    for number in range(begun + 1):
        (folder / "offsets" / str(number)).write_text(entry(number, at=at))
        (folder / "offsets" / f".{number}.crc").write_text("of Hadoop")
    for number in range(done + 1):
        (folder / "commits" / str(number)).write_text(f'v1\n{{"nextBatchWatermarkMs":{number + 5}}}')
    for path in folder.glob("*/*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return Checkpoint(folder)


def in_sink(number: int, **entry_options: int) -> BatchIdentity:
    """As the sink has recorded it."""
    text = entry(number, **entry_options)
    return BatchIdentity(
        number=number, offsets=fingerprint(text.encode()), sources=tuple(text.splitlines()[2:])
    )


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.glob("*/*"))
        if "backup" not in str(path) and not path.name.startswith(".")
    }


@pytest.mark.parametrize(
    ("begun", "done", "sink", "state", "said"),
    [
        (3, 3, in_sink(3), "in step", "goes on with batch 4, and nothing is lost"),
        (4, 3, in_sink(3), "in step", "goes on with batch 4, and nothing is lost"),
        (3, 2, in_sink(3), "repeats", "runs batch 3 again, and the sink recognises and skips it"),
        (1, 1, in_sink(3), "behind", "goes on with batch 2, and the sink has batch 3 already, up to 20 rec"),
        (3, 2, in_sink(3, at=9), "differs", "has another batch 3: .* already, up to 10 records further on"),
        (5, 5, in_sink(3), "ahead", "the sink ends with batch 3, the checkpoint with 5.*up to 20 records"),
        (3, 3, BatchIdentity(number=3), "unknown", "did not record its offsets"),
        (3, 3, None, "no batch", "has no batch of this query"),
        (0, -1, in_sink(0, at=9), "differs", "goes on with batch 0, .* up to 10 records"),
    ],
)
def test_both_sides_are_compared(
    tmp_path: Path, begun: int, done: int, sink: BatchIdentity | None, state: str, said: str
) -> None:
    comparison = compare(write(tmp_path / "c", begun, done), "the sink", sink)
    assert comparison.state == state
    with pytest.raises(ClientError, match=said):
        raise ClientError(comparison.explanation)


@pytest.mark.parametrize(
    ("begun", "done", "number"),
    [(1, 1, 2), (1, 1, 7), (2, 1, 2), (5, 4, 2), (0, -1, 0)],
    ids=["one behind", "far behind", "other course", "ahead", "first batch"],
)
def test_the_sinks_last_batch_becomes_the_newest(tmp_path: Path, begun: int, done: int, number: int) -> None:
    checkpoint = write(tmp_path / "c", begun, done)
    before = tree(checkpoint.folder)
    last = in_sink(number, at=9)
    backup = repair(checkpoint, check_repairable(checkpoint, "the sink", last))
    found = Checkpoint(checkpoint.folder)
    assert (found.last, found.finished) == (number, True)
    assert found.entry(number).sources == last.sources
    assert json.loads(found.entry(number).metadata)["conf"] == {"a": "b"}
    assert number == 0 or found.offsets.path(number - 1).exists(), "Spark reads it, too"
    assert not (found.offsets.folder / f".{number}.crc").exists()
    assert compare(found, "the sink", last).state == "in step"
    after = tree(checkpoint.folder)
    for name, text in before.items():
        assert after.get(name) == text or (backup / name).read_text() == text, "what was replaced is kept"
    watermark = 0 if done < 0 else done + 5
    assert after[f"commits/{number}"] == f'v1\n{{"nextBatchWatermarkMs":{watermark}}}'


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (None, "has no batch of this query"),
        (BatchIdentity(number=3, offsets=1), "did not record where the sources of batch 3 end.*earlier"),
        (BatchIdentity(number=3, sources=(line(1), line(2))), "has 2 sources, the checkpoint has 1"),
        (BatchIdentity(number=3, sources=('{"logOffset":3}',)), "sources of other formats"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused(tmp_path: Path, sink: BatchIdentity | None, said: str) -> None:
    checkpoint = write(tmp_path / "c", 1, 1)
    with pytest.raises(ClientError, match=f"{said}.*; restore the newest checkpoint"):
        check_repairable(checkpoint, "the sink", sink)


@pytest.mark.parametrize("done", [3, 2])
def test_offsets_that_were_moved_by_hand_are_no_restored_checkpoint(tmp_path: Path, done: int) -> None:
    """As `headrace pipeline offsets` leaves it: the sink takes the next batch."""
    checkpoint = write(tmp_path / "c", 3, done)
    offsets = read_document(json.loads(line(15)))
    with checkpoint.stopped():
        checkpoint.move(offsets)
    comparison = compare(Checkpoint(checkpoint.folder), "the sink", in_sink(done))
    assert comparison.state == "moved"
    with pytest.raises(ClientError, match=r"offsets were moved.*up to .* records are written again or left"):
        raise ClientError(comparison.explanation)


def test_state_cannot_be_rebuilt(tmp_path: Path) -> None:
    checkpoint = write(tmp_path / "c", 1, 1)
    (checkpoint.folder / "state").mkdir()
    with pytest.raises(ClientError, match=r"is stateful: its state is of batch 1.*from the beginning"):
        check_repairable(checkpoint, "the sink", in_sink(3))


# -- tables and the command --------------------------------------------------------------------------------


def table_with(path: Path, *numbers: int, app_id: str = QUERY, chosen: bool = False) -> Path:
    for number in numbers:
        batch = in_sink(number)
        transactions = [
            Transaction(app_id, number),
            Transaction(offsets_app_id(app_id), batch.offsets),
            *([Transaction(query_app_id(app_id, QUERY), number)] if chosen else []),
        ]
        metadata = {APP_ID: app_id, BATCH_ID: str(number), SOURCES: json.dumps(batch.sources)}
        properties = CommitProperties(custom_metadata=metadata, app_transactions=transactions)
        write_deltalake(path, pa.table({"n": [number]}), mode="append", commit_properties=properties)
    return path


def test_a_table_knows_the_last_batch_of_a_query(tmp_path: Path) -> None:
    path = table_with(tmp_path / "t", 0, 1)
    write_deltalake(path, pa.table({"n": [9]}), mode="append")
    last = TableSink(path=path).last(QUERY)
    assert last == in_sink(1)
    assert last is not None
    assert last.sources == in_sink(1).sources
    assert TableSink(path=path).last("another") is None
    table_with(path, 5, app_id="mine", chosen=True)
    assert TableSink(path=path, app_id="mine").last(QUERY) == in_sink(5)
    with pytest.raises(ClientError, match="was not written by query another"):
        TableSink(path=path, app_id="mine").last("another")
    with pytest.raises(ClientError, match="no Delta table"):
        TableSink(path=tmp_path / "none").last(QUERY)


class Command:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = folder, capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = run(["pipeline", "checkpoint", str(self._folder), *words])
        out, said = self._capsys.readouterr()
        assert "Traceback" not in said
        return code, out, said


def test_the_command_shows_and_repairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = write(tmp_path / "c", 1, 1)
    table = str(table_with(tmp_path / "t", 2, 3))
    command = Command(checkpoint.folder, capsys)
    before = tree(checkpoint.folder)

    code, out, said = command("--table", table)
    assert code == 0
    assert out.splitlines()[:2] == ["Checkpoint: batch 1, finished", f"Sink: the table {table}, batch 3"]
    assert out.splitlines()[3] == "0\torders\t0\t20\t40\t20"
    assert "The checkpoint is behind" in said
    assert "Add --repair" in said
    code, _, said = command("--table", table, "--repair")
    assert code == 0
    assert "dry run. Add --execute" in said
    assert tree(checkpoint.folder) == before

    code, out, _ = command("--table", table, "--repair", "--execute", "--json")
    assert code == 0
    shown = json.loads(out)
    assert (shown["state"], shown["batch"], shown["sink_batch"], shown["repaired"]) == ("behind", 1, 3, True)
    assert shown["offsets"] == [
        {"source": 0, "topic": "orders", "partition": 0, "checkpoint": 20, "sink": 40}
    ]
    assert Path(shown["backup"], "offsets/1").read_text() == entry(1)
    code, out, said = command("--table", table, "--repair")
    assert (code, "There is nothing to repair" in said) == (0, True)
    assert "They agree: the query goes on with batch 4" in said


def test_a_running_query_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = write(tmp_path / "c", 1, 1)
    table = str(table_with(tmp_path / "t", 3))
    before, lock = tree(checkpoint.folder), QueryLock()
    lock.hold(SOURCE)
    try:
        code, _, said = Command(checkpoint.folder, capsys)("--table", table, "--repair", "--execute")
    finally:
        lock.close()
    assert (code, "is running; stop it first" in said) == (1, True)
    assert tree(checkpoint.folder) == before


def test_wrong_uses_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = write(tmp_path / "c", 1, 1)
    command = Command(checkpoint.folder, capsys)
    assert "needs --repair" in command("--execute")[2]
    assert "no Delta table" in command("--table", str(tmp_path / "t"))[2]
    (checkpoint.folder / "metadata").unlink()
    assert "metadata is missing or damaged" in command("--table", str(tmp_path / "t"))[2]
