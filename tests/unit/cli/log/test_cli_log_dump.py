# SPDX-License-Identifier: Apache-2.0
"""`headrace log dump`: batches, CRCs, indexes; the offender named when something is corrupt."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.cli.log.segment_inspector import SegmentInspector
from headrace.log.producers.markers import EndTransactionMarker, build_marker
from headrace.wire.records import Record, build_batch

BASE = 100


def batch(first: int, count: int, codec: int = 0) -> bytes:
    records = [
        Record(offset, 1_700_000_000_000 + offset, b"key\x1b[1m", b"value %d" % offset, (("h", b"x"),))
        for offset in range(first, first + count)
    ]
    return bytes(build_batch(records, codec=codec, base_offset=first))


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """Three batches, offsets 100 to 111, with sound indexes; the index is padded as Kafka pads its own."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    batches = [batch(100, 5), batch(105, 3, codec=4), batch(108, 4)]
    path = folder / f"{BASE:020d}.log"
    path.write_bytes(b"".join(batches))
    second, third = len(batches[0]), len(batches[0]) + len(batches[1])
    index = struct.pack(">iiii", 7, second, 11, third)
    path.with_suffix(".index").write_bytes(index + bytes(80))
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", 1_700_000_000_107, 7))
    return path


def inspect(path: Path) -> SegmentInspector:
    inspector = SegmentInspector(path)
    for _ in inspector.batches():
        pass
    return inspector


def test_a_sound_segment_is_counted(segment: Path) -> None:
    inspector = inspect(segment)
    assert inspector.problems == []
    assert (inspector.batch_count, inspector.record_count) == (3, 12)
    assert (inspector.first_offset, inspector.next_offset) == (100, 112)
    assert (inspector.index_entries, inspector.time_entries) == (2, 1)


def test_in_a_pipe_every_batch_has_stable_columns(segment: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["log", "dump", str(segment)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[1].split("\t")[:3] == ["POSITION", "OFFSETS", "RECORDS"]
    assert [line.split("\t")[1] for line in lines[2:5]] == ["100-104", "105-107", "108-111"]
    assert [line.split("\t")[4] for line in lines[2:5]] == ["none", "zstd", "none"]
    assert lines[-1] == "1 segment, 12 records: no errors"


def test_records_are_decoded_and_clean(segment: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["log", "dump", str(segment), "--records"]) == 0
    rows = [line.split("\t") for line in capfd.readouterr().out.splitlines() if line.startswith("record")]
    assert len(rows) == 12
    assert rows[5] == ["record", "105", "2023-11-14T22:13:20.105Z", "key\\x1b[1m", "h=x", "value 105"]


def test_as_json_each_batch_segment_and_the_sum_is_a_line(
    segment: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["log", "dump", str(segment.parent.parent), "--batches", "--records", "--json"]) == 0
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds.count("batch") == 3
    assert kinds.count("record") == 12
    assert kinds[-2:] == ["segment", "summary"]
    assert events[-2]["problems"] == []
    assert events[-1] == {"event": "summary", "segments": 1, "records": 12, "problems": 0}


def test_a_directory_is_summed_up_by_segment(segment: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["log", "dump", str(segment.parent)]) == 0
    out = capfd.readouterr().out
    assert "3 batches, 12 records, offsets 100 to 111" in out
    assert "POSITION" not in out


def test_a_flipped_bit_is_found_and_named_and_the_rest_still_read(
    segment: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(segment.read_bytes())
    second = len(batch(100, 5))
    data[second + 70] ^= 0x10
    segment.write_bytes(data)
    assert main.run(["log", "dump", str(segment)]) == 1
    out = capfd.readouterr().out
    assert f"{segment}: position {second} (offset 105) the batch does not match its CRC" in out
    assert "108-111" in out
    assert out.splitlines()[-1] == "1 segment, 12 records: 1 problem"


@pytest.mark.parametrize(
    ("cut", "complaint"),
    [(3, "is truncated after"), (-30, "a batch header is truncated after 31 bytes")],
)
def test_a_torn_tail_is_named(segment: Path, cut: int, complaint: str) -> None:
    data = segment.read_bytes()
    third = len(batch(100, 5)) + len(batch(105, 3, codec=4))
    segment.write_bytes(data[:-cut] if cut > 0 else data[: third + 61 + cut])
    problems = inspect(segment).problems
    assert complaint in str(problems[0])
    assert problems[0].position == third
    assert problems[0].offset == 108


@pytest.mark.parametrize(
    ("position", "value", "complaint"),
    [
        (16, b"\x01", "no batch starts here: magic byte 1 instead of 2"),
        (8, b"\xff\xff\xff\xff", "impossible batch"),
        (23, b"\xff\xff\xff\xff", "impossible batch"),
        (8, b"\x7f\xff\xff\xff", "is truncated after"),
    ],
)
def test_a_broken_header_ends_the_segment(segment: Path, position: int, value: bytes, complaint: str) -> None:
    data = bytearray(segment.read_bytes())
    data[position : position + len(value)] = value
    segment.write_bytes(data)
    problems = inspect(segment).problems
    assert complaint in problems[0].what
    assert problems[0].position == 0


def test_offsets_that_do_not_rise_are_named(segment: Path) -> None:
    segment.write_bytes(batch(100, 5) + batch(103, 2))
    assert "offset out of order, expected 105" in str(inspect(segment).problems[0])


@pytest.mark.parametrize(
    ("suffix", "data", "complaint"),
    [
        (".index", struct.pack(">ii", 7, 3), "points at position 3, where no batch begins"),
        (".index", struct.pack(">iiii", 11, 199, 7, 99), "positions do not increase"),
        (".index", b"\x01" * 9, "9 bytes are not whole entries of 8"),
        (".timeindex", struct.pack(">qi", 5, 7), "says 5, the batch says 1700000000107"),
        (".timeindex", struct.pack(">qi", 5, 70), "points past the last batch"),
    ],
)
def test_an_index_that_does_not_fit_is_named(segment: Path, suffix: str, data: bytes, complaint: str) -> None:
    segment.with_suffix(suffix).write_bytes(data)
    problems = [problem for problem in inspect(segment).problems if complaint in problem.what]
    assert problems
    assert problems[0].file == segment.with_suffix(suffix)


def test_an_index_entry_below_its_batch_is_named(segment: Path) -> None:
    segment.with_suffix(".index").write_bytes(struct.pack(">ii", 2, len(batch(100, 5))))
    assert "where offset 105 begins" in str(inspect(segment).problems[0])


def test_records_that_cannot_be_decoded_are_a_problem(
    segment: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from headrace.wire.batch import write_crc

    data = bytearray(batch(100, 5))
    data[62] = 0x7F  # the first record's attributes and lengths no longer fit; the CRC does
    data[61] = 0xFE
    with memoryview(data) as view:
        write_crc(view, 0, len(data))
    segment.write_bytes(data)
    assert main.run(["log", "dump", str(segment), "--records"]) == 1
    assert "the records cannot be read" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("name", "complaint"), [("missing", "does not exist"), ("notes.txt", "is not a segment and has none")]
)
def test_other_files_are_refused(
    tmp_path: Path, name: str, complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert main.run(["log", "dump", str(tmp_path / name)]) == 1
    error = capfd.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


@pytest.fixture
def transactional(tmp_path: Path) -> Path:
    """Offsets 100 and 101: records of producers 7 and 8; 102: 7 aborts; 103: 8 commits."""
    folder = tmp_path / "orders-1"
    folder.mkdir()
    data = b""
    for offset, producer in ((100, 7), (101, 8)):
        record = Record(offset, 1_700_000_000_000, b"k", b"v")
        fields = {"producer_id": producer, "producer_epoch": 2, "base_sequence": 0}
        data += build_batch([record], base_offset=offset, is_transactional=True, **fields)
    for offset, producer, commits in ((102, 7, False), (103, 8, True)):
        marker = EndTransactionMarker(commits=commits, coordinator_epoch=9)
        made = build_marker(marker, producer_id=producer, producer_epoch=2, timestamp=1_700_000_000_000)
        made[:8] = offset.to_bytes(8, "big")
        data += made
    path = folder / f"{BASE:020d}.log"
    path.write_bytes(data)
    path.with_suffix(".txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 100, 102, 101))
    return path


def test_markers_and_aborted_transactions_are_shown(
    transactional: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["log", "dump", str(transactional)]) == 0
    out = capfd.readouterr().out
    lines = out.splitlines()
    assert [line.split("\t")[8] for line in lines[2:6]] == [
        "transactional",
        "transactional",
        "ABORT,coordinator-epoch=9",
        "COMMIT,coordinator-epoch=9",
    ]
    assert "aborted: producer 7, offsets 100 to 102, last stable offset 101" in lines
    assert "transaction index 1 entries" in out


def test_markers_and_aborted_transactions_are_shown_as_json(
    transactional: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["log", "dump", str(transactional), "--json"]) == 0
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    markers = [event["marker"] for event in events if event["event"] == "batch"]
    assert markers == [
        None,
        None,
        {"type": "ABORT", "coordinator_epoch": 9},
        {"type": "COMMIT", "coordinator_epoch": 9},
    ]
    (aborted,) = [event for event in events if event["event"] == "aborted_transaction"]
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_stable_offset"]) == (7, 100, 101)
    assert next(e for e in events if e["event"] == "segment")["transaction_index_entries"] == 1


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ((0, 8, 101, 103, 104), "points at no ABORT marker of producer 8"),
        ((0, 8, 100, 102, 101), "points at no ABORT marker of producer 8"),
        ((0, 7, 100, 200, 101), "points where no batch begins"),
        ((1, 7, 100, 102, 101), "has the unknown version 1"),
    ],
)
def test_transaction_index_that_does_not_match_is_named(
    transactional: Path, entry: tuple[int, ...], complaint: str
) -> None:
    transactional.with_suffix(".txnindex").write_bytes(struct.pack(">hqqqq", *entry))
    (problem,) = inspect(transactional).problems
    assert complaint in str(problem)
    assert ".txnindex" in str(problem)


def test_segment_without_a_transaction_index_is_no_problem(transactional: Path) -> None:
    transactional.with_suffix(".txnindex").unlink()
    inspector = inspect(transactional)
    assert (inspector.aborted, inspector.problems) == (None, [])
