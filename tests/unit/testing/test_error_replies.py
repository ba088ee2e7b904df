# SPDX-License-Identifier: Apache-2.0
"""A fault of the test broker answers every API in every version with an error that clients can read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from headrace.testing.embedded.error_replies import error_reply, metadata_with_error, names_no_partitions
from headrace.testing.embedded.message_fields import field_specs, first_value, topics_of
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS, read_request_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.kio_codec.schema import fields_of, message_class
from headrace.wire.messages import decode_reply, decode_request, encode_reply, encode_request

ERROR = ErrorCode.not_leader_or_follower
PLAIN = {"string": "x", "uuid": UUID(int=7), "bytes": b"", "records": b"", "bool": False}
VERSIONS = {key: (api.accepted[0], api.accepted[-1]) for key, api in APIS.items()}


def sample(cls: Any) -> dict[str, Any]:
    """One item in every list."""
    fields: dict[str, Any] = {}
    for spec in fields_of(cls):
        value = PLAIN.get(spec.kind, 1) if spec.struct is None else sample(spec.struct)
        fields[spec.name] = [value] if spec.is_array else value
    return fields


def request_of(key: int, version: int, fields: dict[str, Any] | None = None) -> Any:
    given = sample(message_class(APIS[key].name, version, "request")) if fields is None else fields
    frame = encode_request(key, version, 1, "billing", given)
    position = read_request_header(memoryview(frame), 4, len(frame)).body_position
    return decode_request(key, version, memoryview(frame), position, len(frame))


def reply_of(key: int, version: int, request: Any, error: ErrorCode = ERROR) -> Any:
    return decode_reply(key, version, memoryview(error_reply(key, version, 1, request, error))[4:])[1]


def errors_in(message: Any) -> Iterator[ErrorCode]:
    for spec in field_specs(message):
        value = getattr(message, spec.name)
        if spec.kind == "error_code":
            yield value
        for item in value if isinstance(value, tuple) else ():
            yield from errors_in(item)


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_api_has_a_place_for_the_error(key: int) -> None:
    for version in APIS[key].accepted:
        found = set(errors_in(reply_of(key, version, request_of(key, version))))
        assert found - {ErrorCode.none} == {ERROR}, f"version {version}"


def test_topics_and_partitions_are_answered_one_by_one() -> None:
    fields = {"acks": 1, "topic_data": [{"name": "orders", "partition_data": [{"index": 0}, {"index": 3}]}]}
    reply = reply_of(ApiKey.PRODUCE, 9, request_of(ApiKey.PRODUCE, 9, fields))
    (topic,) = reply.responses
    assert topic.name == "orders"
    assert [each.index for each in topic.partition_responses] == [0, 3]


def test_an_error_of_a_partition_is_not_that_of_a_fetch_session() -> None:
    request = request_of(ApiKey.FETCH, 11)
    assert reply_of(ApiKey.FETCH, 11, request).error_code is ErrorCode.none
    session = reply_of(ApiKey.FETCH, 11, request, ErrorCode.invalid_fetch_session_epoch)
    assert (session.error_code, session.responses) == (ErrorCode.invalid_fetch_session_epoch, ())


@pytest.mark.parametrize(("epoch", "expected"), [(0, False), (-1, False), (1, True)])
def test_a_fetch_of_a_session_names_no_partitions(epoch: int, expected: bool) -> None:
    request = request_of(ApiKey.FETCH, 11, {"session_id": 5, "session_epoch": epoch, "topics": []})
    assert names_no_partitions(request) is expected


def test_an_unsupported_version_is_answered_in_version_0_with_those_that_are() -> None:
    frame = error_reply(
        ApiKey.API_VERSIONS, 4, 1, request_of(ApiKey.API_VERSIONS, 4), ErrorCode.unsupported_version
    )
    _, reply = decode_reply(ApiKey.API_VERSIONS, 0, memoryview(frame)[4:])
    assert reply.error_code is ErrorCode.unsupported_version
    assert [(each.api_key, each.max_version) for each in reply.api_keys] == [(18, VERSIONS[18][1])]


@pytest.mark.parametrize("version", APIS[ApiKey.METADATA].accepted)
def test_metadata_with_an_error_still_names_the_nodes(version: int) -> None:
    topics = [{"name": name, "partitions": [{"partition_index": 0, "leader_id": 1}]} for name in ("a", "b")]
    fields = {"brokers": [{"node_id": 1, "host": "h", "port": 9092}], "topics": topics}
    frame = metadata_with_error(
        encode_reply(ApiKey.METADATA, version, 7, fields), version, ERROR, lambda topic: topic == "a"
    )
    correlation_id, reply = decode_reply(ApiKey.METADATA, version, memoryview(frame)[4:])
    assert (correlation_id, reply.brokers[0].port) == (7, 9092)
    assert [each.error_code for each in reply.topics] == [ERROR, ErrorCode.none]
    assert [len(each.partitions) for each in reply.topics] == [0, 1]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (ApiKey.PRODUCE, {"x": (1,)}),
        (ApiKey.FETCH, {"x": (1,)}),
        (ApiKey.LIST_OFFSETS, {"x": (1,)}),
        (ApiKey.METADATA, {"x": ()}),
        (ApiKey.OFFSET_COMMIT, {"x": (1,)}),
        (ApiKey.OFFSET_FETCH, {"x": (1,)}),
        (ApiKey.ADD_PARTITIONS_TO_TXN, {"x": (1,)}),
        (ApiKey.TXN_OFFSET_COMMIT, {"x": (1,)}),
        (ApiKey.CREATE_TOPICS, {"x": ()}),
        (ApiKey.DELETE_TOPICS, {"x": ()}),
        (ApiKey.FIND_COORDINATOR, {}),
    ],
)
def test_the_topics_of_a_request_are_found_in_every_version(key: ApiKey, expected: dict[str, Any]) -> None:
    for version in APIS[key].accepted:
        assert topics_of(request_of(key, version), lambda _: "x") == expected, f"version {version}"


@pytest.mark.parametrize("version", APIS[ApiKey.OFFSET_FETCH].accepted)
def test_the_group_of_a_request_is_found(version: int) -> None:
    assert first_value(request_of(ApiKey.OFFSET_FETCH, version), "group_id") == "x"
