# SPDX-License-Identifier: Apache-2.0
"""Produce requests of one shape are found as the full reader reads them, and answered as in full."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headrace.wire.api_table import read_request_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import encode_request
from headrace.wire.requests.produce import ProduceResult, read_produce, write_produce_reply
from headrace.wire.requests.produce_run import LONGEST_RUN, ProduceShape, RunFrame, RunReplies

VERSIONS = range(7, 14)
TOPIC_ID = UUID(int=0xFEDC)


def request(
    version: int, correlation_id: int, records: bytes, *, index: int = 3, acks: int = 1, timeout: int = 5
) -> bytes:
    data = {"index": index, "records": records}
    topic: dict[str, Any] = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "topic"}
    fields = {"transactional_id": None, "acks": acks, "timeout": timeout}
    topics = [{**topic, "partition_data": [data]}]
    return encode_request(0, version, correlation_id, "me", {**fields, "topic_data": topics})


def read(frames: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """(correlation id, start, end) as the full reader has it."""
    header = read_request_header(frames, position + 4, end)
    part = read_produce(frames, header.body_position, end, header.api_version).topics[0].partitions[0]
    return header.correlation_id, part.start, part.end


def shape_of(frame: bytes, version: int) -> ProduceShape:
    view = memoryview(frame)
    header = read_request_header(view, 4, len(view))
    (part,) = read_produce(view, header.body_position, len(view), version).topics[0].partitions
    shape = ProduceShape.of(view, 4, len(view), version, part)
    assert shape is not None
    return shape


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_of_one_shape_are_found_whatever_their_size(version: int) -> None:
    sizes = [1, 61, 62, 125, 126, 127, 128, 200, 16381, 16382, 16383, 16384, 70_000]
    frames = [request(version, 1000 + size, bytes(size)) for size in sizes]
    view = memoryview(b"".join(frames))
    found = shape_of(request(version, 1, b"first"), version).find(view, 0, len(view))
    assert found is not None
    position, expected = 0, []
    for frame in frames:
        expected.append((*read(view, position, position + len(frame)), position + len(frame)))
        position += len(frame)
    assert found == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cut", [1, 3, 4, 11, 12, 20, 40, -1])
def test_a_frame_that_is_not_whole_is_left_alone(version: int, cut: int) -> None:
    frame = request(version, 7, bytes(100))
    shape = shape_of(frame, version)
    view = memoryview(frame + frame)
    end = len(frame) + cut if cut > 0 else len(view) + cut
    found = shape.find(view, 0, end)
    assert found is not None
    assert [each.next_frame for each in found] == [len(frame)]
    assert shape.find(view[:cut] if cut > 0 else view[:0], 0, max(cut, 0)) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("other", [{"index": 4}, {"acks": -1}, {"timeout": 6}])
def test_another_request_ends_the_run(version: int, other: dict[str, int]) -> None:
    frame, stranger = request(version, 7, bytes(100)), request(version, 8, bytes(100), **other)
    shape = shape_of(frame, version)
    found = shape.find(memoryview(frame + stranger + frame), 0, 2 * len(frame) + len(stranger))
    assert found is not None
    assert len(found) == 1
    assert shape.find(memoryview(stranger + frame), 0, len(frame) + len(stranger)) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_flipping_any_byte_outside_records_and_correlation_id_ends_the_run(version: int) -> None:
    frame = request(version, 7, bytes(100))
    shape = shape_of(frame, version)
    _, start, stop = read(memoryview(frame), 0, len(frame))
    for place in range(len(frame)):
        if not (8 <= place < 12 or start <= place < stop):
            changed = bytearray(frame)
            changed[place] ^= 0x01
            assert not shape.find(memoryview(bytes(changed) + frame), 0, 2 * len(frame)), place


def test_a_run_is_bounded() -> None:
    frame = request(9, 7, bytes(10))
    view = memoryview(frame * (LONGEST_RUN + 5))
    found = shape_of(frame, 9).find(view, 0, len(view))
    assert found is not None
    assert len(found) == LONGEST_RUN


def test_versions_without_zstd_and_empty_requests_have_no_shape() -> None:
    for version, records in ((6, b"x"), (9, b"")):
        view = memoryview(request(version, 1, records))
        header = read_request_header(view, 4, len(view))
        (part,) = read_produce(view, header.body_position, len(view), version).topics[0].partitions
        assert ProduceShape.of(view, 4, len(view), version, part) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("correlation_id", "offset", "start"), [(0, 0, 0), (-1, 2**62, 7), (9, 5, 2**40)])
def test_plain_replies_are_those_of_the_full_writer(
    version: int, correlation_id: int, offset: int, start: int
) -> None:
    name, topic_id = (None, TOPIC_ID) if version >= 13 else ("topic", None)
    replies, frames = RunReplies(version, name, topic_id, 3), [RunFrame(correlation_id, 0, 0, 0)]
    results = [ProduceResult(3, 0, offset, -1, start)]
    expected = write_produce_reply(version, correlation_id, [(name, topic_id, results)])
    assert replies.pack(ErrorCode.none, frames, [offset], start) == expected
    failed = [ProduceResult(3, ErrorCode.request_timed_out)]
    expected = write_produce_reply(version, correlation_id, [(name, topic_id, failed)])
    assert replies.pack(ErrorCode.request_timed_out, frames, [offset], start) == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("code", [ErrorCode.none, ErrorCode.request_timed_out])
def test_replies_to_a_throttled_client_say_how_long(version: int, code: ErrorCode) -> None:
    name, topic_id = (None, TOPIC_ID) if version >= 13 else ("topic", None)
    replies, frames = RunReplies(version, name, topic_id, 3), [RunFrame(9, 0, 0, 0)]
    result = ProduceResult(3, 0, 7, -1, 2) if code is ErrorCode.none else ProduceResult(3, code)
    expected = write_produce_reply(version, 9, [(name, topic_id, [result])], throttle_ms=70_000)
    assert replies.pack(code, frames, [7], 2, 70_000) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_little_is_kept_of_a_request_whatever_it_carries(version: int) -> None:
    frame = request(version, 1, b"records") + bytes(100_000)
    view = memoryview(frame)
    header = read_request_header(view, 4, len(view))
    (part,) = read_produce(view, header.body_position, len(view), version).topics[0].partitions
    assert ProduceShape.of(view, 4, len(view), version, part) is None
