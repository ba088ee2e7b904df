# SPDX-License-Identifier: Apache-2.0
"""The hand-written Produce and Fetch code against kio: every version, any content, both ways."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import DecodeError
from headrace.types import NO_TOPIC_ID
from headrace.wire.kio_codec.schema import message_class
from headrace.wire.requests.fetch import FetchRequest, FetchResult, read_fetch, write_fetch_reply
from headrace.wire.requests.produce import ProduceRequest, ProduceResult, read_produce, write_produce_reply
from headrace.wire.requests.topic_entries import MAX_PARTITIONS_PER_REQUEST, NodeEndpoint
from tests.property.wire.kio_oracle import (
    EPOCH,
    QUICK,
    add_unknown_tags,
    decode,
    encode,
    entities,
    reply_body,
    tree_of,
    without_tags,
)

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
THOROUGH = settings(QUICK, max_examples=60)

produce_versions = pytest.mark.parametrize("version", PRODUCE_VERSIONS)
fetch_versions = pytest.mark.parametrize("version", FETCH_VERSIONS)

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=20) | st.text(min_size=126, max_size=140)
padding = st.binary(max_size=5)
topic_ids = st.uuids() | st.just(NO_TOPIC_ID)
endpoints = st.lists(
    st.builds(NodeEndpoint, node_id=int32, host=texts, port=int32, rack=st.none() | texts), max_size=2
)


def expected_topic(topic: Any) -> tuple[str | None, uuid.UUID | None]:
    """(name, id) as we hold them; kio takes the zero id for None."""
    if hasattr(topic, "topic_id"):
        return None, topic.topic_id or NO_TOPIC_ID
    return getattr(topic, "name", None) if hasattr(topic, "name") else topic.topic, None


# Produce requests


def check_produce(request: ProduceRequest, oracle: Any, frame: bytes) -> None:
    assert request.transactional_id == oracle.transactional_id
    assert request.acks == oracle.acks
    assert request.timeout_ms == tree_of(oracle.timeout)
    assert len(request.topics) == len(oracle.topic_data)
    for topic, expected in zip(request.topics, oracle.topic_data, strict=True):
        assert (topic.name, topic.topic_id) == expected_topic(expected)
        assert [partition.index for partition in topic.partitions] == [
            partition.index for partition in expected.partition_data
        ]
        assert [frame[partition.start : partition.end] for partition in topic.partitions] == [
            partition.records or b"" for partition in expected.partition_data
        ]


@produce_versions
def test_a_produce_request_of_kio_is_read(version: int) -> None:
    @THOROUGH
    @given(entities(message_class("produce", version, "request")), padding, padding)
    def check(oracle: Any, before: bytes, after: bytes) -> None:
        body = encode(oracle)
        frame = before + body + after
        end = len(before) + len(body)
        check_produce(read_produce(memoryview(frame), len(before), end, version), oracle, frame)

    check()


@pytest.mark.parametrize("version", range(9, 14))
def test_a_produce_request_may_hold_unknown_tagged_fields(version: int) -> None:
    @QUICK
    @given(entities(message_class("produce", version, "request")), st.binary(min_size=1, max_size=200))
    def check(oracle: Any, unknown: bytes) -> None:
        frame = encode(add_unknown_tags(oracle, unknown))
        check_produce(read_produce(memoryview(frame), 0, len(frame), version), oracle, frame)

    check()


# Produce replies

produce_results = st.builds(
    ProduceResult,
    index=int32,
    error_code=st.sampled_from((0, 3, 6, 87)),
    base_offset=int64,
    log_append_time=st.just(-1) | st.integers(0, 1 << 42),
    log_start_offset=int64,
    error_message=st.none() | texts,
    leader_id=st.integers(-1, 5),
    leader_epoch=int32,
    refused_records=st.dictionaries(int32, st.none() | texts, max_size=3),
)
produce_topics = st.lists(st.tuples(texts, topic_ids, st.lists(produce_results, max_size=3)), max_size=3)


def check_produce_result(result: ProduceResult, read: Any, version: int) -> None:
    assert read.index == result.index
    assert read.error_code == result.error_code
    assert read.base_offset == result.base_offset
    append_time = -1 if read.log_append_time is None else tree_of(read.log_append_time)
    assert append_time == result.log_append_time
    if version >= 5:
        assert read.log_start_offset == result.log_start_offset
    if version >= 8:
        assert [each.batch_index for each in read.record_errors] == list(result.refused_records)
        for each in read.record_errors:
            own = result.refused_records[each.batch_index]
            assert each.batch_index_error_message == (result.error_message if own is None else own)
        assert read.error_message == result.error_message
    if version >= 10:
        hint = (result.leader_id, result.leader_epoch) if result.leader_id >= 0 else (-1, -1)
        assert (read.current_leader.leader_id, read.current_leader.leader_epoch) == hint


@produce_versions
def test_kio_reads_our_produce_reply(version: int) -> None:
    cls = message_class("produce", version, "response")

    @THOROUGH
    @given(produce_topics, int32, int32, endpoints)
    def check(topics: Any, correlation_id: int, throttle_ms: int, nodes: list[NodeEndpoint]) -> None:
        frame = write_produce_reply(
            version, correlation_id, topics, throttle_ms=throttle_ms, node_endpoints=nodes
        )
        reply = decode(cls, reply_body(cls, frame, correlation_id))
        assert tree_of(reply.throttle_time) == throttle_ms
        for (name, topic_id, results), read in zip(topics, reply.responses, strict=True):
            assert expected_topic(read) == ((name, None) if version < 13 else (None, topic_id))
            for result, partition in zip(results, read.partition_responses, strict=True):
                check_produce_result(result, partition, version)
        if version >= 10:
            check_endpoints(nodes, reply)

    check()


def check_endpoints(nodes: list[NodeEndpoint], reply: Any) -> None:
    assert [(node.node_id, node.host, node.port, node.rack) for node in reply.node_endpoints] == nodes


# Fetch requests


def check_fetch(request: FetchRequest, oracle: Any) -> None:
    replica = getattr(oracle, "replica_state", oracle)
    assert request.replica_id == replica.replica_id
    assert request.replica_epoch == getattr(replica, "replica_epoch", -1)
    assert request.max_wait_ms == tree_of(oracle.max_wait)
    for name, default in (
        ("min_bytes", None),
        ("max_bytes", None),
        ("isolation_level", None),
        ("session_id", 0),
        ("session_epoch", -1),
        ("rack_id", ""),
        ("cluster_id", None),
    ):
        assert getattr(request, name) == getattr(oracle, name, default), name
    for topic, expected in zip(request.topics, oracle.topics, strict=True):
        assert (topic.name, topic.topic_id) == expected_topic(expected)
        for partition, wanted in zip(topic.partitions, expected.partitions, strict=True):
            assert partition == (
                wanted.partition,
                getattr(wanted, "current_leader_epoch", -1),
                wanted.fetch_offset,
                getattr(wanted, "last_fetched_epoch", -1),
                getattr(wanted, "log_start_offset", -1),
                wanted.partition_max_bytes,
            )
    forgotten = getattr(oracle, "forgotten_topics_data", ())
    assert request.forgotten == [(*expected_topic(topic), list(topic.partitions)) for topic in forgotten]


@fetch_versions
def test_a_fetch_request_of_kio_is_read(version: int) -> None:
    @THOROUGH
    @given(entities(message_class("fetch", version, "request")), padding, padding)
    def check(oracle: Any, before: bytes, after: bytes) -> None:
        body = encode(oracle)
        view = memoryview(before + body + after)
        check_fetch(read_fetch(view, len(before), len(before) + len(body), version), oracle)

    check()


@pytest.mark.parametrize("version", range(12, 19))
def test_a_fetch_request_may_hold_unknown_tagged_fields(version: int) -> None:
    @QUICK
    @given(entities(message_class("fetch", version, "request")), st.binary(min_size=1, max_size=200))
    def check(oracle: Any, unknown: bytes) -> None:
        frame = encode(add_unknown_tags(oracle, unknown))
        check_fetch(read_fetch(memoryview(frame), 0, len(frame), version), without_tags(oracle))

    check()


# Fetch replies

fetch_results = st.builds(
    FetchResult,
    index=int32,
    error_code=st.sampled_from((0, 1, 6, 74)),
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    aborted=st.none() | st.lists(st.tuples(int64, int64), max_size=3).map(tuple),
    preferred_read_replica=int32,
    size=st.just(0) | st.integers(1, 300),
    leader_id=st.integers(-1, 5),
    leader_epoch=int32,
    diverging=st.none() | st.tuples(st.integers(0, 9), int64),
)
fetch_topics = st.lists(st.tuples(texts, topic_ids, st.lists(fetch_results, max_size=3)), max_size=3)


def records_for(number: int, size: int) -> bytes:
    return bytes((number % 251,)) * size


def join(chunks: list[bytes], sizes: list[int]) -> bytes:
    """The frame as the broker sends it: records between the chunks."""
    assert len(chunks) == len(sizes) + 1
    parts = [chunks[0]]
    for number, size in enumerate(sizes):
        parts += (records_for(number, size), chunks[number + 1])
    return b"".join(parts)


def check_fetch_result(result: FetchResult, read: Any, version: int) -> None:
    assert read.partition_index == result.index
    assert read.error_code == result.error_code
    assert read.high_watermark == result.high_watermark
    assert read.last_stable_offset == result.last_stable_offset
    if version >= 5:
        assert read.log_start_offset == result.log_start_offset
    aborted = read.aborted_transactions
    if aborted is not None:
        aborted = tuple((item.producer_id, item.first_offset) for item in aborted)
    assert aborted == result.aborted
    if version >= 11:
        assert read.preferred_read_replica == result.preferred_read_replica
    if version >= 12:
        hint = (result.leader_id, result.leader_epoch) if result.leader_id >= 0 else (-1, -1)
        assert (read.current_leader.leader_id, read.current_leader.leader_epoch) == hint
        diverging = (read.diverging_epoch.epoch, read.diverging_epoch.end_offset)
        assert diverging == (result.diverging or (-1, -1))


@fetch_versions
def test_kio_reads_our_fetch_reply(version: int) -> None:
    cls = message_class("fetch", version, "response")

    @THOROUGH
    @given(fetch_topics, int32, int32, int32, endpoints)
    def check(
        topics: Any, correlation_id: int, throttle_ms: int, session_id: int, nodes: list[NodeEndpoint]
    ) -> None:
        chunks = write_fetch_reply(
            version, correlation_id, 71, session_id, topics, throttle_ms=throttle_ms, node_endpoints=nodes
        )
        sizes = [result.size for _, _, results in topics for result in results if result.size]
        reply = decode(cls, reply_body(cls, join(chunks, sizes), correlation_id))
        assert tree_of(reply.throttle_time) == throttle_ms
        if version >= 7:
            assert (reply.error_code, reply.session_id) == (71, session_id)
        number = 0
        for (name, topic_id, results), read in zip(topics, reply.responses, strict=True):
            assert expected_topic(read) == ((name, None) if version < 13 else (None, topic_id))
            for result, partition in zip(results, read.partitions, strict=True):
                check_fetch_result(result, partition, version)
                assert partition.records == records_for(number, result.size)
                number += bool(result.size)
        if version >= 16:
            check_endpoints(nodes, reply)

    check()


def test_the_time_of_the_epoch_is_what_kio_takes_it_for() -> None:
    """Guards the oracle: a reply's append time of 0 is 1970."""
    cls = message_class("produce", 9, "response")
    frame = write_produce_reply(9, 1, [("t", None, [ProduceResult(0, log_append_time=0)])])
    reply = decode(cls, reply_body(cls, frame, 1))
    assert reply.responses[0].partition_responses[0].log_append_time == EPOCH


# Bounds


@pytest.mark.parametrize("version", [8, 12, 13])
def test_more_partitions_than_any_node_holds_are_refused(version: int) -> None:
    request = message_class("produce", version, "request")
    topic = request.__dataclass_fields__["topic_data"].type.__args__[0]
    partition = topic.__dataclass_fields__["partition_data"].type.__args__[0]
    name = {"topic_id": uuid.UUID(int=1)} if version >= 13 else {"name": "t"}
    partitions = (partition(index=0, records=None),) * (MAX_PARTITIONS_PER_REQUEST // 2)
    topics = (topic(**name, partition_data=partitions),) * 3
    frame = encode(request(acks=1, timeout=EPOCH - EPOCH, topic_data=topics))
    with pytest.raises(DecodeError, match="more than"):
        read_produce(memoryview(frame), 0, len(frame), version)


@pytest.mark.parametrize("version", [0, 2, 14, -1])
def test_other_versions_of_produce_are_refused(version: int) -> None:
    with pytest.raises(DecodeError, match=str(version)):
        read_produce(memoryview(bytes(50)), 0, 50, version)


@pytest.mark.parametrize("version", [0, 3, 19, -1])
def test_other_versions_of_fetch_are_refused(version: int) -> None:
    with pytest.raises(DecodeError, match=str(version)):
        read_fetch(memoryview(bytes(50)), 0, 50, version)
