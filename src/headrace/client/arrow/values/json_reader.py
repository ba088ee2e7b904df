"""JSON to typed columns, by a given schema or one learned from a sample.

Read next: kernels/json.c or json_row_wise.py, which do it; json_sample.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.client.arrow.types import Int32s
from headrace.client.arrow.values.converters import Converted, reasons
from headrace.client.arrow.values.formats import Json
from headrace.client.arrow.values.growing import GrowingColumns, value_kernel
from headrace.client.arrow.values.json_nodes import json_nodes
from headrace.client.arrow.values.json_row_wise import read_json_rows
from headrace.client.arrow.values.json_sample import sampled_field
from headrace.client.arrow.values.nodes import Fault, ValueNode
from headrace.client.errors import ClientError

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
}


class JsonConverter:
    def __init__(self, name: str, settings: Json) -> None:
        if settings.sample < 1:
            raise ClientError(
                f"a sample of {settings.sample} records says nothing", next_step="give sample=1000"
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
        return Converted(typed, reasons(faults, self._nodes, _TEXTS))

    def _use(self, field: Any) -> None:
        self._nodes = json_nodes(field)
        self.field = field
        kernel = value_kernel("read_json")
        if kernel is None:
            self._read = lambda column: read_json_rows(self._nodes, column)
        else:
            self._read = GrowingColumns(self._nodes, kernel).read


def _given_field(name: str, schema: Any) -> Any:
    if isinstance(schema, pa.Schema):
        return pa.field(name, pa.struct(list(schema)))
    if isinstance(schema, pa.DataType):
        return pa.field(name, schema)
    raise ClientError(
        f"{schema!r} is not a schema",
        next_step="give a pyarrow.schema(…), or a pyarrow type such as a struct",
    )
