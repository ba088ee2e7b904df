"""The one record of a control batch: a transaction's end, as its coordinator wrote it."""

from __future__ import annotations

from struct import Struct

from headrace.errors import HeadraceError
from headrace.log.producers.state import EndTransactionMarker
from headrace.wire.records import read_records

_KEY = Struct(">hh")  # version, type
_VALUE = Struct(">hi")  # version, coordinator epoch
_ABORT, _COMMIT = 0, 1


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
