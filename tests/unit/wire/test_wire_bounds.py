# SPDX-License-Identifier: Apache-2.0
"""Frames made of nothing but tiny entries: refused before they fill memory or burn time (S1)."""

from __future__ import annotations

import struct

import pytest

from headrace.errors import DecodeError
from headrace.wire.messages import decode_request
from headrace.wire.primitives import MAX_TAGGED_FIELDS, read_uvarint, uvarint
from headrace.wire.requests.fetch import read_fetch
from headrace.wire.requests.produce import read_produce
from headrace.wire.requests.topic_entries import MAX_PARTITIONS_PER_REQUEST

MANY = MAX_PARTITIONS_PER_REQUEST + 1
FETCH_V11 = struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1)
FETCH_V12 = FETCH_V11  # the same, then compact arrays
LEGACY_ENTRY = b"\0\0" + bytes(4)  # no name, no partitions
FLEXIBLE_ENTRY = b"\1\1\0"


def fetch(body: bytes, version: int) -> None:
    read_fetch(memoryview(body), 0, len(body), version)


def test_fetch_of_too_many_topics() -> None:
    with pytest.raises(DecodeError, match="more than"):
        fetch(FETCH_V11 + struct.pack(">i", MANY) + LEGACY_ENTRY * MANY, 11)
    with pytest.raises(DecodeError, match="more than"):
        fetch(FETCH_V12 + uvarint(MANY + 1) + FLEXIBLE_ENTRY * MANY, 12)


def test_a_fetch_with_too_many_forgotten_topics_is_refused() -> None:
    with pytest.raises(DecodeError, match="more than"):
        fetch(FETCH_V11 + bytes(4) + struct.pack(">i", MANY) + LEGACY_ENTRY * MANY, 11)
    with pytest.raises(DecodeError, match="more than"):
        fetch(FETCH_V12 + b"\1" + uvarint(MANY + 1) + FLEXIBLE_ENTRY * MANY, 12)


def test_produce_of_too_many_topics() -> None:
    body = b"\xff\xff" + bytes(6) + struct.pack(">i", MANY) + LEGACY_ENTRY * MANY
    with pytest.raises(DecodeError, match="more than"):
        read_produce(memoryview(body), 0, len(body), 3)


@pytest.mark.parametrize("count", [MAX_TAGGED_FIELDS + 1, 500_000])
def test_too_many_tagged_fields(count: int) -> None:
    tags = uvarint(count) + b"\x50\0" * count
    produce = b"\0" + bytes(6) + b"\1" + tags
    with pytest.raises(DecodeError, match="tagged fields"):
        read_produce(memoryview(produce), 0, len(produce), 9)
    with pytest.raises(DecodeError, match="tagged fields"):
        fetch(FETCH_V12 + b"\1\1\1" + tags, 12)
    describe_cluster = b"\0" + tags
    with pytest.raises(DecodeError, match="tagged fields"):
        decode_request(60, 0, memoryview(describe_cluster), 0, len(describe_cluster))


def test_as_many_tagged_fields_as_allowed_pass() -> None:
    produce = b"\0" + bytes(6) + b"\1" + uvarint(MAX_TAGGED_FIELDS) + b"\x50\0" * MAX_TAGGED_FIELDS
    assert read_produce(memoryview(produce), 0, len(produce), 9).topics == []


def test_a_fetch_takes_its_replica_from_the_tag_only_when_it_is_whole() -> None:
    body = struct.pack(">iiibii", 0, 0, 0, 0, 0, -1) + b"\1\1\1"
    state = struct.pack(">iq", 3, 9) + b"\0"
    whole = body + b"\1\1" + uvarint(len(state)) + state
    request = read_fetch(memoryview(whole), 0, len(whole), 15)
    assert (request.replica_id, request.replica_epoch) == (3, 9)
    short = body + b"\1\1\4" + bytes(4) + bytes(20)
    with pytest.raises(DecodeError, match="replica state"):
        read_fetch(memoryview(short), 0, len(short), 15)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 2**31 - 1])
def test_unsigned_varints(value: int) -> None:
    encoded = uvarint(value)
    assert read_uvarint(memoryview(encoded), 0) == (value, len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x08", b"\xff\xff\xff\xff\xff\x01", b"\x80" * 5])
def test_unsigned_varints_of_more_than_31_bits_are_refused(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(memoryview(encoded), 0)
