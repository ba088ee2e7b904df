# SPDX-License-Identifier: Apache-2.0
"""Segments of Apache Kafka with committed and aborted transactions of several producers, in every codec.

What is decoded from their bytes is what librdkafka, kafka-python and aiokafka read when they were recorded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.client.arrow.fetch.sections import Fetched, whole_batches
from headrace.client.arrow.kernels.available import kernels
from headrace.client.arrow.kernels.row_wise import RowWise
from headrace.client.arrow.read.decode import Decoder
from headrace.wire.batch import BatchHeader
from headrace.wire.compression import Codec
from tests.harness.batches.recorded import Recording, Row

FOLDER = Path(__file__).parents[2] / "data/segments"
RECORDINGS = [Recording.load(FOLDER, path.stem) for path in sorted(FOLDER.glob("*.log"))]
KERNELS = [pytest.param(code, id=code.name) for code in (kernels(), RowWise())]
END = 1 << 62

each_recording = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
each_kernel = pytest.mark.parametrize("code", KERNELS)


def decoded(
    code: Any, recording: Recording, *, start: int = 0, stop: int | None = None, committed: bool
) -> Any:
    """Rows of a fetch of the bytes [start, stop), and those aborted transactions that a broker names."""
    part = recording.log[start:stop]
    headers = headers_of(part)
    first, last = headers[0].base_offset, headers[-1].last_offset
    aborted = [
        (each.producer_id, each.first_offset)
        for each in recording.aborted
        if each.last_offset >= first and each.first_offset <= last
    ]
    fetched = Fetched(0, part, first, END, aborted if committed else ())
    rows = []
    for batch in Decoder("t", code=code).decode([fetched]):
        batch.validate(full=True)
        rows += [as_row(row) for row in batch.to_pylist()]
    return rows


def as_row(row: dict[str, Any]) -> Row:
    return Row(
        row["offset"],
        round(row["timestamp"].timestamp() * 1000),
        row["timestamp_type"],
        row["key"],
        row["value"],
        tuple((header["key"], header["value"]) for header in row["headers"]),
    )


def headers_of(log: bytes) -> list[BatchHeader]:
    return [header for _, header in whole_batches(memoryview(log))]


def starts_of(log: bytes) -> list[int]:
    return [position for position, _ in whole_batches(memoryview(log))]


def test_every_producer_is_recorded() -> None:
    names = {recording.name for recording in RECORDINGS}
    assert names == {"librdkafka", "java", "java-append-time", "headrace"}


@each_recording
def test_every_kind_of_batch_is_there(recording: Recording) -> None:
    headers = headers_of(recording.log)
    assert sum(header.size for header in headers) == len(recording.log)
    data = [header for header in headers if not header.is_control]
    assert {header.codec for header in data} == set(Codec)
    assert {header.is_transactional for header in data} == {True, False}
    assert sum(header.is_control for header in headers) == 4 * len(Codec)
    assert len(recording.aborted) == 2 * len(Codec)
    assert {header.timestamp_type for header in data} == {int(recording.name == "java-append-time")}


@each_recording
@each_kernel
def test_the_rows_are_those_of_row_oriented_clients(code: Any, recording: Recording) -> None:
    assert decoded(code, recording, committed=True) == list(recording.committed)
    assert decoded(code, recording, committed=False) == list(recording.everything)
    assert 0 < len(recording.committed) < len(recording.everything)


@each_recording
def test_a_fetch_may_begin_and_end_at_any_batch(recording: Recording) -> None:
    starts = starts_of(recording.log)
    offsets = [header.base_offset for header in headers_of(recording.log)]
    for place, start in enumerate(starts):
        for size in (1, 2, 3, 7, len(starts)):
            stop = [*starts[1:], len(recording.log)][min(place + size, len(starts)) - 1]
            below = [*offsets[1:], END][min(place + size, len(starts)) - 1]
            expected = [row for row in recording.committed if offsets[place] <= row.offset < below]
            assert decoded(None, recording, start=start, stop=stop, committed=True) == expected
