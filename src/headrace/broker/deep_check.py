"""The look into a batch's records, which costs too much for the event loop when there are many of them.

Small batches are checked where they arrive, others in the worker process: a batch of 1 MiB may hold millions
of records. Knows no partition and no connection. Read next: handlers/produce.py, wire/records.py.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.errors import ApiError
from headrace.wire.batch import BatchHeader
from headrace.wire.compression import PRODUCER_CAPS, Caps, ExpandsTooFar
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import recompress, validate_records

MOST_RECORDS_AT_ONCE = 500
MOST_BYTES_AT_ONCE = 64 * 1024
"""Also once expanded: even one record may have thirty thousand headers in so many bytes."""
_CAPS_AT_ONCE = Caps(max_bytes=MOST_BYTES_AT_ONCE)


class DeepCheck(NamedTuple):
    """What a topic wants done to the records of a batch. `codec`: None keeps the producer's."""

    validates: bool
    requires_key: bool
    codec: int | None


class CheckedBatch(NamedTuple):
    """The batch to write, or why it is refused. Plain values, since they cross processes."""

    batch: bytes | None
    error_code: int = 0
    message: str | None = None


class NeedsWorker(Exception):
    """Raised before anything was written: hand the batch to `check_batch` first."""

    def __init__(self, check: DeepCheck) -> None:
        super().__init__("too much to look into on the event loop")
        self.check = check


def check_at_once(check: DeepCheck, batch: memoryview, header: BatchHeader) -> memoryview:
    """The batch to write. Raises ApiError, or NeedsWorker when it would take long."""
    if header.record_count > MOST_RECORDS_AT_ONCE or header.size > MOST_BYTES_AT_ONCE:
        raise NeedsWorker(check)
    try:
        return _apply(check, batch, header, _CAPS_AT_ONCE)
    except ApiError as error:
        if isinstance(error.__cause__, ExpandsTooFar):
            raise NeedsWorker(check) from None
        raise


def _apply(check: DeepCheck, batch: memoryview, header: BatchHeader, caps: Caps) -> memoryview:
    if check.validates:
        validate_records(batch, require_key=check.requires_key, caps=caps)
    if check.codec is not None and check.codec != header.codec:
        return memoryview(recompress(batch, check.codec, caps=caps))
    return batch


def check_batch(check: DeepCheck, batch: bytes, header: BatchHeader) -> CheckedBatch:
    """For the worker process."""
    try:
        return CheckedBatch(bytes(_apply(check, memoryview(batch), header, PRODUCER_CAPS)))
    except ApiError as error:
        return CheckedBatch(None, int(error.code), error.message)
    except MemoryError:
        return CheckedBatch(None, int(ErrorCode.invalid_record), "the records take too much memory")
