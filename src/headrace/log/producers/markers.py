# SPDX-License-Identifier: Apache-2.0
"""The one record of a control batch: a transaction's end, as its coordinator wrote it."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.wire.batch import CODEC_MASK, HEADER_SIZE
from headrace.wire.plain_batch import plain_batch, plain_record
from headrace.wire.records import read_records

_KEY = Struct(">hh")  # version, type
_VALUE = Struct(">hi")  # version, coordinator epoch
_VERSION = 0
_ABORT, _COMMIT = 0, 1

# All markers that Kafka and Headrace write are alike but for four numbers: there are as many of them as
# transactions times partitions, so that these are read without a reader of records.
_USUAL = Struct(">i5shhchic")  # record count, lengths and deltas, key, length, value, no headers
_USUAL_AT = HEADER_SIZE - 4
_USUAL_SIZE = _USUAL_AT + _USUAL.size
_BEFORE_KEY, _BEFORE_VALUE, _NO_HEADERS = b"\x20\0\0\0\x08", b"\x0c", b"\0"
_LOW_ATTRIBUTES_AT = 22


class EndTransactionMarker(NamedTuple):
    """The record of a control batch."""

    commits: bool
    coordinator_epoch: int

    @property
    def kind(self) -> str:
        """As Kafka's ControlRecordType names it."""
        return "COMMIT" if self.commits else "ABORT"


def read_marker(batch: memoryview) -> EndTransactionMarker | None:
    """None for an emptied batch (compaction removed the whole transaction) and for other control records."""
    if len(batch) == _USUAL_SIZE and not batch[_LOW_ATTRIBUTES_AT] & CODEC_MASK:
        count, head, _, kind, middle, _, epoch, tail = _USUAL.unpack_from(batch, _USUAL_AT)
        shape = (count, head, middle, tail)
        if shape == (1, _BEFORE_KEY, _BEFORE_VALUE, _NO_HEADERS) and kind in (_ABORT, _COMMIT):
            return EndTransactionMarker(kind == _COMMIT, epoch)
    return _read_any(batch)


def _read_any(batch: memoryview) -> EndTransactionMarker | None:
    try:
        records = read_records(batch)
    except HeadraceError:
        return None
    if not records or len(records[0].key or b"") < _KEY.size:
        return None
    _, kind = _KEY.unpack_from(records[0].key or b"")
    if kind not in (_ABORT, _COMMIT):
        return None
    value = records[0].value or b""
    epoch = _VALUE.unpack_from(value)[1] if len(value) >= _VALUE.size else -1
    return EndTransactionMarker(commits=kind == _COMMIT, coordinator_epoch=epoch)


def build_marker(
    marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, timestamp: int
) -> bytearray:
    """The control batch that ends a producer's transaction: Kafka's bytes, offset and leader epoch unset."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.commits else _ABORT)
    record = plain_record(0, key, _VALUE.pack(_VERSION, marker.coordinator_epoch))
    return plain_batch(
        [record], 1, timestamp, producer_id=producer_id, producer_epoch=producer_epoch, is_control=True
    )
