# SPDX-License-Identifier: Apache-2.0
"""The suite of slow nodes: three nodes of each engine, one of them slow.

Each measure starts a cluster of its own. How it is judged: bench/judge.py.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.cell import Cell
from bench.measures import gray
from bench.model import ACK, KAFKA, OS, Better, Figures, Line, Measure, Suite


def _measure(
    name: str, title: str, run: Callable[[Cell], Figures], *, judged: str, p99_target: float | None
) -> Measure:
    lines = (
        Line(figure="p50_ms", title=f"{title}: p50", unit="ms", better=Better.LOWER, judged=judged),
        Line(
            figure="p99_ms",
            title=f"{title}: p99",
            unit="ms",
            better=Better.LOWER,
            target=p99_target,
            judged=judged,
        ),
        Line(
            figure="mb_per_s",
            title=f"{title}: throughput of all partitions",
            unit="MB/s",
            better=Better.HIGHER,
            judged=judged,
        ),
    )
    return Measure(name=name, run=run, profile=None, variants=(KAFKA, judged), warm_up=False, lines=lines)


GRAY_SUITE = Suite(
    name="gray",
    title="Three nodes, one of them slow, against Apache Kafka with the same slow node",
    measures=(
        _measure(
            "slow_disk_flushed",
            "200 ms per fsync, both flush before they answer",
            gray.slow_disk_flushed,
            judged=ACK,
            p99_target=0.5,
        ),
        _measure(
            "slow_disk",
            "200 ms per fsync, Apache Kafka at its defaults does not wait for its disk",
            gray.slow_disk,
            judged=ACK,
            p99_target=0.5,
        ),
        _measure(
            "slow_network",
            "5 % packet loss and 50 ms delay",
            gray.slow_network,
            judged=OS,
            p99_target=None,
        ),
    ),
    rounds=3,
    note="acks=all, three replicas, min.insync.replicas 2. The slow node leads one of three partitions; "
    "after it became slow, either engine has 12 s to react, then 200 records per second are written to all "
    "partitions in turn. `Both flush before they answer`: Apache Kafka with log.flush.interval.messages=1, "
    "Headrace with its default `ack`. Loss and delay are those of what the slow node sends, by a process "
    "that forwards its packets between two TAP devices: the kernel had no netem.",
)
