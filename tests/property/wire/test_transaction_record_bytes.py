# SPDX-License-Identifier: Apache-2.0
"""Records of `__transaction_state`: what is written is read back, garbage is a DecodeError."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import DecodeError
from headrace.types import TopicPartition
from headrace.wire.coordinator.transaction_records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
    decode,
    encode,
)

texts = st.text(st.characters(codec="utf-8"), max_size=200)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
partition_sets = st.frozensets(st.builds(TopicPartition, st.sampled_from(["t", "u", "ü"]) | texts, int32s))


def without_partitions_if_empty(value: TransactionMetadata) -> TransactionMetadata:
    return value._replace(partitions=frozenset()) if value.state is TransactionState.EMPTY else value


values = st.builds(
    TransactionMetadata,
    producer_id=int64s,
    producer_epoch=int16s,
    timeout_ms=int32s,
    state=st.sampled_from(TransactionState),
    partitions=st.just(frozenset()) | partition_sets,
    last_update_timestamp=int64s,
    start_timestamp=int64s,
    previous_producer_id=st.just(-1) | int64s,
    next_producer_id=st.just(-1) | int64s,
    client_transaction_version=st.sampled_from([0, 2]) | int16s,
    next_producer_epoch=st.just(-1) | int16s,
).map(without_partitions_if_empty)
records = st.builds(TransactionRecord, texts, st.none() | values)


@given(record=records)
@settings(max_examples=300, deadline=None)
def test_a_record_comes_back_from_its_bytes(record: TransactionRecord) -> None:
    assert decode(*encode(record)) == record


@given(
    kind=st.sampled_from([0, 0, 0, 1, 65535]),
    key=st.binary(max_size=20),
    version=st.integers(0, 2),
    value=st.none() | st.binary(max_size=120),
)
@settings(max_examples=500, deadline=None)
def test_bytes_without_meaning_are_a_decode_error(
    kind: int, key: bytes, version: int, value: bytes | None
) -> None:
    body = None if value is None else version.to_bytes(2, "big") + value
    with contextlib.suppress(DecodeError):
        decode(kind.to_bytes(2, "big") + key, body)


@given(record=records, data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_flipped_byte_is_read_or_refused(record: TransactionRecord, data: st.DataObject) -> None:
    key, value = encode(record)
    whole = bytearray(key + (value or b""))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(DecodeError):
        decode(bytes(whole[: len(key)]), None if value is None else bytes(whole[len(key) :]))
