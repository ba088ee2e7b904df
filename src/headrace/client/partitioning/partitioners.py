# SPDX-License-Identifier: Apache-2.0
"""Which partition a record goes to (D4, D5): pure functions that every producer of ours shares.

Range boundaries are stored by ../tools/partitioner_store.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

from headrace.client.errors import ClientError, NextStep
from headrace.key_ranges import KeyRange, KeyRanges, Outside, shown

DEFAULT_STICKY_BYTES = 16384
"""Java's `batch.size`: the spread moves on after about one batch, so that batches fill."""

_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's Java client, as the signed number Java would show."""
    length = len(data)
    value = (_MURMUR2_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MURMUR2_M & _MASK
        word = (word ^ word >> 24) * _MURMUR2_M & _MASK
        value = value * _MURMUR2_M & _MASK ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MURMUR2_M & _MASK
    value = (value ^ value >> 13) * _MURMUR2_M & _MASK
    value ^= value >> 15
    return value - (1 << 32) if value >> 31 else value


def hash_partition(key: bytes, partitions: int) -> int:
    """Same key, same partition, as long as the number of partitions stays."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner(Protocol):
    def partition(self, key: bytes | None, size: int, partitions: int) -> int:
        """The partition for a record of `size` bytes in a topic of so many `partitions`."""


class StickyPartitioner:
    """Spreads records whatever their key: stays on one partition for a batch, then moves at random."""

    def __init__(self, random: Random, *, sticky_bytes: int = DEFAULT_STICKY_BYTES) -> None:
        self._random = random
        self._sticky_bytes = sticky_bytes
        self._current = -1
        self._taken = 0

    def partition(self, key: bytes | None, size: int, partitions: int) -> int:
        if not 0 <= self._current < partitions or self._taken >= self._sticky_bytes:
            self._move(partitions)
        self._taken += size
        return self._current

    def _move(self, partitions: int) -> None:
        """To another one where there is another, so that no partition gets two batches in a row."""
        if partitions > 1 and 0 <= self._current < partitions:
            step = self._random.randrange(1, partitions)
            self._current = (self._current + step) % partitions
        else:
            self._current = self._random.randrange(partitions)
        self._taken = 0


class ExplicitPartitioner:
    """The producer named the partition."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def partition(self, key: bytes | None, size: int, partitions: int) -> int:
        if not 0 <= self._partition < partitions:
            raise ClientError(
                f"partition {self._partition} does not exist: the topic has {partitions}, "
                f"numbered 0 to {partitions - 1}"
            )
        return self._partition


class RangePartitioner:
    """Partition n holds the keys of the n-th range, both ends included, compared as bytes.

    A key that starts with a range's upper boundary belongs to that range: with MZZZ as the upper
    boundary, MZZZ-1 does too. Ranges may be given in any order but may not overlap.
    """

    def __init__(self, ranges: Sequence[KeyRange], *, outside: Outside = "error") -> None:
        self._ranges = KeyRanges(ranges=tuple(ranges), outside=outside)

    def partition(self, key: bytes | None, size: int, partitions: int) -> int:
        count = len(self._ranges.ranges)
        if partitions != count:
            raise ClientError(
                f"the topic has {partitions} partitions but {count} key ranges",
                next_step="give one range per partition: headrace topics alter TOPIC --ranges LOW..HIGH,…",
            )
        return self.partition_of(key)

    def partition_of(self, key: bytes | None) -> int:
        if key is None:
            raise ClientError(
                "a record without a key has no place in key ranges",
                next_step=NextStep(
                    "give it a key, or name the partition with partition=",
                    "give it a key, or name the partition with --partition",
                ),
            )
        partition = self._ranges.partition_of(key)
        if partition is None:
            raise ClientError(
                f"key {shown(key)} is outside every range ({', '.join(map(str, self._ranges.ranges))})",
                next_step="widen the ranges, or send such keys to the nearest one: "
                "headrace topics alter TOPIC --ranges … --outside nearest",
            )
        return partition
