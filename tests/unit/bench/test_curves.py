# SPDX-License-Identifier: Apache-2.0
"""How the growth of a figure is told, judged and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.curves import MeasuredCurve, curves_of, exponent, growth_lines, with_growth
from bench.judge import judge_line
from bench.measures.growth import at_size
from bench.model import ACK, KAFKA, OS, Curve, Measure
from bench.plots import draw_curves
from bench.report import curves_table
from bench.runner import MeasureRecord, Runner, Turn
from bench.suites.growth import GROWTH_SUITE

SIZES = (1_000, 3_000, 10_000)
CURVE = Curve(figure="start_s", title="start", unit="s", of="partitions", sizes=SIZES, most=1.1)


def measure(**more: Any) -> Measure:
    return Measure(
        name="partitions",
        run=lambda cell: {},
        lines=growth_lines([CURVE]),
        variants=(OS,),
        curves=(CURVE,),
        **more,
    )


def turn(values: Sequence[float], variant: str = OS) -> Turn:
    figures = {CURVE.at(size): value for size, value in zip(SIZES, values, strict=True)}
    return Turn(
        round=0,
        position=0,
        variant=variant,
        figures=with_growth(figures, [CURVE]),
        seconds=1.0,
        load_average=(0.0, 0.0, 0.0),
    )


@pytest.mark.parametrize(
    ("values", "grows"),
    [((1, 3, 10), 1.0), ((1, 9, 100), 2.0), ((5, 5, 5), 0.0), ((0, 1, 2), 0.0), ((2, 1, 0.2), -1.0)],
)
def test_the_exponent_is_one_for_linear_growth_and_two_for_quadratic(
    values: Sequence[float], grows: float
) -> None:
    assert exponent(SIZES, values) == pytest.approx(grows)


@pytest.mark.parametrize(("values", "verdict"), [((1, 3, 12), "met"), ((1, 4, 16), "missed")])
def test_growth_faster_than_linear_is_missed(values: Sequence[float], verdict: str) -> None:
    record = MeasureRecord(measure=measure(), turns=[turn(values)])
    (line,) = record.measure.lines
    assert judge_line(record.measure, line, record.rounds()).verdict == verdict


def test_a_curve_that_lacks_a_size_is_not_shown() -> None:
    whole = MeasureRecord(measure=measure(), turns=[turn((1, 3, 10)), turn((2, 6, 20), KAFKA)])
    assert [(each.variant, each.values) for each in curves_of([whole])] == [
        (KAFKA, (2, 6, 20)),
        (OS, (1, 3, 10)),
    ]
    failed = turn((1, 3, 10))
    del failed.figures[CURVE.at(SIZES[1])]
    assert curves_of([MeasureRecord(measure=measure(), turns=[failed])]) == []


def test_the_table_tells_what_one_costs_and_the_last_step_by_itself() -> None:
    table = curves_table([MeasuredCurve(curve=CURVE, variant=OS, values=(1.0, 3.0, 33.0))])
    row = table.splitlines()[2]
    assert "| 1,000 / 3,000 / 10,000 partitions | 1.00 s | 3.00 s | 33.0 s | 3.30 ms | 1.52 | 1.99 |" in row
    assert len({line.count("|") for line in table.splitlines()}) == 1


def test_a_small_cost_of_one_is_told_in_microseconds() -> None:
    table = curves_table([MeasuredCurve(curve=CURVE, variant=ACK, values=(0.1, 0.3, 1.0))])
    assert "| 100 µs |" in table


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    drawn = [MeasuredCurve(curve=CURVE, variant=variant, values=(1.0, 3.0, 33.0)) for variant in (OS, KAFKA)]
    draw_curves("title", drawn, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 1000


def test_figures_are_recorded_by_size_but_what_is_judged_at_the_largest_as_it_is() -> None:
    assert at_size(10, {"start_s": 1.0, "longest_wait_ms": 2.0}) == {
        "start_s 10": 1.0,
        "longest_wait_ms": 2.0,
    }


def test_a_measure_may_have_fewer_rounds_than_its_suite() -> None:
    unused: Any = None
    nodes: Any = type("Nodes", (), {"variants": {OS: None}})()
    runner = Runner(nodes=nodes, tools=unused, pool=unused, rounds=3, scale=1.0, progress=unused)
    assert runner.turns_in(measure(warm_up=False)) == 3
    assert runner.turns_in(measure(warm_up=False, rounds=1)) == 1
    assert runner.turns_in(measure(warm_up=False, rounds=5)) == 3


def test_every_cost_of_the_suite_is_taken_at_three_sizes_and_judged() -> None:
    curves = [(each, curve) for each in GROWTH_SUITE.measures for curve in each.curves]
    assert all(len(curve.sizes) == 3 for _, curve in curves)
    for each, curve in curves:
        judged = {line.figure: line.target for line in each.lines}
        assert (curve.most is None) or judged[curve.exponent] == 1.1
    largest = {curve.of: curve.sizes[-1] for _, curve in curves}
    assert largest == {
        "idempotent producers": 64,
        "partitions of 16 producers": 256,
        "connections": 5_000,
        "groups of 3 members": 1_000,
        "partitions": 10_000,
        "topics": 100_000,
    }
    targets = {
        (each.name, line.judged): line.target for each in GROWTH_SUITE.measures for line in each.lines[:3]
    }
    assert targets["idempotent_producers", ACK] == 0.9
