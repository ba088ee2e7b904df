# SPDX-License-Identifier: Apache-2.0
"""Partitions all rows of a column at once: by the Java client's hash, round robin, ranges, or a column.

Row by row: ../../partitioning/partitioners.py.
"""

from __future__ import annotations

import random
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from headrace.client.arrow.errors import RowRefused
from headrace.client.arrow.kernels.available import kernels
from headrace.client.arrow.kernels.types import Int32s, Int64s, Kernels
from headrace.client.errors import ClientError
from headrace.client.partitioning.partitioners import RangePartitioner

PartitionerChoice = Literal["hash", "round_robin"] | RangePartitioner

_SHORTEST_RUN = 200
"""At least so many rows without a key go to one partition, so that batches fill."""


class ColumnPartitioner:
    """For the rows of one write, slice after slice."""

    def __init__(self, choice: PartitionerChoice, partitions: int, *, code: Kernels | None = None) -> None:
        if choice not in ("hash", "round_robin") and not isinstance(choice, RangePartitioner):
            raise ClientError(
                f"{choice!r} is not a partitioner",
                next_step='use "hash", "round_robin" or a RangePartitioner',
            )
        self._choice = choice
        self._partitions = partitions
        self._kernels = code or kernels()
        self._next = random.randrange(partitions)

    def choose(self, keys: Any, rows: int) -> Int32s:
        """`keys` is a binary column of so many rows, or None."""
        if self._choice == "round_robin":
            turns = (np.arange(rows) + self._next) % self._partitions
            self._next = (self._next + rows) % self._partitions
            return turns.astype(np.int32)
        if isinstance(self._choice, RangePartitioner):
            return self._by_range(self._choice, keys)
        if self._partitions == 1:
            return np.zeros(rows, np.int32)
        if keys is None:
            return self._spread(rows)
        chosen: Int32s = ((self._kernels.murmur2(keys) & 0x7FFFFFFF) % self._partitions).astype(np.int32)
        if keys.null_count:
            keyless = keys.is_null().to_numpy(zero_copy_only=False)
            chosen[keyless] = self._spread(int(keyless.sum()))
        return chosen

    def group(self, chosen: Int32s) -> tuple[Int64s, Int64s]:
        """(row numbers by partition, where each partition's begin and the last one's end)."""
        return self._kernels.group(chosen, self._partitions)

    def _spread(self, rows: int) -> Int32s:
        run = max(_SHORTEST_RUN, -(-rows // self._partitions))
        chosen = (np.arange(rows) // run + self._next) % self._partitions
        self._next = (self._next + -(-rows // run)) % self._partitions
        return chosen.astype(np.int32)

    def _by_range(self, ranges: RangePartitioner, keys: Any) -> Int32s:
        """Each different key is looked up once."""
        if keys is None:
            raise ClientError(
                "records without a key have no place in key ranges", next_step="name a key column"
            )
        encoded = keys.dictionary_encode(null_encoding="encode")
        places = encoded.indices.to_numpy()
        chosen = np.empty(len(encoded.dictionary), np.int32)
        for place, key in enumerate(encoded.dictionary.to_pylist()):
            try:
                chosen[place] = ranges.partition(key, 0, self._partitions)
            except ClientError as error:
                raise RowRefused(int(np.argmax(places == place)), error) from error
        by_row: Int32s = chosen[places]
        return by_row


def check_given(given: Any, partitions: int) -> Int32s:
    """A column that names partitions: every row must name one that exists."""
    wrong = pc.fill_null(pc.or_(pc.less(given, 0), pc.greater_equal(given, partitions)), True)
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        named = given[row].as_py()
        raise RowRefused(
            row,
            ClientError(
                f"partition {named} does not exist: the topic has {partitions}, 0 to {partitions - 1}",
                next_step="leave the column of partitions out to have them chosen by key",
            ),
        )
    chosen: Int32s = given.to_numpy(zero_copy_only=False).astype(np.int32)
    return chosen
