# SPDX-License-Identifier: Apache-2.0
"""What a record in the log of `__consumer_offsets` is to the groups: whose it is, and what it says.

Read next: wire/coordinator/group_records.py, coordinators/machine_driver.py (who writes),
coordinators/machine_loading.py (who reads).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from headrace.errors import DecodeError
from headrace.wire.batch import BatchHeader
from headrace.wire.coordinator.commit_records import OffsetCommitsRecord
from headrace.wire.coordinator.group_records import (
    NO_PRODUCER_ID,
    GroupRecord,
    TransactionMarkerRecord,
    decode,
    encode,
)
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.plain_batch import plain_record

_MARKER_KEY = struct.Struct(">hh")  # version, type
_ABORT, _COMMIT = 0, 1


def pack_group_record(record: GroupRecord | OffsetCommitsRecord, number: int) -> Iterable[tuple[bytes, int]]:
    """The bytes of the record in a batch, where it has this number, and how many records they are."""
    if not isinstance(record, OffsetCommitsRecord):
        return ((plain_record(number, *encode(record)), 1),)
    packed = record.pack(number)
    if packed is not None:
        return ((packed, len(record.offsets)),)
    return [(plain_record(number + at, *encode(each)), 1) for at, each in enumerate(record.each())]


def read_group_record(
    header: BatchHeader, key: bytes | None, value: bytes | None
) -> tuple[str | None, CoordinatorRecord] | None:
    """(group id, or None for every group; record); None for what is not ours. Raises DecodeError."""
    if key is None:
        return None
    if header.is_control:
        return _marker(header.producer_id, key)
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    found = decode(key, value, producer_id=producer_id)
    return None if found is None else (found.group_id, found)


def _marker(producer_id: int, key: bytes) -> tuple[None, CoordinatorRecord] | None:
    try:
        _, kind = _MARKER_KEY.unpack_from(key)
    except struct.error as problem:
        raise DecodeError(f"control record with key {key.hex()}: {problem}") from problem
    if kind not in (_ABORT, _COMMIT):
        return None
    return None, TransactionMarkerRecord(producer_id=producer_id, committed=kind == _COMMIT)
