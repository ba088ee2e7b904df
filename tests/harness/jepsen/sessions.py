# SPDX-License-Identifier: Apache-2.0
"""The order that one process sees: skips and inversions inside an operation, and between its operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from tests.harness.jepsen.operations import Analysis, Anomaly, Key, Operation, Record
from tests.harness.jepsen.versions import EMPTY, VersionOrder

Orders = Mapping[Key, VersionOrder]


def internal_polls(analysis: Analysis, orders: Orders) -> Iterator[Anomaly]:
    """int-poll-skip and int-nonmonotonic-poll: two records in a row of one key in one operation."""
    for number, operation in enumerate(analysis.operations):
        for key, records in analysis.polls[number].items():
            if key in operation.rebalanced:
                continue
            order = orders.get(key, EMPTY)
            for before, after in pairwise(records):
                delta = _distance(order.rank(before), order.rank(after))
                if delta != 1:
                    kind = "int-poll-skip" if delta > 1 else "int-nonmonotonic-poll"
                    yield _anomaly(kind, key, operation, "read", before, after)


def internal_sends(analysis: Analysis, orders: Orders) -> Iterator[Anomaly]:
    """int-send-skip and int-nonmonotonic-send; the skip is normal, as writes of transactions interleave."""
    for number, operation in enumerate(analysis.operations):
        committed = len(operation.value) > 1 and analysis.has_committed(number)
        for key, records in analysis.sends[number].items():
            order = orders.get(key, EMPTY)
            for before, after in pairwise(records):
                delta = _distance(order.rank(before, trusted=committed), order.rank(after, trusted=committed))
                if delta != 1:
                    kind = "int-send-skip" if delta > 1 else "int-nonmonotonic-send"
                    yield _anomaly(kind, key, operation, "sent", before, after)


def external_polls(analysis: Analysis, orders: Orders) -> Iterator[Anomaly]:
    """poll-skip and nonmonotonic-poll: a process goes on where its last successful poll ended.

    An assignment forgets the keys that are not part of it.
    """
    last: dict[str, dict[Key, Record]] = {}
    for number, operation in enumerate(analysis.operations):
        positions = last.setdefault(operation.process, {})
        if operation.f in ("assign", "subscribe"):
            if operation.type != "fail":
                for key in positions.keys() - set(operation.keys):
                    del positions[key]
            continue
        for key, records in analysis.polls[number].items():
            if not records:
                continue
            order, before = orders.get(key, EMPTY), positions.get(key)
            delta = _distance(order.rank(before), order.rank(records[0])) if before else 1
            if before and delta != 1:
                kind = "poll-skip" if delta > 1 else "nonmonotonic-poll"
                yield _anomaly(kind, key, operation, "read", before, records[0])
            if operation.type == "ok":
                positions[key] = records[-1]


def external_sends(analysis: Analysis, orders: Orders) -> Iterator[Anomaly]:
    """nonmonotonic-send: a process sends one value after another, and they are the other way round."""
    last: dict[tuple[str, Key], tuple[int, Record]] = {}
    for number, operation in enumerate(analysis.operations):
        if operation.type == "fail" or not analysis.sends[number]:
            continue
        committed = analysis.has_committed(number)
        for key, records in analysis.sends[number].items():
            order = orders.get(key, EMPTY)
            first, end = (order.rank(each, trusted=committed) for each in (records[0], records[-1]))
            before = last.get((operation.process, key))
            if before is not None and first is not None and first <= before[0]:
                yield _anomaly("nonmonotonic-send", key, operation, "sent", before[1], records[0])
            if end is not None:
                last[operation.process, key] = end, records[-1]


def _distance(before: int | None, after: int | None) -> int:
    """1 where nothing is known."""
    return 1 if before is None or after is None else after - before


def _anomaly(kind: str, key: Key, operation: Operation, verb: str, before: Record, after: Record) -> Anomaly:
    places = f"{before.value!r} ({before.offset}) and then {after.value!r} ({after.offset})"
    return Anomaly(kind=kind, partition=key, detail=f"{operation.process} {verb} {places}")
