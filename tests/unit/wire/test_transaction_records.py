# SPDX-License-Identifier: Apache-2.0
"""The bytes of `__transaction_state`, compared with what Apache Kafka 4.3.0's own serialiser wrote."""

from __future__ import annotations

import pytest

from headrace.errors import DecodeError
from headrace.types import TopicPartition
from headrace.wire.coordinator.transaction_records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
    decode,
    encode,
)

KEY = bytes.fromhex("0000000474782d31")
UPDATED, STARTED = 1234567890123, 1234567890000
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


def partitions(*names: tuple[str, int]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(*name) for name in names)


EMPTY = TransactionMetadata(
    1000, 0, 60000, TransactionState.EMPTY, NO_PARTITIONS, UPDATED, previous_producer_id=1000
)
PREPARE_COMMIT_OF_THE_LAST_EPOCH = TransactionMetadata(
    1000,
    32767,
    60000,
    TransactionState.PREPARE_COMMIT,
    partitions(("t", 7)),
    UPDATED,
    STARTED,
    previous_producer_id=1000,
    next_producer_id=2000,
    client_transaction_version=2,
)
COMPLETE_ABORT = TransactionMetadata(
    2000,
    0,
    60000,
    TransactionState.COMPLETE_ABORT,
    NO_PARTITIONS,
    UPDATED,
    STARTED,
    previous_producer_id=1000,
    client_transaction_version=2,
)
EVERY_FIELD = TransactionMetadata(
    9,
    1,
    5,
    TransactionState.ONGOING,
    partitions(("a", 1), ("b", 0), ("b", 2)),
    7,
    6,
    previous_producer_id=8,
    next_producer_id=10,
    client_transaction_version=2,
    next_producer_epoch=2,
)
WRITTEN: dict[str, tuple[TransactionMetadata, str]] = {
    "empty: the partitions are null": (
        EMPTY,
        "000100000000000003e800000000ea6000000000011f71fb04cbffffffffffffffff01000800000000000003e8",
    ),
    "prepared with the last epoch, and its next producer id": (
        PREPARE_COMMIT_OF_THE_LAST_EPOCH,
        (
            "000100000000000003e87fff0000ea60020202740200000007000000011f71fb04cb0000011f71fb0450"
            "03000800000000000003e8010800000000000007d002020002"
        ),
    ),
    "complete: no partitions, but not null": (
        COMPLETE_ABORT,
        (
            "000100000000000007d000000000ea6005010000011f71fb04cb0000011f71fb0450"
            "02000800000000000003e802020002"
        ),
    ),
    "every field": (
        EVERY_FIELD,
        (
            "00010000000000000009000100000005010302610200000001000262030000000000000002000000000000000007"
            "000000000000000604000800000000000000080108000000000000000a0202000203020002"
        ),
    ),
}
READ_ONLY: dict[str, tuple[TransactionMetadata, str]] = {
    "partitions in the order of Java's hash set": (
        EMPTY._replace(
            producer_epoch=5,
            state=TransactionState.ONGOING,
            partitions=partitions(("t", 0), ("t", 3)),
            start_timestamp=STARTED,
            client_transaction_version=2,
        ),
        (
            "000100000000000003e800050000ea6001020274030000000300000000000000011f71fb04cb0000011f71fb0450"
            "02000800000000000003e802020002"
        ),
    ),
    "version 0, empty": (
        EMPTY._replace(previous_producer_id=-1),
        "000000000000000003e800000000ea6000ffffffff0000011f71fb04cbffffffffffffffff",
    ),
    "version 0, prepared": (
        EMPTY._replace(
            producer_epoch=3,
            state=TransactionState.PREPARE_ABORT,
            partitions=partitions(("t", 0), ("t", 3)),
            start_timestamp=STARTED,
            previous_producer_id=-1,
        ),
        (
            "000000000000000003e800030000ea6003000000010001740000000200000003000000000000011f71fb04cb"
            "0000011f71fb0450"
        ),
    ),
}


@pytest.mark.parametrize(("value", "raw"), WRITTEN.values(), ids=WRITTEN)
def test_values_are_written_as_kafka_writes_them(value: TransactionMetadata, raw: str) -> None:
    assert encode(TransactionRecord("tx-1", value)) == (KEY, bytes.fromhex(raw))


@pytest.mark.parametrize(
    ("value", "raw"), [*WRITTEN.values(), *READ_ONLY.values()], ids=[*WRITTEN, *READ_ONLY]
)
def test_what_kafka_wrote_is_read(value: TransactionMetadata, raw: str) -> None:
    assert decode(KEY, bytes.fromhex(raw)) == TransactionRecord("tx-1", value)


def test_a_tombstone_has_no_value() -> None:
    assert encode(TransactionRecord("tx-1", None)) == (KEY, None)
    assert decode(KEY, None) == TransactionRecord("tx-1", None)


def test_partitions_are_written_in_order_so_that_equal_states_have_equal_bytes() -> None:
    names = [("u", 1), ("t", 10), ("t", 2), ("u", 0)]
    values = [
        COMPLETE_ABORT._replace(state=TransactionState.ONGOING, partitions=partitions(*order))
        for order in (names, reversed(names))
    ]
    first, second = (encode(TransactionRecord("tx", value)) for value in values)
    assert first == second


def test_tagged_fields_of_a_later_release_are_skipped() -> None:
    raw = bytearray(bytes.fromhex(WRITTEN["complete: no partitions, but not null"][1]))
    raw[34] += 1  # the number of tagged fields
    record = decode(KEY, bytes(raw) + bytes.fromhex("0702abcd"))
    assert record == TransactionRecord("tx-1", COMPLETE_ABORT)


def test_a_key_of_another_type_is_not_ours() -> None:
    assert decode(bytes.fromhex("0001000474782d31"), b"") is None


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (KEY, "0002" + "00" * 40, "has format 2, written by a newer Headrace"),
        (KEY, "ffff" + "00" * 40, "value version -1"),
        (KEY, "000100000000000003e800000000ea6008" + "00" * 20, "transaction state 8"),
        (KEY, "0001", "__transaction_state"),
        (KEY, WRITTEN["every field"][1][:-4], "tagged field of 2 bytes"),
        (bytes.fromhex("0000ffff"), "", "transactional id is null"),
        (bytes.fromhex("0000000974"), "", "9 bytes"),
    ],
)
def test_what_cannot_be_read_is_a_decode_error(key: bytes, value: str, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        decode(key, bytes.fromhex(value))


def test_states_have_the_names_that_tools_of_kafka_know() -> None:
    assert [state.label for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
