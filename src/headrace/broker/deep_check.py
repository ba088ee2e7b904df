"""The look into a batch's records, which costs too much for the event loop when there are many of them.

What takes up to a millisecond or two is checked where it arrives, the rest in the worker process; the kernels
move that line. Knows no partition and no connection. Read next: handlers/produce.py, wire/records.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.errors import ApiError
from headrace.wire.batch import BatchHeader
from headrace.wire.compression import PRODUCER_CAPS, Caps, ExpandsTooFar
from headrace.wire.error_codes import ErrorCode
from headrace.wire.record_layout import WALK
from headrace.wire.records import keyless_records, recompress, validate_records


class AtOnce(NamedTuple):
    """What may be looked into on the event loop. Even one record may have 30,000 headers in 64 KiB."""

    records: int
    bytes: int
    expanded_bytes: int
    """Of a compressed batch; what is compressed anew is also held to this."""

    def takes(self, header: BatchHeader) -> bool:
        return header.record_count <= self.records and header.size <= (
            self.expanded_bytes if header.codec else self.bytes
        )


ONE_BY_ONE = AtOnce(records=500, bytes=64 << 10, expanded_bytes=64 << 10)
BY_KERNELS = AtOnce(records=1 << 20, bytes=1_048_588, expanded_bytes=128 << 10)
"""Uncompressed: what max.message.bytes allows unless it is raised."""
AT_ONCE = ONE_BY_ONE if WALK is None else BY_KERNELS


class DeepCheck(NamedTuple):
    """What a topic wants done to the records of a batch. `codec`: None keeps the producer's."""

    validates: bool
    requires_key: bool
    codec: int | None


_SOUND_RECORDS = DeepCheck(validates=True, requires_key=False, codec=None)


class CheckedBatch(NamedTuple):
    """The batch to write, or why it is refused. Plain values, since they cross processes."""

    batch: bytes | None
    error_code: int = 0
    message: str | None = None
    records: Sequence[int] = ()


class NeedsWorker(Exception):
    """Raised before anything was written: hand the batch to `check_batch` first."""

    def __init__(self, check: DeepCheck) -> None:
        super().__init__("too much to look into on the event loop")
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
        many_to_name = check.requires_key and header.record_count > ONE_BY_ONE.records
        if many_to_name or isinstance(error.__cause__, ExpandsTooFar):
            raise NeedsWorker(check) from None
        raise _naming_records(error, check, batch, header, caps) from error


def check_uncompressed(view: memoryview, start: int, header: BatchHeader) -> None:
    """Every record of the uncompressed batch at `start`, where there are kernels. Raises as above."""
    if header.size > AT_ONCE.bytes:
        raise NeedsWorker(_SOUND_RECORDS)
    fault = WALK.check_batch(view, start, header.size) if WALK is not None else None
    if fault is not None:
        raise ApiError(ErrorCode.invalid_record, str(fault))


def _apply(check: DeepCheck, batch: memoryview, header: BatchHeader, caps: Caps) -> memoryview:
    if check.validates:
        validate_records(batch, require_key=check.requires_key, caps=caps)
    if check.codec is not None and check.codec != header.codec:
        return memoryview(recompress(batch, check.codec, caps=caps))
    return batch


def _naming_records(
    error: ApiError, check: DeepCheck, batch: memoryview, header: BatchHeader, caps: Caps
) -> ApiError:
    """Which records lack a key: a client tells their senders apart from those of the rest (KIP-467)."""
    keyless = keyless_records(batch, caps=caps) if check.requires_key else []
    if not keyless:
        return error
    return ApiError(
        error.code,
        f"a compacted topic needs a key in each record; {len(keyless)} of {header.record_count} have none",
        records=keyless,
    )


def check_batch(check: DeepCheck, batch: bytes, header: BatchHeader) -> CheckedBatch:
    """For the worker process."""
    try:
        return CheckedBatch(bytes(_apply(check, memoryview(batch), header, PRODUCER_CAPS)))
    except ApiError as error:
        named = _naming_records(error, check, memoryview(batch), header, PRODUCER_CAPS)
        return CheckedBatch(None, int(named.code), named.message, named.records)
    except MemoryError:
        return CheckedBatch(None, int(ErrorCode.invalid_record), "the records take too much memory")
