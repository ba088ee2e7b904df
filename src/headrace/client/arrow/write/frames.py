# SPDX-License-Identifier: Apache-2.0
"""What `write` takes, as an Arrow stream: pandas, polars, DuckDB, Arrow's own tables, and lists of dicts.

Imports none of those libraries: a frame comes from one that the caller has imported. Read next: columns.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from headrace.client.arrow.kernels.types import HEADERS
from headrace.client.errors import ClientError

_ACCEPTED = (
    "a pandas, polars or PyArrow table, a DuckDB relation, a list of dicts, or anything with an Arrow stream"
)
_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError)
"""Raised by pyarrow for values that do not fit together in a column."""


class ArrowStream(Protocol):
    """A table with Arrow's C stream interface, as those of pyarrow, pandas, polars and DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None, /) -> object: ...


class LazyFrame(Protocol):
    """A polars.LazyFrame: what it collects is written."""

    def collect(self) -> Any: ...


Data = ArrowStream | LazyFrame | Iterable[ArrowStream] | Iterable[Mapping[str, Any]]
"""What `write` takes: a table or frame, several with the same columns, or rows as dicts."""


class Rows(NamedTuple):
    """Rows to write, as a pyarrow.RecordBatchReader, and their number where it is known."""

    reader: Any
    number: int | None


def rows_of(data: Any) -> Rows:
    """ClientError says what is wrong with `data`, before anything is sent."""
    rows = _rows_of(data)
    names = rows.reader.schema.names
    if not names:
        raise ClientError("data has neither columns nor rows", next_step="give a table that has columns")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ClientError(f"data has several columns named {twice[0]!r}", next_step="rename all but one")
    return rows


def check_order(data: Any, topic: Any) -> None:
    """The two arguments that are most easily confused."""
    if isinstance(topic, str) and topic:
        return
    if isinstance(data, str) and topic is not None:
        raise ClientError(
            f"the arguments are swapped: the data comes first, then the topic {data!r}",
            next_step=f"write(data, {data!r})",
        )
    raise ClientError(
        f"topic={topic!r} is not a topic's name", next_step='give its name: write(data, "orders")'
    )


def _rows_of(data: Any) -> Rows:
    if isinstance(data, pa.RecordBatchReader):
        return Rows(data, None)
    if _is_of("polars", "LazyFrame", data):
        data = data.collect()
    if _is_of("pandas", "DataFrame", data):
        data = _pandas_table(data)
    if hasattr(data, "__arrow_c_stream__"):
        return Rows(_stream(data), getattr(data, "num_rows", None))
    if _is_of("pandas", "Series", data):  # before pandas 3 it has no Arrow stream
        raise _without_columns("of type pandas.Series")
    if isinstance(data, Mapping):
        raise ClientError("data is one dict", next_step="give a list of rows: write([row], topic)")
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise ClientError(f"data is {_kind(data)}, which is not a table", next_step=f"give {_ACCEPTED}")
    return _several(iter(data))


def _several(parts: Iterator[Any]) -> Rows:
    """Rows as dicts, or tables and batches with the same columns."""
    first = next(parts, None)
    if first is None:
        raise ClientError("data is empty", next_step="give an empty table with columns to write nothing")
    if isinstance(first, Mapping):
        table = _table_of_dicts([first, *parts])
        return Rows(table.to_reader(), table.num_rows)
    if not hasattr(first, "__arrow_c_stream__"):
        raise ClientError(f"data holds something {_kind(first)}, not rows", next_step=f"give {_ACCEPTED}")
    head = _rows_of(first).reader
    return Rows(pa.RecordBatchReader.from_batches(head.schema, _joined(head, parts)), None)


def _joined(head: Any, rest: Iterator[Any]) -> Iterator[Any]:
    for number, reader in enumerate(chain([head], (_rows_of(each).reader for each in rest))):
        if not reader.schema.equals(head.schema):
            raise ClientError(
                f"table {number} of data has other columns than the first",
                next_step="write tables of different columns one by one",
            )
        yield from reader


def _is_of(library: str, name: str, data: Any) -> bool:
    """Whether it is an instance of that class; the library is not imported for this."""
    kind = getattr(sys.modules.get(library), name, None)
    return isinstance(kind, type) and isinstance(data, kind)


def _pandas_table(frame: Any) -> Any:
    """With the levels of an index that have a name, as `reset_index` would; others only number rows."""
    named = any(name is not None for name in frame.index.names)
    try:
        table = pa.Table.from_pandas(frame, preserve_index=named)
    except _UNFIT as error:
        raise _unfit("data", error) from error
    unnamed = [name for name in table.schema.names if name.startswith("__index_level_")]
    return table.drop_columns(unnamed).replace_schema_metadata(None)


def _stream(data: Any) -> Any:
    try:
        return pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid:
        raise _without_columns(_kind(data)) from None


def _without_columns(kind: str) -> ClientError:
    return ClientError(f"data is {kind}, which has no columns", next_step="give a table: data.to_frame()")


def _table_of_dicts(rows: list[Any]) -> Any:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ClientError(f"row {number} is {_kind(row)}, not a dict", next_step="make every row a dict")
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        if not isinstance(name, str):
            raise ClientError(
                f"{name!r} is not the name of a column", next_step="use text as names of columns"
            )
    return pa.table({name: _column(name, [row.get(name) for row in rows]) for name in names})


def _column(name: str, values: list[Any]) -> Any:
    if name == "headers":
        try:
            return pa.array(values, HEADERS)  # pairs of name and value, as other clients have them
        except _UNFIT:
            pass
    try:
        return pa.array(values)
    except _UNFIT as error:
        raise _unfit(f"column {name!r}", error) from error


def _unfit(what: str, error: Exception) -> ClientError:
    reason = "; ".join(str(each).rstrip(".") for each in error.args)
    return ClientError(f"{what}: {reason}", next_step="give all values of a column the same type")


def _kind(thing: Any) -> str:
    kind = type(thing)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__.split('.')[0]}.{kind.__qualname__}"
    )
    return f"of type {name}"
