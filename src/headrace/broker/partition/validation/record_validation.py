# SPDX-License-Identifier: Apache-2.0
"""Validation of the records in a batch: small batches on the event loop, large ones in threads.

The limit is one to two milliseconds of work; with the C kernels that is a larger batch. Decompression and
kernels run without the GIL, so threads do not stop the event loop. What Python reads record by record (all,
without kernels; which keys are missing or wrong) goes to the worker process. Independent of partitions and
connections. Read next: handlers/produce.py, wire/records.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import NamedTuple

from headrace.errors import ApiError
from headrace.key_ranges import KeyRanges, KeySpan, shown
from headrace.wire.batch import HEADER_SIZE, BatchHeader, read_header
from headrace.wire.compression import PRODUCER_CAPS, Caps, ExpandsTooFar, is_choppy, likely_size
from headrace.wire.error_codes import ErrorCode
from headrace.wire.record_layout import WALK
from headrace.wire.records import keyless_records, keys_outside, recompress, validate_records
from headrace.world import Tasks

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

EXPANDED_PER_TURN = 1 << 20
"""Bytes: a millisecond or two, whatever the connections have sent together."""
_LEAST_RATIO = 8
"""Compressed data counts as so many times its size at least: frames may take long and hold nothing."""


class TurnAllowance:
    """How much the event loop of a node may still decompress before it serves other connections.

    A small request may expand a thousandfold, and hold very many batches.
    """

    __slots__ = ("_call_soon", "left")

    def __init__(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._call_soon = call_soon
        self.left = EXPANDED_PER_TURN

    def spend(self, expanded: int) -> None:
        if self.left == EXPANDED_PER_TURN:
            self._call_soon(self._renew)
        self.left -= expanded

    def _renew(self) -> None:
        self.left = EXPANDED_PER_TURN


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

    batch: bytearray | None
    error_code: int = 0
    message: str | None = None
    records: Mapping[int, str | None] | None = None


class TakesLong(Exception):
    """Raised before anything was written: hand the batch to `check_elsewhere` first."""

    def __init__(self, check: DeepCheck) -> None:
        super().__init__("too much to check on the event loop")
        self.check = check


def check_at_once(
    check: DeepCheck, batch: memoryview, header: BatchHeader, allowance: TurnAllowance
) -> memoryview:
    """The batch to write. Raises ApiError, or TakesLong."""
    room, least = AT_ONCE.expanded_bytes, _LEAST_RATIO * header.size
    if header.codec:
        room = min(room, allowance.left)
        if max(least, likely_size(header.codec, batch[HEADER_SIZE:])) > room:
            raise TakesLong(check)
    if not AT_ONCE.takes(header) or (
        check.codec not in (None, header.codec) and header.size > AT_ONCE.expanded_bytes
    ):
        raise TakesLong(check)
    caps, expanded = Caps(max_bytes=room), room
    try:
        made, expanded = _apply(check, batch, header, caps)
    except ApiError as error:
        many_to_name = (check.requires_key or check.keys) and header.record_count > ONE_BY_ONE.records
        if many_to_name or isinstance(error.__cause__, ExpandsTooFar):
            raise TakesLong(check) from None
        raise _naming_records(error, check, batch, header, caps) from None
    finally:
        if header.codec:
            allowance.spend(max(least, expanded))
    return batch if made is None else memoryview(made)


def check_sound(view: memoryview, start: int, header: BatchHeader, allowance: TurnAllowance) -> None:
    """Every record of the batch at `start`, where there are kernels. Raises as above."""
    if header.codec:
        check_at_once(_SOUND_RECORDS, view[start : start + header.size], header, allowance)
        return
    if header.size > AT_ONCE.bytes:
        raise TakesLong(_SOUND_RECORDS)
    fault = WALK.check_batch(view, start, header.size) if WALK is not None else None
    if fault is not None:
        raise ApiError(ErrorCode.invalid_record, str(fault))


def is_sound_at_once(view: memoryview, start: int, header: BatchHeader, allowance: TurnAllowance) -> bool:
    """Whether that is known now."""
    try:
        check_sound(view, start, header, allowance)
    except (ApiError, TakesLong):
        return False
    return True


def _apply(
    check: DeepCheck, batch: memoryview, header: BatchHeader, caps: Caps
) -> tuple[bytearray | None, int]:
    """The batch under its new codec, None if it stays as it is; and the size of its records, expanded."""
    expanded = caps.limit(header.size)
    if check.validates:
        span = None if check.keys is None else check.keys.span
        expanded = validate_records(batch, require_key=check.requires_key, span=span, caps=caps)
    if check.codec is not None and check.codec != header.codec:
        return recompress(batch, check.codec, caps=caps), expanded
    return None, expanded


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


async def check_elsewhere(tasks: Tasks, check: DeepCheck, batch: bytearray) -> CheckedBatch:
    """Where it does not stop the event loop."""
    header = read_header(batch)
    if WALK is not None:
        checked = await tasks.compute(check_by_kernels, check, batch, header)
        if checked is not None:
            return checked
    return await tasks.bulk(check_batch, check, batch, header)


def check_by_kernels(check: DeepCheck, batch: bytearray, header: BatchHeader) -> CheckedBatch | None:
    """For a thread: hardly anything happens in Python. None when more would have to."""
    view = memoryview(batch)
    if is_choppy(header.codec, view[HEADER_SIZE:]):
        return None
    try:
        made, _ = _apply(check, view, header, PRODUCER_CAPS)
    except ApiError as error:
        if check.requires_key or check.keys is not None:
            return None
        return _refused(error)
    except MemoryError:
        return _TOO_LARGE
    return CheckedBatch(batch if made is None else made)


def check_batch(check: DeepCheck, batch: bytearray, header: BatchHeader) -> CheckedBatch:
    """The same for the worker process; names the records that are refused.

    No local variable may hold the error: its traceback holds this frame, and what was unpacked (64 MiB)
    would stay until a full garbage collection.
    """
    try:
        made, _ = _apply(check, memoryview(batch), header, PRODUCER_CAPS)
    except ApiError as error:
        return _refused(_naming_records(error, check, memoryview(batch), header, PRODUCER_CAPS))
    except MemoryError:
        return _TOO_LARGE
    return CheckedBatch(batch if made is None else made)


_TOO_LARGE = CheckedBatch(None, int(ErrorCode.invalid_record), "the records take too much memory")
