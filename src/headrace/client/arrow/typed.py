"""Keys and values as text or numbers instead of bytes; what does not fit is set aside with its reason.

Numbers are big-endian, as Kafka's own serializers write them. Read next: decode.py, reader.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.arrow.decode import DEFAULT_BATCH_BYTES, Decoder, check_columns
from headrace.client.arrow.sections import Fetched
from headrace.client.arrow.types import FIELDS
from headrace.client.errors import ClientError

Format = Literal["raw", "string", "int16", "int32", "int64", "float32", "float64"]

_NUMBERS = {
    "int16": (pa.int16(), ">i2"),
    "int32": (pa.int32(), ">i4"),
    "int64": (pa.int64(), ">i8"),
    "float32": (pa.float32(), ">f4"),
    "float64": (pa.float64(), ">f8"),
}
_TYPES = {"raw": pa.binary(), "string": pa.string(), **{name: kind for name, (kind, _) in _NUMBERS.items()}}
_WHERE = ("partition", "offset")


class Rejects:
    """Records that are not what they were read as: give one to `read` and look into it afterwards."""

    schema = pa.schema(
        {
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "column": pa.string(),
            "error": pa.string(),
            "bytes": pa.binary(),
        }
    )

    def __init__(self) -> None:
        self._batches: list[Any] = []

    def add(self, batch: Any) -> None:
        self._batches.append(batch)

    def to_arrow(self) -> Any:
        """A table of topic, partition, offset, column, error and the original bytes."""
        return pa.Table.from_batches(self._batches, self.schema)

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    def __repr__(self) -> str:
        return f"<{len(self)} rejected records>"


class TypedDecoder:
    """A Decoder whose key and value columns have types. Rejected records are not among its rows."""

    def __init__(
        self,
        topic: str,
        columns: Sequence[str] | None = None,
        *,
        key: Format = "raw",
        value: Format = "raw",
        rejects: Rejects | None = None,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
    ) -> None:
        wanted = check_columns(columns)
        self._formats = {
            name: format_name
            for name, format_name in (("key", key), ("value", value))
            if _checked(format_name) != "raw" and name in wanted
        }
        needed = [*wanted, *_WHERE] if self._formats else list(wanted)
        self._inner = Decoder(topic, needed, batch_bytes=batch_bytes)
        self._rejects = rejects
        self.topic = topic
        self.schema = pa.schema(
            [
                field.with_type(_TYPES[self._formats[name]]) if name in self._formats else field
                for name, field in FIELDS.items()
                if name in wanted
            ]
        )

    def decode(self, parts: Iterable[Fetched]) -> Iterator[Any]:
        for batch in self._inner.decode(parts):
            typed = self._typed(batch) if self._formats else batch
            if typed.num_rows:
                yield typed

    def _typed(self, batch: Any) -> Any:
        fits = np.ones(batch.num_rows, bool)
        columns = {name: batch.column(name) for name in self.schema.names}
        for name, format_name in self._formats.items():
            columns[name], wrong = convert(columns[name], format_name)
            if wrong is not None:
                self._set_aside(batch, name, format_name, wrong)
                fits &= ~wrong
        typed = pa.RecordBatch.from_arrays(list(columns.values()), schema=self.schema)
        return typed if fits.all() else typed.filter(pa.array(fits))

    def _set_aside(self, batch: Any, name: str, format_name: str, wrong: Any) -> None:
        bad = batch.filter(pa.array(wrong))
        errors = [_why(data, format_name) for data in bad.column(name).to_pylist()]
        if self._rejects is None:
            raise ClientError(
                f"{name} at offset {bad['offset'][0]} of partition {bad['partition'][0]} "
                f"of topic {self.topic!r}: {errors[0]}",
                next_step="collect such records with rejects=headrace.Rejects()",
            )
        arrays = [
            pa.array([self.topic] * len(errors)),
            bad.column("partition"),
            bad.column("offset"),
            pa.array([name] * len(errors)),
            pa.array(errors),
            bad.column(name),
        ]
        self._rejects.add(pa.RecordBatch.from_arrays(arrays, schema=Rejects.schema))


def convert(column: Any, format_name: str) -> tuple[Any, Any]:
    """(the column in its type, which rows do not fit or None). Null stays null: a tombstone is no mistake."""
    if format_name == "string":
        return _as_strings(column)
    kind, layout = _NUMBERS[format_name]
    width = np.dtype(layout).itemsize
    there = column.is_valid().to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(pc.binary_length(column), 0).to_numpy()
    fits = there & (sizes == width)
    numbers = np.zeros(len(column), layout)
    if fits.any():
        picked = column.filter(pa.array(fits))  # a column of its own, whose bytes follow each other
        start = int(np.frombuffer(picked.buffers()[1], np.int32)[picked.offset])
        numbers[fits] = np.frombuffer(picked.buffers()[2], layout, len(picked), start)
    native = numbers.astype(np.dtype(layout).newbyteorder("="))
    wrong = there & ~fits
    return pa.array(native, kind, mask=~fits), wrong if wrong.any() else None


def _as_strings(column: Any) -> tuple[Any, Any]:
    try:
        return column.cast(pa.string()), None
    except pa.ArrowInvalid:
        wrong = np.array([data is not None and not _is_utf8(data) for data in column.to_pylist()])
        return pc.if_else(pa.array(wrong), pa.scalar(None, pa.binary()), column).cast(pa.string()), wrong


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _why(data: bytes, format_name: str) -> str:
    if format_name == "string":
        return "not UTF-8"
    return f"{len(data)} bytes are no {format_name}, which has {np.dtype(_NUMBERS[format_name][1]).itemsize}"


def _checked(format_name: str) -> str:
    if format_name not in _TYPES:
        raise ClientError(f"{format_name!r} is not a format", next_step=f"use one of {', '.join(_TYPES)}")
    return format_name
