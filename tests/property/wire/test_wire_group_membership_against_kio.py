# SPDX-License-Identifier: Apache-2.0
"""JoinGroup's and SyncGroup's own code against kio: the same values from any request, the same bytes for any
reply as the general codec, and nothing but DecodeError for anything else."""

from __future__ import annotations

import datetime
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DecodeError
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import decode_request, encode_reply
from headrace.wire.requests.group_membership import (
    JoinGroupRequest,
    SyncGroupRequest,
    read_join_group,
    read_sync_group,
    write_join_group_reply,
    write_sync_group_reply,
)
from headrace.wire.requests.read_request import read_request
from tests.property.wire.kio_oracle import QUICK, class_of, encode, entities

CASES = [(key, version) for key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP) for version in APIS[key].accepted]
MILLISECOND = datetime.timedelta(milliseconds=1)
TEXTS = st.sampled_from(["", "m", "é" * 80, "member-" * 30])
NULLABLE = st.none() | TEXTS
CODES = st.sampled_from([ErrorCode.none, ErrorCode.rebalance_in_progress, ErrorCode.unknown_server_error])
BLOBS = st.binary(max_size=300)
CORRELATION = st.integers(-(2**31), 2**31 - 1)

every_version = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}-v{case[1]}")
every_join = pytest.mark.parametrize("version", APIS[ApiKey.JOIN_GROUP].accepted)
every_sync = pytest.mark.parametrize("version", APIS[ApiKey.SYNC_GROUP].accepted)


def read(case: tuple[int, int], data: memoryview, end: int) -> object:
    reader = read_join_group if case[0] == ApiKey.JOIN_GROUP else read_sync_group
    return reader(case[1], data, 0, end)


def expected(case: tuple[int, int], request: Any) -> object:
    instance_id = getattr(request, "group_instance_id", None)
    if case[0] == ApiKey.SYNC_GROUP:
        return SyncGroupRequest(
            request.group_id,
            request.generation_id,
            request.member_id,
            instance_id,
            getattr(request, "protocol_type", None),
            getattr(request, "protocol_name", None),
            tuple((each.member_id, each.assignment) for each in request.assignments),
        )
    rebalance_timeout = getattr(request, "rebalance_timeout", None)
    return JoinGroupRequest(
        request.group_id,
        request.session_timeout // MILLISECOND,
        None if rebalance_timeout is None else rebalance_timeout // MILLISECOND,
        request.member_id,
        instance_id,
        request.protocol_type,
        tuple((each.name, each.metadata) for each in request.protocols),
        getattr(request, "reason", None),
    )


@every_version
def test_every_request_is_read_as_kio_reads_it(case: tuple[int, int]) -> None:
    @QUICK
    @given(entities(class_of(case, "request")))
    def check(request: Any) -> None:
        data = memoryview(encode(request) + b"more")
        assert read(case, data, len(data) - 4) == expected(case, request)
        assert read_request(*case, data, 0, len(data) - 4) == expected(case, request)

    check()


@every_version
def test_whatever_is_cut_off_is_refused(case: tuple[int, int]) -> None:
    @QUICK
    @given(entities(class_of(case, "request")), st.data())
    def check(request: Any, data: st.DataObject) -> None:
        whole = encode(request)
        cut = data.draw(st.integers(0, len(whole) - 1))
        with pytest.raises(DecodeError):
            read(case, memoryview(whole), cut)

    check()


@every_version
def test_damaged_requests_are_read_as_by_the_general_codec_or_refused_as_by_it(case: tuple[int, int]) -> None:
    @QUICK
    @given(entities(class_of(case, "request")), st.data())
    def check(request: Any, data: st.DataObject) -> None:
        damaged = bytearray(encode(request))
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        view, found, general = memoryview(bytes(damaged)), None, None
        with suppress(DecodeError):
            general = decode_request(*case, view, 0, len(view))
        with suppress(DecodeError):
            found = read(case, view, len(view))
        assert found == (None if general is None else expected(case, general))

    check()


@every_join
def test_every_join_reply_has_the_bytes_of_the_general_codec(version: int) -> None:
    @QUICK
    @given(
        CORRELATION,
        CODES,
        st.integers(-1, 2**31 - 1),
        NULLABLE,
        NULLABLE,
        TEXTS,
        st.booleans(),
        st.lists(st.tuples(TEXTS, NULLABLE, BLOBS), max_size=130),
    )
    def check(
        correlation_id: int,
        error: ErrorCode,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        member_id: str,
        skip: bool,
        members: list[tuple[str, str | None, bytes]],
    ) -> None:
        fields = {
            "error_code": error,
            "generation_id": generation,
            "protocol_type": protocol_type,
            "protocol_name": (protocol or "") if version < 7 else protocol,
            "leader": "leader",
            "skip_assignment": skip,
            "member_id": member_id,
            "members": [
                {"member_id": each, "group_instance_id": instance_id, "metadata": metadata}
                for each, instance_id, metadata in members
            ],
        }
        assert write_join_group_reply(
            version,
            correlation_id,
            error=error,
            generation=generation,
            protocol_type=protocol_type,
            protocol=protocol,
            leader="leader",
            skip_assignment=skip,
            member_id=member_id,
            members=members,
        ) == encode_reply(ApiKey.JOIN_GROUP, version, correlation_id, fields)

    check()


@every_sync
def test_every_sync_reply_has_the_bytes_of_the_general_codec(version: int) -> None:
    @QUICK
    @given(CORRELATION, CODES, NULLABLE, NULLABLE, BLOBS)
    def check(
        correlation_id: int, error: ErrorCode, protocol_type: str | None, protocol: str | None, share: bytes
    ) -> None:
        fields = {
            "error_code": error,
            "protocol_type": protocol_type,
            "protocol_name": protocol,
            "assignment": share,
        }
        assert write_sync_group_reply(
            version,
            correlation_id,
            error=error,
            protocol_type=protocol_type,
            protocol=protocol,
            assignment=share,
        ) == encode_reply(ApiKey.SYNC_GROUP, version, correlation_id, fields)

    check()


@pytest.mark.parametrize(("key", "limit"), [(ApiKey.JOIN_GROUP, 1_000), (ApiKey.SYNC_GROUP, 10_000)])
def test_more_items_than_a_request_may_have_are_refused(key: ApiKey, limit: int) -> None:
    head = b"\0\1g" + bytes(4) + b"\0\0" + (b"\0\0" if key is ApiKey.JOIN_GROUP else b"")
    for count in (limit, limit + 1):
        data = memoryview(head + count.to_bytes(4, "big") + bytes(6) * count)
        if count == limit:
            read((key, 0), data, len(data))
        else:
            with pytest.raises(DecodeError, match="too many array items"):
                read((key, 0), data, len(data))
