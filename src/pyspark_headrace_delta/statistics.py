"""What a table's log says of a file: its rows, nulls, and the bounds of columns, so that readers may skip it.

Taken from what the Parquet writer has counted already. A bound that could mislead is left out: too few are
slow, a wrong one loses rows. Pure. Read next: files.py.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

Path = tuple[str, ...]

_INDEXED_COLUMNS = 32
"""Delta's own default: columns further to the right have no bounds."""
_LONGEST_TEXT = 32
_GREATEST_LETTER = "\U0010ffff"


def statistics_of(metadata: Any, schema: pa.Schema, *, with_nan: Collection[str]) -> str:
    """As JSON. `metadata`: the file's footer. `with_nan`: columns with a NaN, which Parquet's bounds omit."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for index, (path, kind) in enumerate(_leaves(schema)):
        if path is None or index >= _INDEXED_COLUMNS:
            continue
        groups = [
            metadata.row_group(number).column(index).statistics for number in range(metadata.num_row_groups)
        ]
        if any(group is None for group in groups):
            continue
        _set(nulls, path, sum(group.null_count for group in groups))
        may_mislead = pa.types.is_floating(kind) and (len(path) > 1 or path[0] in with_nan)
        if not may_mislead and _has_bounds(kind):
            _set_bounds(groups, path, least, greatest)
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    )


def _set_bounds(groups: list[Any], path: Path, least: dict[str, Any], greatest: dict[str, Any]) -> None:
    filled = [group for group in groups if group.num_values]
    if not filled or not all(group.has_min_max for group in filled):
        return
    try:
        lower = _written(min(group.min for group in filled), is_greatest=False)
        upper = _written(max(group.max for group in filled), is_greatest=True)
    except (OverflowError, ValueError):  # times that Python's calendar does not reach
        return
    if lower is not None and upper is not None:
        _set(least, path, lower)
        _set(greatest, path, upper)


def _leaves(schema: pa.Schema) -> Iterator[tuple[Path | None, pa.DataType]]:
    """The columns of a Parquet file in their order; no path for what lies in lists and maps."""
    for field in schema:
        yield from _leaves_of(field.type, (field.name,))


def _leaves_of(kind: pa.DataType, path: Path | None) -> Iterator[tuple[Path | None, pa.DataType]]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves_of(field.type, None if path is None else (*path, field.name))
    elif pa.types.is_map(kind):
        yield from _leaves_of(kind.key_type, None)
        yield from _leaves_of(kind.item_type, None)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves_of(kind.value_type, None)
    else:
        yield path, kind


def _has_bounds(kind: pa.DataType) -> bool:
    return not (pa.types.is_boolean(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _written(bound: Any, *, is_greatest: bool) -> Any:
    """As the protocol writes a bound; None for one that cannot be written exactly."""
    if isinstance(bound, str):
        return _shortened(bound, is_greatest=is_greatest)
    if isinstance(bound, decimal.Decimal):
        near = float(bound)  # JSON's numbers are read as such, or by their digits
        return near if decimal.Decimal(repr(near)) == bound else None
    if isinstance(bound, float):
        return bound if math.isfinite(bound) else None
    if isinstance(bound, datetime.datetime):
        if bound.tzinfo is None:
            return bound.isoformat(timespec="microseconds")
        return bound.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(bound, datetime.date):
        return bound.isoformat()
    return bound if isinstance(bound, int) else None


def _shortened(text: str, *, is_greatest: bool) -> str | None:
    if len(text) <= _LONGEST_TEXT:
        return text
    if not is_greatest:
        return text[:_LONGEST_TEXT]
    if text[_LONGEST_TEXT] == _GREATEST_LETTER:
        return None
    return text[:_LONGEST_TEXT] + _GREATEST_LETTER


def _set(tree: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
