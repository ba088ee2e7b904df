# SPDX-License-Identifier: Apache-2.0
"""The order of the versions of each key: which value is at which offset, by what was sent and polled.

Sends count when they must have committed, polls always: a consumer never sees what is not safe. Two values at
one offset and one value at two offsets are found here. Read next: operations.py (the history).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tests.harness.jepsen.operations import Analysis, Anomaly, Key, Record, Value


@dataclass(frozen=True, slots=True)
class VersionOrder:
    log: Mapping[int, Collection[Value]]
    """Every offset that is known, in order."""
    ranks: Mapping[int, int]
    """Of every offset: how many are known below it."""
    offsets: Mapping[Value, int]
    """The first of every value."""
    contiguous: bool
    """No offset is left out, whether or not it is known."""

    def rank(self, record: Record, *, trusted: bool = True) -> int | None:
        """The place of a record in the order. `trusted`: its offset is known to have been taken."""
        offset = record.offset if trusted and record.offset is not None else self.offsets.get(record.value)
        if offset is None:
            return None
        return offset if self.contiguous else self.ranks.get(offset)


EMPTY = VersionOrder({}, {}, {}, contiguous=False)


def version_orders(analysis: Analysis, contiguous: Collection[Key] = ()) -> dict[Key, VersionOrder]:
    logs: dict[Key, dict[int, dict[Value, None]]] = defaultdict(dict)
    for number, polls in enumerate(analysis.polls):
        sends = analysis.sends[number] if analysis.has_committed(number) else {}
        for records_of in (sends, polls):
            for key, records in records_of.items():
                log = logs[key]
                for offset, value in records:
                    if offset is not None:
                        log.setdefault(offset, {})[value] = None
    return {key: _version_order(log, key in contiguous) for key, log in logs.items()}


def _version_order(log: Mapping[int, Mapping[Value, None]], contiguous: bool) -> VersionOrder:
    ordered = {offset: tuple(log[offset]) for offset in sorted(log)}
    offsets: dict[Value, int] = {}
    for offset, values in ordered.items():
        for value in values:
            offsets.setdefault(value, offset)
    ranks = {offset: rank for rank, offset in enumerate(ordered)}
    return VersionOrder(ordered, ranks, offsets, contiguous)


def inconsistent_offsets(orders: Mapping[Key, VersionOrder]) -> Iterator[Anomaly]:
    for key, order in orders.items():
        for offset, values in order.log.items():
            if len(values) > 1:
                detail = f"offset {offset} has the values {sorted(values)}"
                yield Anomaly(kind="inconsistent-offsets", partition=key, detail=detail)


def duplicates(orders: Mapping[Key, VersionOrder]) -> Iterator[Anomaly]:
    for key, order in orders.items():
        places: dict[Value, list[int]] = defaultdict(list)
        for offset, values in order.log.items():
            for value in values:
                places[value].append(offset)
        for value, offsets in places.items():
            if len(offsets) > 1:
                yield Anomaly(kind="duplicate", partition=key, detail=f"{value!r} at {offsets}")
