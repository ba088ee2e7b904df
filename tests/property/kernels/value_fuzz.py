# SPDX-License-Identifier: Apache-2.0
"""Damaged JSON and Avro through the kernels of a given library, and what was read through those that write.

A program of its own, since a library with a sanitizer ends its process at the first fault:
`python value_fuzz.py LIBRARY SEED ROUNDS`. Prints how many values were rejected.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.client.arrow.values.avro.nodes import avro_nodes
from headrace.client.arrow.values.avro.schema import AvroType, parse_schema
from headrace.client.arrow.values.avro.sources import avro_source
from headrace.client.arrow.values.json.nodes import JSON_TEXT, json_nodes
from headrace.client.arrow.values.json.sources import json_source
from headrace.client.arrow.values.kernel_functions import value_kernel
from headrace.client.arrow.values.kernel_reader import KernelReader
from headrace.client.arrow.values.sources import RowUnfit, write_rows
from headrace.client.arrow.values.write_row_wise import avro_row, json_row

JSON_FIELD = pa.field(
    "value",
    pa.struct(
        [
            pa.field("id", pa.int32(), nullable=False),
            pa.field("price", pa.float64()),
            pa.field("näme", pa.string()),
            pa.field("tags", pa.list_(pa.struct({"x": pa.bool_()}))),
            pa.field("counts", pa.map_(pa.string(), pa.int8())),
            pa.field("rest", pa.string(), metadata=JSON_TEXT),
            pa.field("when", pa.timestamp("ms", tz="UTC")),
        ]
    ),
)
JSON = json.dumps(
    {
        "id": -12,
        "price": 12345678901234567890.123e-7,
        "näme": 'ü\n"\U0001f30a',
        "tags": [{"x": True}, {"x": None}],
        "counts": {"a": 1, "b": -128},
        "rest": [{"deep": [1.5, None]}],
        "when": "2026-11-15T18:20:46.123+01:00",
        "unknown": {"a": [False]},
    }
).encode()
AVRO_SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "a", "type": {"type": "array", "items": {"type": "map", "values": "bytes"}}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "x", "type": "double"},
    ],
}
AVRO = b"\x7f\x02\x04hi\x02\x02\x02k\x04vv\0\0abc\x04\x01\x02\x02" + b"\0" * 8


def damaged(chance: random.Random, good: bytes) -> bytes:
    data = bytearray(good)
    for _ in range(chance.randint(0, 3)):
        place = chance.randrange(len(data) + 1)
        choice = chance.random()
        if choice < 0.4:
            data[place : place + 1] = bytes([chance.randrange(256)])
        elif choice < 0.6:
            del data[place : place + chance.randint(1, 5)]
        elif choice < 0.8:
            data[place:place] = bytes(
                chance.choices(b'"\\{}[],:0-9eE.ntfNIu\x80\xff\0', k=chance.randint(1, 4))
            )
        else:
            del data[place:]
    return bytes(data)


def tight(nodes: Any, kernel: Any) -> KernelReader:
    """With no room to spare, so that every buffer has to grow."""
    columns = KernelReader(nodes, kernel)
    columns._per_row = [0.0] * len(nodes)
    columns._data_per_row = [0.0] * len(nodes)
    return columns


def write_back(column: Any, library: Path, schema: AvroType | None) -> None:
    try:
        if schema is None:
            write_rows(json_source(column), value_kernel("write_json", library), json_row)
        else:
            write_rows(avro_source(column, schema), value_kernel("write_avro", library), avro_row, b"!")
    except RowUnfit:
        pass  # nan is no JSON


def main(library: Path, seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    schema = parse_schema(AVRO_SCHEMA)
    kinds = (
        (JSON, json_nodes(JSON_FIELD), value_kernel("read_json", library), None),
        (AVRO, avro_nodes(schema), value_kernel("read_avro", library), schema),
    )
    rejected = 0
    for number in range(rounds):
        good, nodes, kernel, written_by = kinds[number % 2]
        data = damaged(chance, good)  # alone in its buffer: a sanitizer sees the first byte behind it
        ends = pa.py_buffer(np.array([0, len(data)], np.int32))
        column = pa.Array.from_buffers(
            pa.binary(), 1, [None, ends, pa.py_buffer((ctypes.c_char * len(data)).from_buffer_copy(data))]
        )
        typed, faults = tight(nodes, kernel).read(column)
        rejected += bool(faults[0, 0])
        write_back(typed, library, written_by)
    print(rejected)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
