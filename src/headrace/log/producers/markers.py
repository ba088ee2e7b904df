"""The one record of a control batch: a transaction's end, as its coordinator wrote it."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.wire.records import Record, build_batch, read_records

_KEY = Struct(">hh")  # version, type
_VALUE = Struct(">hi")  # version, coordinator epoch
_VERSION = 0
_ABORT, _COMMIT = 0, 1


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
    record = Record(0, timestamp, key, _VALUE.pack(_VERSION, marker.coordinator_epoch))
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
