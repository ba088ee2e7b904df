# SPDX-License-Identifier: Apache-2.0
"""The suite of growth: what one node holds more and more of, each at three sizes.

Judged is the growth exponent between the smallest and the largest: bench/curves.py.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.cell import Cell
from bench.curves import growth_lines
from bench.measures import growth, growth_clients
from bench.model import ACK, OS, Better, Curve, Figures, Line, Measure, Suite

_STALL_MS = 50


def _longest_wait(what: str) -> Line:
    return Line(
        figure="longest_wait_ms",
        title=f"longest wait of a small request in 16 s, {what}",
        unit="ms",
        better=Better.LOWER,
        target=_STALL_MS,
        own=True,
    )


def _producing(title: str, target: float) -> tuple[Line, ...]:
    rate = Line(figure="mb_per_s", title=title, unit="MB/s", better=Better.HIGHER, target=target)
    cpu = Line(figure="cpu_s_per_gb", title=f"{title}: broker CPU", unit="s/GB", better=Better.LOWER)
    return rate, cpu


def _own(name: str, run: Callable[[Cell], Figures], curves: tuple[Curve, ...], largest: str) -> Measure:
    """Of Headrace alone, on nodes that the measure starts by itself."""
    return Measure(
        name=name,
        run=run,
        lines=(*growth_lines(curves), _longest_wait(largest)),
        curves=curves,
        profile=None,
        variants=(OS,),
        warm_up=False,
        rounds=1,
    )


_IDEMPOTENT = "64 idempotent producers, acks=all"

GROWTH_SUITE = Suite(
    name="growth",
    title="What one node holds, and how its costs grow with it",
    measures=(
        Measure(
            name="idempotent_producers",
            run=growth_clients.idempotent_producers,
            lines=(
                *_producing(_IDEMPOTENT, 1.0),
                Line(
                    figure="mb_per_s",
                    title=f"{_IDEMPOTENT}, `ack` against Kafka's page cache",
                    unit="MB/s",
                    better=Better.HIGHER,
                    target=0.9,
                    judged=ACK,
                ),
            ),
            curves=growth_clients.PRODUCER_CURVES,
        ),
        Measure(
            name="spread_producers",
            run=growth_clients.spread_producers,
            lines=_producing("16 producers over 256 partitions, linger 5 ms", 0.9),
            curves=growth_clients.SPREAD_CURVES,
        ),
        _own(
            "connections", growth_clients.connections, growth_clients.CONNECTION_CURVES, "5,000 connections"
        ),
        _own("groups", growth_clients.groups, growth_clients.GROUP_CURVES, "1,000 groups"),
        _own("partitions", growth.partitions, growth.PARTITION_CURVES, "10,000 partitions"),
        _own("topics", growth.topics, growth.TOPIC_CURVES, "100,000 topics"),
    ),
    rounds=3,
    note="Judged is the growth exponent between the smallest and the largest size: 1 is linear, up to 1.1 "
    "counts as that. The lines of producers have three rounds, all others one, on a node of its own at "
    "each size; clients and node share the machine's cores. Partitions have two batches of 8 KB each, "
    "topics one empty partition.",
)
