# SPDX-License-Identifier: Apache-2.0
"""Markers of any shape are read alike: the usual one at once, others record by record."""

from __future__ import annotations

import pytest

from headrace.log.producers.markers import EndTransactionMarker, build_marker, read_marker
from headrace.wire.records import Record, build_batch
from tests.harness.batches.log_tools import NOW_MS

COMMIT_KEY, ABORT_KEY = bytes.fromhex("0000 0001"), bytes.fromhex("0000 0000")
VALUE = bytes.fromhex("0000 00000007")


def control(*records: Record, codec: int = 0) -> memoryview:
    made = build_batch(
        list(records),
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
        codec=codec,
    )
    return memoryview(made)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("coordinator_epoch", [-1, 0, 7, 2**31 - 1])
def test_a_marker_is_read_as_it_was_built(commits: bool, coordinator_epoch: int) -> None:
    marker = EndTransactionMarker(commits=commits, coordinator_epoch=coordinator_epoch)
    data = build_marker(marker, producer_id=2**40, producer_epoch=32767, timestamp=NOW_MS)
    assert read_marker(memoryview(data)) == marker


@pytest.mark.parametrize(
    "record",
    [
        Record(0, NOW_MS, COMMIT_KEY, VALUE, (("trace", b"1"),)),
        Record(0, NOW_MS, COMMIT_KEY, VALUE + b"later versions"),
        Record(0, NOW_MS, COMMIT_KEY + b"later versions", VALUE),
    ],
)
def test_markers_with_more_in_them_are_read(record: Record) -> None:
    assert read_marker(control(record)) == EndTransactionMarker(commits=True, coordinator_epoch=7)


def test_compressed_marker_is_read() -> None:
    expected = EndTransactionMarker(commits=False, coordinator_epoch=7)
    assert read_marker(control(Record(0, NOW_MS, ABORT_KEY, VALUE), codec=1)) == expected


def test_marker_without_a_value_has_no_coordinator_epoch() -> None:
    expected = EndTransactionMarker(commits=True, coordinator_epoch=-1)
    assert read_marker(control(Record(0, NOW_MS, COMMIT_KEY, b""))) == expected


@pytest.mark.parametrize("kind", [2, 3, 255])
def test_other_control_records_are_no_markers(kind: int) -> None:
    assert read_marker(control(Record(0, NOW_MS, bytes([0, 0, 0, kind]), VALUE))) is None


def test_damaged_lengths_are_no_marker() -> None:
    data = bytearray(control(Record(0, NOW_MS, COMMIT_KEY, VALUE)))
    data[61] = 0x22  # a record that is longer than the batch
    assert read_marker(memoryview(data)) is None
