# SPDX-License-Identifier: Apache-2.0
"""Writes the table of docs/evidence/scale.md from measured sizes. `make soak PART=scale` calls it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.harness.scale.failovers import Failover, Measured

_HEADINGS = (
    "cluster",
    "partitions led again after",
    "waits",
    "CPU of the controller",
    "of the busiest other node",
    "commits",
    "bytes written",
    "largest commit",
    "bytes read by each node",
)


def table(measured: Sequence[Measured]) -> str:
    return "\n\n".join((_sizes(measured), *(_failovers(each) for each in measured)))


def _sizes(measured: Sequence[Measured]) -> str:
    rows = [
        (
            str(each.size),
            _bytes(each.largest_entry),
            _bytes(each.memory_bytes),
            f"{each.creation_cpu_s:.1f} s",
            f"{each.idle_cpu:.1%}",
            _bytes(each.idle_bytes_per_s) + "/s",
        )
        for each in measured
    ]
    headings = (
        "cluster",
        "largest entry of the store",
        "memory",
        "CPU to create all topics",
        "CPU idle",
        "sent idle",
    )
    return _markdown(headings, rows)


def _failovers(measured: Measured) -> str:
    kinds = (("a node", measured.node), ("a rack", measured.rack), ("the controller", measured.controller))
    title = f"**{measured.size}**: SIGKILL of"
    return title + "\n\n" + _markdown(_HEADINGS, [_row(name, failover) for name, failover in kinds])


def _row(name: str, failover: Failover) -> tuple[str, ...]:
    return (
        f"{name}, which led {failover.partitions:,}",
        f"≤ {failover.leads_again_s:.2f} s",
        f"{failover.waits_s:.2f} s",
        f"{failover.controller_cpu_s:.2f} s",
        f"{failover.busiest_cpu_s:.2f} s",
        str(failover.commits),
        _bytes(failover.commit_bytes),
        _bytes(failover.largest_commit),
        _bytes(failover.view_bytes),
    )


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _bytes(count: float) -> str:
    for unit, size in (("MB", 1_000_000), ("kB", 1_000)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"
