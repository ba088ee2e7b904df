# SPDX-License-Identifier: Apache-2.0
"""kio is the oracle: it must read back what the straight-line encoder wrote, in every version."""

from __future__ import annotations

import importlib
import io
import uuid
from typing import Any

import pytest

from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.metadata_reply import (
    NOT_ASKED,
    MetadataPartition,
    MetadataTopic,
    encode_broker,
    encode_metadata_reply,
    encode_topic,
)

VERSIONS = range(14)
TOPIC_ID = uuid.UUID("6a3b1c1e-5a0b-4b7c-9c0d-0123456789ab")
PARTITIONS = (
    MetadataPartition(0, 0, 1, 7, (1, 2, 3), (1, 3), (2,)),
    MetadataPartition(ErrorCode.leader_not_available, 1, -1, 8, (2,), (), (2,)),
    MetadataPartition(0, 2, 4, 0, tuple(range(200)), tuple(range(130)), ()),
)
TOPIC = MetadataTopic(0, "orders", TOPIC_ID, True, PARTITIONS, 3576)
UNKNOWN = MetadataTopic(ErrorCode.unknown_topic_or_partition, "nowhere", None, False, ())


def read_back(version: int, frame: bytes) -> Any:
    from kio.serial import entity_reader

    module = importlib.import_module(f"kio.schema.metadata.v{version}.response")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    start = 9 if version >= 9 else 8
    entity, used = entity_reader(module.MetadataResponse)(frame[start:], 0)
    assert start + used == len(frame)
    return entity


def frame_of(version: int) -> bytes:
    return encode_metadata_reply(
        version,
        brokers=[
            encode_broker(version, 1, "node-1.example", 9092, "rack-a"),
            encode_broker(version, 2, "127.0.0.1", 29092, None),
        ],
        cluster_id="abcdefghijklmnopqrstuv",
        controller_id=2,
        topics=[encode_topic(version, TOPIC), encode_topic(version, UNKNOWN)],
        cluster_authorized_operations=8096,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_decoded_as_encoded(version: int) -> None:
    reply = read_back(version, frame_of(version))

    assert [(broker.node_id, broker.host, broker.port) for broker in reply.brokers] == [
        (1, "node-1.example", 9092),
        (2, "127.0.0.1", 29092),
    ]
    orders, nowhere = reply.topics
    assert (orders.error_code, orders.name) == (ErrorCode.none, "orders")
    assert (nowhere.error_code, nowhere.name) == (ErrorCode.unknown_topic_or_partition, "nowhere")
    assert nowhere.partitions == ()
    for read, meant in zip(orders.partitions, PARTITIONS, strict=True):
        assert (read.error_code, read.partition_index, read.leader_id) == meant[:3]
        assert (read.replica_nodes, read.isr_nodes) == (meant.replicas, meant.isr)


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_of_later_versions_are_there_from_their_version_on(version: int) -> None:
    reply = read_back(version, frame_of(version))
    orders, nowhere = reply.topics
    if version >= 1:
        assert (reply.controller_id, reply.brokers[0].rack, reply.brokers[1].rack) == (2, "rack-a", None)
        assert (orders.is_internal, nowhere.is_internal) == (True, False)
    if version >= 2:
        assert reply.cluster_id == "abcdefghijklmnopqrstuv"
    if version >= 5:
        assert [partition.offline_replicas for partition in orders.partitions] == [(2,), (2,), ()]
    if version >= 7:
        assert [partition.leader_epoch for partition in orders.partitions] == [7, 8, 0]
    if version >= 8:
        operations = [topic.topic_authorized_operations for topic in reply.topics]
        assert operations == [3576, NOT_ASKED]
    if 8 <= version <= 10:
        assert reply.cluster_authorized_operations == 8096
    if version >= 10:
        assert (orders.topic_id, nowhere.topic_id) == (TOPIC_ID, None)
    if version >= 13:
        assert reply.error_code is ErrorCode.none


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_asked_for_by_an_unknown_id_has_no_name(version: int) -> None:
    unknown_id = MetadataTopic(ErrorCode.unknown_topic_id, None, TOPIC_ID, False, ())
    frame = encode_metadata_reply(
        version, brokers=[], cluster_id="c", controller_id=-1, topics=[encode_topic(version, unknown_id)]
    )
    (topic,) = read_back(version, frame).topics
    assert (topic.name, topic.topic_id) == (None, TOPIC_ID)


def test_kio_writes_the_same_bytes() -> None:
    from kio.serial import entity_writer

    module = importlib.import_module("kio.schema.metadata.v12.response")
    frame = frame_of(12)
    written = io.BytesIO()
    entity_writer(module.MetadataResponse)(written, read_back(12, frame))
    assert written.getvalue() == frame[9:]
