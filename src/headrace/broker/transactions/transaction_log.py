# SPDX-License-Identifier: Apache-2.0
"""What a record in the log of `__transaction_state` is to the coordinator: whose it is, and what it says.

Read next: wire/coordinator/transaction_records.py, coordinators/machine_driver.py (who writes),
coordinators/machine_loading.py (who reads).
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.wire.batch import BatchHeader
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.coordinator.transaction_records import TransactionRecord, decode, encode
from headrace.wire.plain_batch import plain_record


def pack_transaction_record(record: TransactionRecord, number: int) -> Iterable[tuple[bytes, int]]:
    """The bytes of the record in a batch, where it has this number, and how many records they are."""
    return ((plain_record(number, *encode(record)), 1),)


def read_transaction_record(
    header: BatchHeader, key: bytes | None, value: bytes | None
) -> tuple[str, CoordinatorRecord] | None:
    """(transactional id, record); None for what is not ours. Raises DecodeError."""
    if key is None or header.is_control:
        return None
    found = decode(key, value)
    return None if found is None else (found.transactional_id, found)
