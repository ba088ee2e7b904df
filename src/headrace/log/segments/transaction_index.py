# SPDX-License-Identifier: Apache-2.0
"""The aborted transactions whose marker lies in a segment: Kafka's `.txnindex`.

Unlike the other indexes, this one cannot be rebuilt from its segment alone: a transaction may begin in an
earlier one. A file that is missing or damaged means that the aborted transactions are unknown, never that
there are none (decision 29). Read next: log/transaction_indexes.py.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

TRANSACTION_ENTRY_BYTES = 34
UNKNOWN_BYTES = 1
"""The length of a file whose index has to be rebuilt: no number of entries has it."""
NO_ABORTS = 2**63 - 1

_VERSION = 0
_ENTRY = Struct(">hqqqq")
_FIELDS = 4


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker."""
    last_stable_offset: int
    """When the marker was written: no transaction that ends later began below it."""


class TransactionIndex:
    """In the order of the markers, so that last offsets rise and last stable offsets never fall."""

    __slots__ = ("_words",)

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self._words = array("q")
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        return len(self._words) // _FIELDS

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(self._entry, range(len(self)))

    def _entry(self, slot: int) -> AbortedTransaction:
        return AbortedTransaction(*self._words[_FIELDS * slot : _FIELDS * (slot + 1)])

    def append(self, entry: AbortedTransaction) -> None:
        self._words.extend(entry)

    @property
    def size_bytes(self) -> int:
        return len(self._words) * self._words.itemsize

    @property
    def lowest_offset(self) -> int:
        """Where the earliest of the transactions began; NO_ABORTS when there is none."""
        return min(self._words[1::_FIELDS], default=NO_ABORTS)

    @property
    def last_offset(self) -> int:
        """Of the last marker; -1 when there is none."""
        return self._words[-2] if self._words else -1

    def truncate(self, offset: int) -> None:
        """Forgets transactions whose marker lies at or behind `offset`."""
        del self._words[_FIELDS * self._first_ending_at(offset) :]

    def _first_ending_at(self, offset: int) -> int:
        return bisect_left(range(len(self)), offset, key=lambda slot: self._words[_FIELDS * slot + 2])

    def overlapping(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Transactions with offsets in the range; and whether no later segment can have more of them."""
        found = []
        for slot in range(self._first_ending_at(start_offset), len(self)):
            entry = self._entry(slot)
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def encode(self) -> bytes:
        return b"".join([_ENTRY.pack(_VERSION, *entry) for entry in self])

    @classmethod
    def decode(cls, data: bytes, base_offset: int, end_offset: int) -> TransactionIndex | None:
        """None when this cannot be the index of a segment with these offsets."""
        if len(data) % TRANSACTION_ENTRY_BYTES:
            return None
        index = cls()
        last_offset, last_stable_offset = base_offset - 1, 0
        for version, entry in read_entries(data):
            if (
                version != _VERSION
                or entry.producer_id < 0
                or not 0 <= entry.first_offset < entry.last_offset
                or not last_offset < entry.last_offset < end_offset
                or not last_stable_offset <= entry.last_stable_offset <= entry.last_offset + 1
            ):
                return None
            index.append(entry)
            last_offset, last_stable_offset = entry.last_offset, entry.last_stable_offset
        return index


def read_entries(data: bytes) -> Iterator[tuple[int, AbortedTransaction]]:
    """Versions and entries as they stand in a file of whole entries, unchecked."""
    for version, *fields in _ENTRY.iter_unpack(data):
        yield version, AbortedTransaction(*fields)
