# SPDX-License-Identifier: Apache-2.0
"""Avro to typed columns: bare records of one schema, or Confluent's wire format with schemas from a registry.

Read next: kernels/avro.c or row_wise.py, which do it; registry.py; resolve.py (changed schemas).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.arrow.kernels.types import Int32s, Int64s
from headrace.client.arrow.values.avro.nodes import arrow_type, avro_nodes
from headrace.client.arrow.values.avro.registry import MAGIC, PREFIX_BYTES, Registry, UnknownSchema
from headrace.client.arrow.values.avro.resolve import Incompatible, resolve
from headrace.client.arrow.values.avro.row_wise import read_avro_rows
from headrace.client.arrow.values.avro.schema import AvroType, parse_schema
from headrace.client.arrow.values.converters import Converted, reasons
from headrace.client.arrow.values.formats import Avro
from headrace.client.arrow.values.kernel_functions import value_kernel
from headrace.client.arrow.values.kernel_reader import KernelReader
from headrace.client.arrow.values.nodes import Fault
from headrace.client.errors import ClientError

_NOBODY = -1
_TEXTS = {
    Fault.SYNTAX: "a number of more than 64 bits",
    Fault.CUT_OFF: "Avro that breaks off",
    Fault.RANGE: "a number that {type} does not have",
    Fault.UTF8: "not UTF-8",
    Fault.LEFT_OVER: "more behind the end of the Avro value",
    Fault.BRANCH: "a branch that the union does not have",
    Fault.LENGTH: "an impossible length",
}


class AvroConverter:
    def __init__(self, name: str, settings: Avro, topic: str) -> None:
        if settings.schema is None and settings.registry is None:
            raise ClientError(
                f"to read {name}s as Avro takes their schema",
                next_step="give headrace.Avro(schema) or headrace.Avro(registry='http://host:8081')",
            )
        self._name = name
        self._subject = settings.subject or f"{topic}-{name}"
        self._registry = None if settings.registry is None else Registry(settings.registry)
        self._schema: AvroType | None = None
        self._readings: dict[AvroType, _Reading] = {}
        self.field: Any = None
        if settings.schema is not None:
            self._use(parse_schema(settings.schema))
        elif settings.subject is not None and self._registry is not None:
            self._use(self._registry.newest(settings.subject))

    def learn(self, column: Any) -> None:
        """The subject's newest schema, so that no field is lost; without such a subject, the records'."""
        if self.field is not None or self._registry is None:
            return
        try:
            self._use(self._registry.newest(self._subject))
            return
        except UnknownSchema:
            ids = np.unique(schema_ids(column))[::-1].tolist()
        known = (self._known(schema_id) for schema_id in ids if schema_id != _NOBODY)
        self._use(next((schema for schema in known if schema is not None), AvroType(kind="null")))

    def convert(self, column: Any) -> Converted:
        self.learn(column)
        assert self._schema is not None
        if self._registry is None:
            return self._reading(self._schema).read(column, 0)
        ids = schema_ids(column)
        present = np.unique(ids).tolist()
        if len(present) == 1 and present[0] != _NOBODY:
            return self._of_schema(column, present[0])
        return self._mixed(column, ids, present)

    def _use(self, schema: AvroType) -> None:
        self._schema = schema
        self.field = pa.field(self._name, arrow_type(schema))

    def _known(self, schema_id: int) -> AvroType | None:
        assert self._registry is not None
        try:
            return self._registry.schema(schema_id)
        except UnknownSchema:
            return None

    def _reading(self, schema: AvroType) -> _Reading:
        if schema not in self._readings:
            self._readings[schema] = _Reading(schema)
        return self._readings[schema]

    def _of_schema(self, column: Any, schema_id: int) -> Converted:
        assert self._schema is not None
        written = self._known(schema_id)
        if written is None:
            return self._none_of(column, f"schema {schema_id} is not in the registry as Avro")
        try:
            typed, wrong = self._reading(written).read(column, PREFIX_BYTES)
            return Converted(resolve(typed, written, self._schema), wrong)
        except Incompatible as error:
            return self._none_of(column, f"schema {schema_id} is not that of this read: {error.what}")

    def _none_of(self, column: Any, why: str) -> Converted:
        there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist()
        return Converted(pa.nulls(len(column), self.field.type), dict.fromkeys(there, why))

    def _mixed(self, column: Any, ids: Int64s, present: list[int]) -> Converted:
        """Rows of each schema by themselves, then put in their order again."""
        wrong: dict[int, str] = {}
        pieces = [pa.nulls(1, self.field.type)]
        places = np.zeros(len(column), np.int64)  # in the pieces; 0 is the null that stands before them
        done = 1
        for schema_id in present:
            rows = np.flatnonzero(ids == schema_id)
            if schema_id == _NOBODY:
                wrong |= _not_framed(column, rows.tolist())
                continue
            typed, why = self._of_schema(column.take(pa.array(rows)), schema_id)
            wrong |= {int(rows[row]): reason for row, reason in why.items()}
            pieces.append(typed)
            places[rows] = np.arange(done, done + len(rows))
            done += len(rows)
        joined = pa.chunked_array(pieces, self.field.type).combine_chunks()
        return Converted(joined.take(pa.array(places)), dict(sorted(wrong.items())))


class _Reading:
    """Of records that were written with one schema."""

    def __init__(self, schema: AvroType) -> None:
        self._nodes = avro_nodes(schema)
        kernel = value_kernel("read_avro")
        self._read: Callable[[Any, int], tuple[Any, Int32s]]
        if kernel is None:
            self._read = lambda column, prefix: read_avro_rows(self._nodes, column, prefix)
        else:
            self._read = KernelReader(self._nodes, kernel).read

    def read(self, column: Any, prefix: int) -> Converted:
        typed, faults = self._read(column, prefix)
        return Converted(typed, reasons(faults, self._nodes, _TEXTS))


def schema_ids(column: Any) -> Int64s:
    """Of each row; -1 where it is null or not in Confluent's wire format."""
    _, ends, data = column.buffers()
    found = np.full(len(column), _NOBODY, np.int64)
    if data is None:
        return found
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    framed = np.flatnonzero(
        column.is_valid().to_numpy(zero_copy_only=False) & (np.diff(offsets) >= PREFIX_BYTES)
    )
    raw = np.frombuffer(data, np.uint8)
    framed = framed[raw[offsets[framed]] == MAGIC]
    digits = raw[offsets[framed, None] + np.arange(1, PREFIX_BYTES)].astype(np.int64)
    found[framed] = digits @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    return found


def _not_framed(column: Any, rows: list[int]) -> dict[int, str]:
    sizes = pc.binary_length(column)
    return {
        row: f"{sizes[row].as_py()} bytes that do not begin with a zero byte and a schema's id"
        for row in rows
        if column[row].is_valid
    }
