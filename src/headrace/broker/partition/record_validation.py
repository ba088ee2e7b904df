# SPDX-License-Identifier: Apache-2.0
"""Validation of the records in a batch: small batches on the event loop, large ones in the worker process.

The limit is one to two milliseconds of work; with the C kernels that is a larger batch. Independent of
partitions and connections. Read next: handlers/produce.py, wire/records.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from headrace.errors import ApiError
from headrace.key_ranges import KeyRanges, KeySpan, shown
from headrace.wire.batch import BatchHeader
from headrace.wire.compression import PRODUCER_CAPS, Caps, ExpandsTooFar
from headrace.wire.error_codes import ErrorCode
from headrace.wire.record_layout import WALK
from headrace.wire.records import keyless_records, keys_outside, recompress, validate_records

DESCRIBED_RECORDS = 100
"""Misplaced records with a message of their own; for others the message of the batch must do."""


class AtOnce(NamedTuple):
    """Limits of validation on the event loop. Even one record may have 30,000 headers in 64 KiB."""

    records: int
    bytes: int
    expanded_bytes: int
    """Of a compressed batch; also the limit for recompression."""

    def takes(self, header: BatchHeader) -> bool:
        return header.record_count <= self.records and header.size <= (
            self.expanded_bytes if header.codec else self.bytes
        )


ONE_BY_ONE = AtOnce(records=500, bytes=64 << 10, expanded_bytes=64 << 10)
BY_KERNELS = AtOnce(records=1 << 20, bytes=1_048_588, expanded_bytes=128 << 10)
"""Uncompressed: what max.message.bytes allows unless it is raised."""
AT_ONCE = ONE_BY_ONE if WALK is None else BY_KERNELS


class KeyRule(NamedTuple):
    """The key ranges of a topic that enforces them, and the partition that a batch is for."""

    ranges: KeyRanges
    partition: int

    @property
    def span(self) -> KeySpan:
        return self.ranges.span_of(self.partition)

    def problem(self, index: int, key: bytes | None) -> str:
        """What is wrong with a record that must not be in the partition."""
        if key is None:
            return f"record {index} has no key, which key ranges need"
        place = self.ranges.partition_of(key)
        if place is None:
            return f"record {index}: key {shown(key)} is outside every key range"
        return f"record {index}: key {shown(key)} belongs to partition {place}, not {self.partition}"


class DeepCheck(NamedTuple):
    """What a topic wants done to the records of a batch. `codec`: None keeps the producer's."""

    validates: bool
    requires_key: bool
    codec: int | None
    keys: KeyRule | None = None


_SOUND_RECORDS = DeepCheck(validates=True, requires_key=False, codec=None)


class CheckedBatch(NamedTuple):
    """The batch to write, or why it is refused. Plain values, since they cross processes."""

    batch: bytes | None
    error_code: int = 0
    message: str | None = None
    records: Mapping[int, str | None] | None = None


class NeedsWorker(Exception):
    """Raised before anything was written: hand the batch to `check_batch` first."""

    def __init__(self, check: DeepCheck) -> None:
        super().__init__("too much to check on the event loop")
        self.check = check


def check_at_once(check: DeepCheck, batch: memoryview, header: BatchHeader) -> memoryview:
    """The batch to write. Raises ApiError, or NeedsWorker when it would take long."""
    if not AT_ONCE.takes(header) or (
        check.codec not in (None, header.codec) and header.size > AT_ONCE.expanded_bytes
    ):
        raise NeedsWorker(check)
    caps = Caps(max_bytes=AT_ONCE.expanded_bytes)
    try:
        return _apply(check, batch, header, caps)
    except ApiError as error:
        many_to_name = (check.requires_key or check.keys) and header.record_count > ONE_BY_ONE.records
        if many_to_name or isinstance(error.__cause__, ExpandsTooFar):
            raise NeedsWorker(check) from None
        raise _naming_records(error, check, batch, header, caps) from None


def check_uncompressed(view: memoryview, start: int, header: BatchHeader) -> None:
    """Every record of the uncompressed batch at `start`, where there are kernels. Raises as above."""
    if header.size > AT_ONCE.bytes:
        raise NeedsWorker(_SOUND_RECORDS)
    fault = WALK.check_batch(view, start, header.size) if WALK is not None else None
    if fault is not None:
        raise ApiError(ErrorCode.invalid_record, str(fault))


def _apply(check: DeepCheck, batch: memoryview, header: BatchHeader, caps: Caps) -> memoryview:
    if check.validates:
        span = None if check.keys is None else check.keys.span
        validate_records(batch, require_key=check.requires_key, span=span, caps=caps)
    if check.codec is not None and check.codec != header.codec:
        return memoryview(recompress(batch, check.codec, caps=caps))
    return batch


def _naming_records(
    error: ApiError, check: DeepCheck, batch: memoryview, header: BatchHeader, caps: Caps
) -> ApiError:
    """The records without a key or with a wrong one, for the record errors of the reply (KIP-467).

    A new error, without the traceback of the old one.
    """
    count = header.record_count
    keyless = keyless_records(batch, caps=caps) if check.requires_key else []
    if keyless:
        return ApiError(
            error.code,
            f"a compacted topic needs a key in each record; {len(keyless)} of {count} have none",
            records=dict.fromkeys(keyless),
        )
    misplaced = {} if check.keys is None else keys_outside(batch, check.keys.span, caps=caps)
    if check.keys is not None and misplaced:
        return _misplaced(check.keys, misplaced, count)
    return ApiError(error.code, error.message, records=error.records)


def _misplaced(rule: KeyRule, misplaced: Mapping[int, bytes | None], count: int) -> ApiError:
    problems: dict[int, str | None] = dict.fromkeys(misplaced)
    for index in islice(misplaced, DESCRIBED_RECORDS):
        problems[index] = rule.problem(index, misplaced[index])
    first = problems[next(iter(misplaced))]
    return ApiError(
        ErrorCode.invalid_record,
        f"{first}; {len(misplaced)} of {count} records are refused (headrace.partitioner=enforce)",
        records=problems,
    )


def _refused(error: ApiError) -> CheckedBatch:
    return CheckedBatch(None, int(error.code), error.message, dict(error.records))


def check_batch(check: DeepCheck, batch: bytes, header: BatchHeader) -> CheckedBatch:
    """For the worker process.

    No local variable may hold the error: its traceback holds this frame, and what was unpacked (64 MiB)
    would stay until a full garbage collection.
    """
    try:
        return CheckedBatch(bytes(_apply(check, memoryview(batch), header, PRODUCER_CAPS)))
    except ApiError as error:
        return _refused(_naming_records(error, check, memoryview(batch), header, PRODUCER_CAPS))
    except MemoryError:
        return CheckedBatch(None, int(ErrorCode.invalid_record), "the records take too much memory")
