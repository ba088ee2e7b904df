# SPDX-License-Identifier: Apache-2.0
"""Records of `__transaction_state`: values and their bytes, as Apache Kafka 4.3 writes them.

A key is the record type (0) and the transactional id, a value begins with its version. Written: value version
1. Read: versions 0 and 1. A record whose `value` is None is a tombstone: the transactional id has expired.
A record holds everything about its transactional id, so that the newest one is the state.
What a record means is machines/transactions'. Read next: machines/transactions/transactional_id.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from headrace.errors import DecodeError, NewerRecordError, newer_format
from headrace.types import TopicPartition
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.fields import (
    Reader,
    compact_array,
    compact_int32s,
    compact_string,
    int16,
    int64,
    string,
    tagged_fields,
)
from headrace.wire.primitives import MALFORMED, read_string

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1

TRANSACTION = 0
"""The only record type of the topic."""
_VERSION = 1
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_TRANSACTION_VERSION, _NEXT_PRODUCER_EPOCH = range(4)
_HEAD = struct.Struct(">hqhib")
"""Version, producer id, producer epoch, timeout, state."""
_TIMES = struct.Struct(">qq")
_IDLE = struct.Struct(">hqhibBqqBBBq")
_IDLE_KIP_890 = struct.Struct(">hqhibBqqBBBqBBh")
"""Most records of a compacted log: no partitions, the previous producer id, and perhaps the client's version.
The fields of _HEAD, number of topics, times, number of tags, then tag and size before each tag's value."""


_KIP_890_TAGS = (2, _PREVIOUS_PRODUCER_ID, 8, _CLIENT_TRANSACTION_VERSION, 2)
_NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class TransactionState(IntEnum):
    """With the numbers of the log. DEAD and PREPARE_EPOCH_FENCE are never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As DescribeTransactions and ListTransactions spell it."""
        return _LABELS[self]


_STATES = tuple(TransactionState)
_LABELS = tuple("".join(word.capitalize() for word in state.name.split("_")) for state in _STATES)


class TransactionMetadata(NamedTuple):
    """A NamedTuple, because a load makes one for each record of the log.

    `previous_producer_id`: of the record before. `next_producer_id`: replaces an exhausted producer id when
    the transaction is complete. `client_transaction_version`: 2 for clients of KIP-890, 0 for older ones.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    last_update_timestamp: int
    start_timestamp: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = 0
    next_producer_epoch: int = NO_EPOCH
    """Two-phase commit (KIP-939), not served here."""


@dataclass(frozen=True, slots=True)
class TransactionRecord(CoordinatorRecord):
    transactional_id: str
    value: TransactionMetadata | None


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """(key, value) for the log; the value of a tombstone is None."""
    key = int16(TRANSACTION) + string(record.transactional_id)
    return key, None if record.value is None else _value_bytes(record.value)


def _value_bytes(value: TransactionMetadata) -> bytes:
    head = _HEAD.pack(_VERSION, value.producer_id, value.producer_epoch, value.timeout_ms, value.state)
    times = _TIMES.pack(value.last_update_timestamp, value.start_timestamp)
    return head + _partitions_bytes(value) + times + tagged_fields(_tags(value))


def _partitions_bytes(value: TransactionMetadata) -> bytes:
    """Null where no transaction has begun, as Kafka writes it. Sorted: equal states have equal bytes."""
    if value.state is TransactionState.EMPTY:
        return b"\0"
    by_topic = groupby(sorted(value.partitions), key=itemgetter(0))
    return compact_array(
        compact_string(topic) + compact_int32s([partition for _, partition in group]) + tagged_fields()
        for topic, group in by_topic
    )


def _tags(value: TransactionMetadata) -> Iterable[tuple[int, bytes]]:
    if value.previous_producer_id != NO_PRODUCER_ID:
        yield _PREVIOUS_PRODUCER_ID, int64(value.previous_producer_id)
    if value.next_producer_id != NO_PRODUCER_ID:
        yield _NEXT_PRODUCER_ID, int64(value.next_producer_id)
    if value.client_transaction_version:
        yield _CLIENT_TRANSACTION_VERSION, int16(value.client_transaction_version)
    if value.next_producer_epoch != NO_EPOCH:
        yield _NEXT_PRODUCER_EPOCH, int16(value.next_producer_epoch)


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record, or None for a type that this release does not know.

    DecodeError: malformed bytes; NewerRecordError: a version newer than this code.
    """
    try:
        if int.from_bytes(key[:2], "big", signed=True) != TRANSACTION:
            return None
        transactional_id, _ = read_string(memoryview(key), 2, len(key))
        if transactional_id is None:
            raise DecodeError("record of __transaction_state whose transactional id is null")
        if value is None:
            return TransactionRecord(transactional_id, None)
        return TransactionRecord(transactional_id, _read_idle_value(value) or _read_value(value))
    except MALFORMED as problem:
        raise DecodeError(f"record of __transaction_state with key {key.hex()}: {problem}") from problem


def _read_idle_value(value: bytes) -> TransactionMetadata | None:
    """In one go, because a load reads one for each transactional id. None: not of that form."""
    client_version = 0
    if len(value) == _IDLE.size:
        *fields, topics, updated, started, tags, tag, size, previous = _IDLE.unpack(value)
        tags_fit = (tags, tag, size) == (1, _PREVIOUS_PRODUCER_ID, 8)
    elif len(value) == _IDLE_KIP_890.size:
        *fields, topics, updated, started, tags, tag, size, previous, tag_2, size_2, client_version = (
            _IDLE_KIP_890.unpack(value)
        )
        tags_fit = (tags, tag, size, tag_2, size_2) == _KIP_890_TAGS
    else:
        return None
    version, producer_id, producer_epoch, timeout_ms, status = fields
    if not tags_fit or version != _VERSION or topics > 1 or not 0 <= status < len(_STATES):
        return None
    return TransactionMetadata(
        producer_id,
        producer_epoch,
        timeout_ms,
        _STATES[status],
        _NO_PARTITIONS,
        updated,
        started,
        previous,
        NO_PRODUCER_ID,
        client_version,
    )


def _read_value(value: bytes) -> TransactionMetadata:
    version = int.from_bytes(value[:2], "big", signed=True)
    if version > _VERSION:  # whatever comes behind it
        raise NewerRecordError(
            newer_format("the value of a record in __transaction_state", version, _VERSION)
        )
    if version < 0:
        raise DecodeError(f"value version {version} in __transaction_state")
    _, producer_id, producer_epoch, timeout_ms, status = _HEAD.unpack_from(value)
    if not 0 <= status < len(_STATES):
        raise DecodeError(f"transaction state {status} in __transaction_state is not known")
    state = _STATES[status]
    reader = Reader(value, _HEAD.size)
    partitions = _read_partitions(reader, compact=version >= 1)
    last_update, start = reader.int64(), reader.int64()
    tags = reader.tagged_fields() if version >= 1 else {}
    return TransactionMetadata(
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        _NO_PARTITIONS if state is TransactionState.EMPTY else partitions,
        last_update,
        start,
        tags[_PREVIOUS_PRODUCER_ID].int64() if _PREVIOUS_PRODUCER_ID in tags else NO_PRODUCER_ID,
        tags[_NEXT_PRODUCER_ID].int64() if _NEXT_PRODUCER_ID in tags else NO_PRODUCER_ID,
        tags[_CLIENT_TRANSACTION_VERSION].int16() if _CLIENT_TRANSACTION_VERSION in tags else 0,
        tags[_NEXT_PRODUCER_EPOCH].int16() if _NEXT_PRODUCER_EPOCH in tags else NO_EPOCH,
    )


def _read_partitions(reader: Reader, *, compact: bool) -> frozenset[TopicPartition]:
    topics = reader.nullable_array(lambda each: _read_topic(each, compact=compact), compact=compact) or ()
    return frozenset(
        TopicPartition(topic, partition) for topic, partitions in topics for partition in partitions
    )


def _read_topic(reader: Reader, *, compact: bool) -> tuple[str, tuple[int, ...]]:
    topic = reader.string(compact=compact)
    partitions = reader.int32s(compact=compact)
    if compact:
        reader.tagged_fields()
    return topic, partitions
