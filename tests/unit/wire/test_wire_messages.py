# SPDX-License-Identifier: Apache-2.0
"""Rules of the message layer that kio does not have: dropped fields, typos, durations, errors."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pytest

from headrace.wire.error_codes import ErrorCode
from headrace.wire.kio_codec.encoder import EncodedItems
from headrace.wire.messages import decode_reply, decode_request, encode_reply, encode_request

METADATA, CREATE_TOPICS, INIT_PRODUCER_ID, DESCRIBE_TOPIC_PARTITIONS = 3, 19, 22, 75


def test_fields_that_an_older_version_lacks_are_dropped() -> None:
    fields = {
        "throttle_time": 5,
        "cluster_id": "c",
        "topics": [{"name": "t", "topic_id": uuid.UUID(int=1), "partitions": [], "is_internal": True}],
    }
    _, old = decode_reply(METADATA, 0, memoryview(encode_reply(METADATA, 0, 1, fields))[4:])
    assert old.topics[0].name == "t"
    assert not hasattr(old, "cluster_id")
    _, new = decode_reply(METADATA, 12, memoryview(encode_reply(METADATA, 12, 1, fields))[4:])
    assert (new.cluster_id, new.topics[0].topic_id) == ("c", uuid.UUID(int=1))


def test_a_field_that_no_version_has_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match=r"metadata response has no field \['brokres'\]"):
        encode_reply(METADATA, 12, 1, {"brokres": []})
    with pytest.raises(TypeError, match=r"metadata response\.topics\.partitions has no field \['leader'\]"):
        encode_reply(METADATA, 1, 1, {"topics": [{"partitions": [{"leader": 1}]}]})


def test_a_typo_is_found_also_after_fields_were_dropped() -> None:
    encode_reply(METADATA, 1, 1, {"cluster_id": "dropped in version 1"})
    with pytest.raises(TypeError, match="clusterid"):
        encode_reply(METADATA, 1, 1, {"clusterid": "x"})


def test_durations_are_milliseconds_and_errors_may_be_numbers() -> None:
    for code in (ErrorCode.invalid_request, 42):
        frame = encode_reply(INIT_PRODUCER_ID, 4, 9, {"throttle_time": 1500, "error_code": code})
        correlation_id, reply = decode_reply(INIT_PRODUCER_ID, 4, memoryview(frame)[4:])
        assert correlation_id == 9
        assert reply.throttle_time.total_seconds() == 1.5
        assert reply.error_code is ErrorCode.invalid_request
        assert (reply.producer_id, reply.producer_epoch) == (-1, 0)


def test_an_error_code_from_the_future_is_an_unknown_error() -> None:
    frame = encode_reply(INIT_PRODUCER_ID, 4, 9, {"error_code": 9999})
    assert decode_reply(INIT_PRODUCER_ID, 4, memoryview(frame)[4:])[1].error_code == -1


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"producer_id": "seven"}, "producer_id"),
        ({"producer_epoch": 1 << 20}, "producer_epoch"),
        ({"error_code": None}, "error_code"),
    ],
)
def test_a_value_that_does_not_fit_is_named(fields: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        encode_reply(INIT_PRODUCER_ID, 4, 9, fields)


def test_null_where_there_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="null"):
        encode_reply(METADATA, 9, 1, {"topics": None})
    with pytest.raises(ValueError, match="null"):
        encode_reply(METADATA, 9, 1, {"topics": [{"name": None}]})


def test_text_where_a_number_of_bytes_is_due_is_named() -> None:
    with pytest.raises(ValueError, match="cluster_id cannot be 5"):
        encode_reply(METADATA, 9, 1, {"cluster_id": 5})


@pytest.mark.parametrize("cursor", [None, {"topic_name": "t", "partition_index": 3}])
def test_a_struct_may_be_null(cursor: dict[str, object] | None) -> None:
    frame = encode_reply(DESCRIBE_TOPIC_PARTITIONS, 0, 1, {"topics": [], "next_cursor": cursor})
    reply = decode_reply(DESCRIBE_TOPIC_PARTITIONS, 0, memoryview(frame)[4:])[1]
    assert (reply.next_cursor and reply.next_cursor.partition_index) == (cursor and 3)


def test_a_request_survives_the_way_from_client_to_broker() -> None:
    fields = {"topics": [{"name": "t", "num_partitions": 3, "replication_factor": -1}], "timeout": 2000}
    frame = encode_request(CREATE_TOPICS, 7, 4, "cli", fields)
    body = 4 + 8 + 2 + len("cli") + 1
    request = decode_request(CREATE_TOPICS, 7, memoryview(frame), body, len(frame))
    assert (request.topics[0].name, request.topics[0].num_partitions) == ("t", 3)
    assert request.timeout.total_seconds() == 2.0


def test_encoding_an_api_outside_the_table_is_a_mistake_of_the_program() -> None:
    with pytest.raises(KeyError, match="9999"):
        encode_reply(9999, 0, 1, {})


def test_importing_the_layer_loads_no_schema_and_no_test_library() -> None:
    """Start-up time: kio's modules are many, and kio asks for hypothesis when it is there."""
    script = (
        "import sys, headrace.wire.messages, headrace.wire.requests.fetch, headrace.wire.records\n"
        "assert not [m for m in sys.modules if m.startswith(('kio.schema.metadata', 'hypothesis'))]\n"
        "assert 'asyncio' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("version", [1, 4])
def test_items_that_are_encoded_one_by_one_make_the_same_reply(version: int) -> None:
    items = [
        {"resource_type": 2, "resource_name": name, "error_code": 0, "configs": [{"name": "a", "value": "b"}]}
        for name in ("one", "two")
    ]
    encoded = EncodedItems("describe_configs", version, "response", "results")
    for item in items:
        encoded.append(item)
    one_by_one, at_once = ({"results": results} for results in (encoded, items))
    assert encode_reply(32, version, 7, one_by_one) == encode_reply(32, version, 7, at_once)
