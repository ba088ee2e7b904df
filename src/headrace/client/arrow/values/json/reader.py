# SPDX-License-Identifier: Apache-2.0
"""JSON to typed columns, by a given schema or one learned from a sample.

Read next: kernels/json.c or row_wise.py, which do it; sample.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.client.arrow.kernels.types import Int32s
from headrace.client.arrow.values.converters import Converted, reasons
from headrace.client.arrow.values.formats import Json
from headrace.client.arrow.values.json.nodes import json_nodes
from headrace.client.arrow.values.json.row_wise import read_json_rows
from headrace.client.arrow.values.json.sample import sampled_field
from headrace.client.arrow.values.kernel_functions import value_kernel
from headrace.client.arrow.values.kernel_reader import KernelReader
from headrace.client.arrow.values.nodes import Fault, ValueNode
from headrace.client.errors import ClientError

_NAME_BEFORE = re.compile(rb'("(?:[^"\\]|\\.)*")\s*:$')
_TEXTS = {
    Fault.SYNTAX: "not JSON",
    Fault.CUT_OFF: "JSON that breaks off",
    Fault.KIND: "not of type {type}",
    Fault.RANGE: "a number beyond {type}",
    Fault.NULL: "null, which the schema does not allow",
    Fault.MISSING: "missing, which the schema does not allow",
    Fault.TWICE: "named twice",
    Fault.UTF8: "not UTF-8",
    Fault.DEEP: "nested too deep",
    Fault.LEFT_OVER: "more behind the end of the JSON value",
    Fault.TIME: "no text for {type}",
    Fault.UNKNOWN: "a field that the schema does not have",
}


class JsonConverter:
    def __init__(self, name: str, settings: Json) -> None:
        if settings.sample < 1:
            raise ClientError(
                f"a sample of {settings.sample} records says nothing", next_step="give sample=1000"
            )
        if settings.other_fields not in (None, "ignore", "reject"):
            raise ClientError(
                f"other_fields={settings.other_fields!r} means nothing", next_step='use "ignore" or "reject"'
            )
        self._name = name
        self._settings = settings
        self._nodes: list[ValueNode] = []
        self._read: Callable[[Any], tuple[Any, Int32s]] | None = None
        self.field: Any = None
        if settings.schema is not None:
            self._use(_given_field(name, settings.schema))

    def learn(self, column: Any) -> None:
        if self.field is None:
            there = column.drop_null()
            self._use(sampled_field(self._name, there[: self._settings.sample].to_pylist()))

    def convert(self, column: Any) -> Converted:
        self.learn(column)
        assert self._read is not None
        typed, faults = self._read(column)
        wrong = reasons(faults, self._nodes, _TEXTS)
        for row in np.flatnonzero(faults[:, 0] == Fault.UNKNOWN).tolist():
            wrong[row] += _which_field(column[row].as_py(), int(faults[row, 2]), self._settings)
        return Converted(typed, wrong)

    def _use(self, field: Any) -> None:
        is_sampled = self._settings.schema is None
        is_all = self._settings.other_fields == "reject" or (is_sampled and not self._settings.other_fields)
        self._nodes = json_nodes(field, is_all=is_all)
        self.field = field
        kernel = value_kernel("read_json")
        if kernel is None:
            self._read = lambda column: read_json_rows(self._nodes, column)
        else:
            self._read = KernelReader(self._nodes, kernel).read


def _which_field(data: bytes, position: int, settings: Json) -> str:
    """Its name stands before the position that a kernel gives (not so without kernels)."""
    name = _NAME_BEFORE.search(data[:position])
    named = "" if name is None else f" ({name[1].decode(errors='replace')})"
    if settings.schema is not None:
        return named
    return f"{named}; no record of the sample ({settings.sample}) has it: give headrace.Json(schema)"


def _given_field(name: str, schema: Any) -> Any:
    if isinstance(schema, pa.Schema):
        return pa.field(name, pa.struct(list(schema)))
    if isinstance(schema, pa.DataType):
        return pa.field(name, schema)
    raise ClientError(
        f"{schema!r} is not a schema",
        next_step="give a pyarrow.schema(…), or a pyarrow type such as a struct",
    )
