# SPDX-License-Identifier: Apache-2.0
"""What followers and leaders say to each other: each side's bytes, read by the other side's code."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DecodeError
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import read_request_header
from headrace.wire.messages import request_frame
from headrace.wire.requests.fetch import FetchResult, read_fetch, write_fetch_reply
from headrace.wire.requests.replica_fetch import (
    REPLICA_FETCH_VERSION,
    ReplicaQuestion,
    read_replica_fetch_reply,
    write_replica_fetch,
)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
offsets = st.integers(0, 2**63 - 1)
ids = st.uuids()
questions = st.builds(ReplicaQuestion, int32, int32, int64, int32, int64, int32)
asked_topics = st.lists(st.tuples(ids, st.lists(questions, max_size=3)), max_size=3)
divergences = st.none() | st.tuples(int32, int64)
results = st.builds(
    FetchResult,
    index=int32,
    error_code=st.integers(-1, 130),
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    aborted=st.none() | st.just(()) | st.just(((1, 2), (3, 4))),
    preferred_read_replica=st.just(-1),
    leader_id=st.sampled_from((-1, 5)),
    leader_epoch=int32,
    size=st.integers(0, 40),
    diverging=divergences,
)
told_topics = st.lists(
    st.tuples(ids, st.lists(results, max_size=2, unique_by=lambda each: each.index)),
    max_size=2,
    unique_by=lambda each: each[0],
)


@given(int32, int64, asked_topics, int32, int32)
def test_a_leader_reads_what_a_follower_asks(
    node: int,
    node_epoch: int,
    topics: list[tuple[uuid.UUID, list[ReplicaQuestion]]],
    max_wait_ms: int,
    max_bytes: int,
) -> None:
    rest = write_replica_fetch(node, node_epoch, topics, max_wait_ms=max_wait_ms, max_bytes=max_bytes)
    view = memoryview(request_frame(ApiKey.FETCH, REPLICA_FETCH_VERSION, 7, "node-1", rest))
    header = read_request_header(view, 4, len(view))
    assert (header.correlation_id, header.client_id) == (7, "node-1")
    read = read_fetch(view, header.body_position, len(view), REPLICA_FETCH_VERSION)
    assert (read.replica_id, read.replica_epoch) == (node, node_epoch)
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes) == (max_wait_ms, 1, max_bytes)
    assert (read.session_id, read.session_epoch, read.forgotten) == (0, -1, [])
    assert [(topic.topic_id, list(map(tuple, topic.partitions))) for topic in read.topics] == [
        (topic_id, list(map(tuple, asked))) for topic_id, asked in topics
    ]


def reply_bytes(topics: list[tuple[uuid.UUID, list[FetchResult]]], error_code: int = 0) -> bytes:
    told = [(None, topic_id, parts) for topic_id, parts in topics]
    chunks = write_fetch_reply(REPLICA_FETCH_VERSION, 9, error_code, 0, told)
    sizes = [result.size for _, parts in topics for result in parts if result.size]
    records = [bytes([number % 251]) * size for number, size in enumerate(sizes)] + [b""]
    frame = b"".join(piece for pair in zip(chunks, records, strict=True) for piece in pair)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


@given(told_topics, st.sampled_from((0, 70)))
def test_a_follower_reads_what_a_leader_answers(
    topics: list[tuple[uuid.UUID, list[FetchResult]]], error_code: int
) -> None:
    code, answers = read_replica_fetch_reply(memoryview(reply_bytes(topics, error_code)))
    assert code == error_code
    told = {(topic_id, result.index): result for topic_id, parts in topics for result in parts}
    assert answers.keys() == told.keys()
    for key, answer in answers.items():
        result = told[key]
        assert answer.error_code == result.error_code
        assert (answer.high_watermark, answer.log_start) == (result.high_watermark, result.log_start_offset)
        assert (answer.diverging, len(answer.records)) == (result.diverging, result.size)
        assert len(set(answer.records)) <= 1, "bytes of one partition only"


@given(told_topics, st.data())
def test_a_reply_that_is_cut_off_is_refused(
    topics: list[tuple[uuid.UUID, list[FetchResult]]], data: st.DataObject
) -> None:
    frame = reply_bytes(topics)
    cut = data.draw(st.integers(0, len(frame) - 2))
    with pytest.raises(DecodeError):
        read_replica_fetch_reply(memoryview(frame[:cut]))
