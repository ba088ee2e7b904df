# SPDX-License-Identifier: Apache-2.0
"""Cycles of dependencies between operations: G0 (of writes only) and G1c (with a read), as Elle names them.

ww: an operation sent the version right after that of another. wr: it polled what the other sent. realtime: it
was invoked after the other had completed; a chain of the completions stands for all such pairs, so that there
are only as many edges as operations. process: the same, and by the same process. A cycle that needs process
or realtime edges has that behind its name. Read next: graph.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from tests.harness.jepsen.graph import Edge, components, shortest_cycle
from tests.harness.jepsen.operations import Analysis, Anomaly, Key
from tests.harness.jepsen.versions import VersionOrder


def cycles(
    analysis: Analysis, orders: Mapping[Key, VersionOrder], *, ww_dependencies: bool
) -> Iterator[Anomaly]:
    """G1c without `ww` edges, with which it is normal: writes of transactions are not isolated."""
    if ww_dependencies:
        yield from _cycles("G0", analysis, list(_ww(analysis, orders)))
    if any(sent and polled for sent, polled in zip(analysis.sends, analysis.polls, strict=True)):
        # No cycle without one: an operation that only polls is followed by later ones alone.
        yield from _cycles("G1c", analysis, list(_wr(analysis)))


def _cycles(name: str, analysis: Analysis, edges: Sequence[Edge]) -> Iterator[Anomaly]:
    """Each group of operations under the weakest name."""
    reported: set[int] = set()
    count = len(analysis.operations)
    levels = (("", ()), ("-process", tuple(_process(analysis))), ("-realtime", tuple(_realtime(analysis))))
    more: list[Edge] = []
    for suffix, added in levels:
        more += added
        for component in components([*edges, *more]):
            inside = [edge for edge in edges if edge[0] in component and edge[1] in component]
            if not inside or not reported.isdisjoint(component):
                continue
            reported |= component
            cycle = shortest_cycle([*edges, *more], inside[0], component)
            steps = [analysis.operations[number] for number in cycle if number < count]
            key = next(iter(analysis.sends[inside[0][0]]))
            detail = " → ".join(f"{each.process} {each.f} invoked at {each.invoked_at}" for each in steps)
            yield Anomaly(kind=f"{name}{suffix}", partition=key, detail=f"{detail} → the first")


def _ww(analysis: Analysis, orders: Mapping[Key, VersionOrder]) -> Iterator[Edge]:
    for key, order in orders.items():
        before: int | None = None
        for values in order.log.values():
            writer = analysis.writers[key].get(next(iter(values)))
            if writer is None or analysis.operations[writer].type == "fail":
                continue
            if before is not None and before != writer:
                yield before, writer
            before = writer


def _wr(analysis: Analysis) -> Iterator[Edge]:
    for number, polls in enumerate(analysis.polls):
        if analysis.operations[number].type == "fail":
            continue
        seen: set[int] = set()
        for key, records in polls.items():
            for record in records:
                writer = analysis.writers[key].get(record.value)
                if writer is None or writer == number or writer in seen:
                    continue
                seen.add(writer)
                if analysis.operations[writer].type != "fail":
                    yield writer, number


def _process(analysis: Analysis) -> Iterator[Edge]:
    """Between operations of which one had completed: those of a producer may overlap in time."""
    last: dict[str, tuple[int, int]] = {}
    for number, operation in enumerate(analysis.operations):
        completed_at, before = last.get(operation.process, (operation.invoked_at + 1, 0))
        if completed_at <= operation.invoked_at:
            yield before, number
        if operation.type == "ok" and operation.completed_at is not None:
            last[operation.process] = operation.completed_at, number


def _realtime(analysis: Analysis) -> Iterator[Edge]:
    """Completions have the numbers behind those of the operations."""
    count = len(analysis.operations)
    completed = sorted(
        (operation.completed_at, number)
        for number, operation in enumerate(analysis.operations)
        if operation.type == "ok" and operation.completed_at is not None
    )
    moments = [moment for moment, _ in completed]
    for place, (_, number) in enumerate(completed):
        yield number, count + place
        if place:
            yield count + place - 1, count + place
    for number, operation in enumerate(analysis.operations):
        place = bisect_left(moments, operation.invoked_at) - 1
        if place >= 0:
            yield count + place, number
