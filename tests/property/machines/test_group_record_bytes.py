# SPDX-License-Identifier: Apache-2.0
"""Coordinator records: what is written is read back, and bytes of no meaning raise DecodeError alone."""

from __future__ import annotations

import contextlib
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import DecodeError
from headrace.types import NO_TOPIC_ID
from headrace.wire.coordinator.consumer_protocol import assigned_partitions, subscribed_topics
from headrace.wire.coordinator.group_records import (
    NO_EPOCH,
    NO_TIMESTAMP,
    CommittedOffset,
    GroupMetadata,
    GroupMetadataRecord,
    GroupRecord,
    MemberMetadata,
    OffsetCommitRecord,
    decode,
    encode,
)

texts = st.text(st.characters(codec="utf-8"), max_size=300)
int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
uuids = st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number))

members = st.builds(
    MemberMetadata,
    member_id=texts,
    group_instance_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    rebalance_timeout_ms=st.integers(0, 2**31 - 1),
    session_timeout_ms=int32s,
    subscription=st.binary(max_size=400),
    assignment=st.binary(max_size=400),
)
groups = st.builds(
    GroupMetadata,
    protocol_type=texts,
    generation=int32s,
    protocol=st.none() | texts,
    leader=st.none() | texts,
    current_state_timestamp=int64s,
    members=st.lists(members, max_size=3).map(tuple),
)
present_offsets = st.builds(
    CommittedOffset,
    offset=int64s,
    leader_epoch=int32s,
    metadata=texts,
    commit_timestamp=int64s,
    expire_timestamp=st.just(NO_TIMESTAMP),
    topic_id=uuids,
)
expiring_offsets = st.builds(
    CommittedOffset,
    offset=int64s,
    leader_epoch=st.just(NO_EPOCH),
    metadata=texts,
    commit_timestamp=int64s,
    expire_timestamp=st.integers(0, 2**63 - 1),
    topic_id=st.just(NO_TOPIC_ID),
)
records: st.SearchStrategy[GroupRecord] = st.one_of(
    st.builds(GroupMetadataRecord, group_id=texts, value=st.none() | groups),
    st.builds(
        OffsetCommitRecord,
        group_id=texts,
        topic=texts,
        partition=int32s,
        value=st.none() | present_offsets | expiring_offsets,
    ),
)


@given(record=records)
@settings(max_examples=200, deadline=None)
def test_a_record_comes_back_from_its_bytes(record: GroupRecord) -> None:
    assert decode(*encode(record)) == record


@given(
    kind=st.sampled_from([0, 1, 2, 3, 5, 6, 7, 8, 16]),
    key=st.binary(max_size=40),
    version=st.integers(0, 5),
    value=st.none() | st.binary(max_size=120),
)
@settings(max_examples=500, deadline=None)
def test_bytes_of_no_meaning_are_a_decode_error(
    kind: int, key: bytes, version: int, value: bytes | None
) -> None:
    body = None if value is None else version.to_bytes(2, "big") + value
    with contextlib.suppress(DecodeError):
        decode(kind.to_bytes(2, "big") + key, body)


@given(record=records, data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_flipped_byte_is_read_or_refused(record: GroupRecord, data: st.DataObject) -> None:
    key, value = encode(record)
    whole = bytearray(key + (value or b""))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(DecodeError):
        decode(bytes(whole[: len(key)]), None if value is None else bytes(whole[len(key) :]))


@given(raw=st.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_member_metadata_may_be_any_bytes(raw: bytes) -> None:
    subscribed_topics(raw)
    assigned_partitions(raw)
