# SPDX-License-Identifier: Apache-2.0
"""File statistics for the table's log: row count, nulls and column bounds, for data skipping.

Taken from the Parquet footer. If one bound could be wrong, all are left out: some readers take a missing
bound among others for null and lose rows. Pure. Read next: files.py.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

Bounds = tuple[Any, Any]

_LONGEST_TEXT = 32
_GREATEST_LETTER = "\U0010ffff"
_ANY_TEXT = ("", _GREATEST_LETTER * _LONGEST_TEXT)
"""For strings too long for Parquet's bounds."""


def statistics_of(metadata: Any, schema: pa.Schema, *, with_nan: Collection[str]) -> str:
    """Statistics as JSON. `metadata`: footer. `with_nan`: columns with a NaN, which Parquet's bounds omit.

    All columns that can have bounds have them, not the first few: which those are depends on the table.
    """
    nulls: dict[str, int] = {}
    bounds: dict[str, Bounds] = {}
    complete = not with_nan
    for index, field in _plain_columns(schema):
        groups = [
            metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)
        ]
        nulls[field.name] = sum(group.null_count for group in groups)
        if not complete or not _has_bounds(field.type) or nulls[field.name] == metadata.num_rows:
            continue
        found = _bounds(groups, field.type)
        complete = found is not None
        if found is not None:
            bounds[field.name] = found
    document: dict[str, Any] = {"numRecords": metadata.num_rows, "nullCount": nulls}
    if complete:
        document["minValues"] = {name: least for name, (least, _) in bounds.items()}
        document["maxValues"] = {name: greatest for name, (_, greatest) in bounds.items()}
    return _json(document)


def _bounds(groups: list[Any], kind: pa.DataType) -> Bounds | None:
    """None when a bound cannot be represented."""
    filled = [group for group in groups if group.num_values]
    if not all(group.has_min_max for group in filled):
        return _ANY_TEXT if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None
    try:
        least = _written(min(group.min for group in filled), is_greatest=False)
        greatest = _written(max(group.max for group in filled), is_greatest=True)
    except (OverflowError, ValueError):  # times outside Python's calendar
        return None
    return None if least is None or greatest is None else (least, greatest)


def _plain_columns(schema: pa.Schema) -> Iterator[tuple[int, pa.Field]]:
    """Flat columns with their index in the Parquet file, where a nested column has several."""
    place = 0
    for field in schema:
        if not pa.types.is_nested(field.type):
            yield place, field
        place += _leaves(field.type)


def _leaves(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))


def _has_bounds(kind: pa.DataType) -> bool:
    return not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _written(bound: Any, *, is_greatest: bool) -> Any:
    """Format a bound as in the protocol; None when JSON cannot represent it."""
    if isinstance(bound, str):
        return _shortened(bound, is_greatest=is_greatest)
    if isinstance(bound, float):
        return bound if math.isfinite(bound) else None
    if isinstance(bound, datetime.datetime):
        if bound.tzinfo is None:
            return bound.isoformat(timespec="microseconds")
        return bound.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(bound, datetime.date):
        return bound.isoformat()
    return bound


def _shortened(text: str, *, is_greatest: bool) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    if not is_greatest:
        return text[:_LONGEST_TEXT]
    return text if text[_LONGEST_TEXT] == _GREATEST_LETTER else text[:_LONGEST_TEXT] + _GREATEST_LETTER


def _json(value: Any) -> str:
    """JSON with exact decimals and unescaped characters: some readers misread surrogate escapes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(name)}: {_json(inner)}" for name, inner in value.items()) + "}"
    return format(value, "f") if isinstance(value, decimal.Decimal) else json.dumps(value, ensure_ascii=False)
