# SPDX-License-Identifier: Apache-2.0
"""Damaged batches through every kernel of a given library, beside reading record by record.

A program of its own, since a library with a sanitizer ends its process at the first fault:
`python kernel_fuzz.py LIBRARY SEED ROUNDS`. Prints how many batches were refused.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from headrace.client.arrow.fetch.sections import Section
from headrace.client.arrow.kernels.compiled import load
from headrace.client.arrow.kernels.row_wise import RowWise
from headrace.client.arrow.kernels.types import RowColumns
from headrace.errors import DecodeError
from headrace.kernels.library import load_library
from headrace.kernels.walk import TimeQuestion, Walk
from headrace.wire.batch import HEADER_SIZE, read_header
from tests.harness.batches.damaged import damaged_batches

COLUMNS = frozenset(("key", "value", "headers", "offset", "timestamp"))
END = 1 << 62


def decoded(code: Any, batch: bytearray) -> dict[str, Any] | None:
    """A buffer of exactly the batch's size: a sanitizer sees the first byte behind it."""
    header = read_header(batch)
    try:
        columns = code.decode([Section(0, header, memoryview(batch), -END, END)], COLUMNS).columns
    except DecodeError:
        return None
    return {name: column.to_pylist() for name, column in columns.items()} if columns else {}


def walked(walk: Walk, batch: bytearray) -> bool:
    """Whether the body is sound, by every way through it."""
    header, body = read_header(batch), batch[HEADER_SIZE:]
    count = header.record_count
    question = TimeQuestion(start_offset=-END, timestamp=END, wants_latest=1)
    found = walk.find_time(body, count, question)
    if 0 <= count <= len(body) // 7:
        list(walk.layouts(body, count))
    walk.check(body, count, header.base_timestamp, needs_key=True)
    walk.check_batch(batch, 0, len(batch))
    walk.count_outside(body, count, b"a", b"zz")
    walk.count_sound(memoryview(batch), [0, len(batch), HEADER_SIZE, len(batch), 5, len(batch) - 5])
    return not (isinstance(found, int) and found < 0)


def encoded_again(code: Any, columns: dict[str, Any]) -> None:
    """What was read is written, grouped and hashed."""
    import pyarrow as pa

    rows = len(columns["value"])
    keys = pa.array(columns["key"], pa.binary())
    picked = RowColumns(rows, keys, pa.array(columns["value"], pa.binary()), None, None, 7)
    if rows:
        code.encode(picked, np.arange(rows, dtype=np.int64), limit=100, free=HEADER_SIZE)
    code.group((code.murmur2(keys) & 3).astype(np.int32), 4)


def main(library: str, seed: str, rounds: str) -> None:
    compiled, loaded, row_wise = load(Path(library)), load_library(Path(library)), RowWise()
    assert compiled is not None
    assert loaded is not None
    walk, refused = Walk(loaded), 0
    for batch in damaged_batches(random.Random(int(seed)), int(rounds)):
        rows = decoded(compiled, batch)
        if rows != decoded(row_wise, batch):
            raise SystemExit(f"the kernels read {batch.hex()} otherwise")
        if rows is None:
            refused += 1
        else:
            encoded_again(compiled, rows)
        walked(walk, batch)
    print(refused)


if __name__ == "__main__":
    main(*sys.argv[1:])
