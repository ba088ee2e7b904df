# SPDX-License-Identifier: Apache-2.0
"""How rounds become verdicts."""

from __future__ import annotations

import pytest

from bench.judge import judge_line, percentile, ratios_to_kafka
from bench.model import ACK, KAFKA, OS, Better, Figures, Line, Measure
from bench.report import row_cells
from bench.runner import MeasureRecord, Turn, turn_order


def line(better: Better = Better.HIGHER, target: float | None = 1.5, **more: object) -> Line:
    return Line(figure="f", title="t", unit="u", better=better, target=target, **more)  # type: ignore[arg-type]


def measure(*lines: Line) -> Measure:
    return Measure(name="m", run=lambda _: {}, lines=lines)


def rounds(kafka: list[float], os: list[float], ack: list[float] | None = None) -> list[dict[str, Figures]]:
    taken: list[dict[str, Figures]] = [
        {KAFKA: {"f": one}, OS: {"f": two}} for one, two in zip(kafka, os, strict=True)
    ]
    for done, figure in zip(taken, ack or [], strict=False):
        done[ACK] = {"f": figure}
    return taken


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 50), (99, 99), (99.9, 100), (100, 100)])
def test_a_percentile_is_a_value_that_was_measured(percent: float, expected: float) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_no_samples_is_an_error_and_not_zero() -> None:
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 50)


def test_the_median_of_per_round_ratios_counts_not_the_ratio_of_medians() -> None:
    taken = rounds(kafka=[10, 100, 1000], os=[30, 200, 1000])
    result = judge_line(measure(line()), line(), taken)
    assert ratios_to_kafka(taken, OS, "f") == [3.0, 2.0, 1.0]
    assert (result.ratios[OS].median, result.ratios[OS].low, result.ratios[OS].high) == (2.0, 1.0, 3.0)
    assert result.values[KAFKA].median == 100
    assert result.verdict == "met"


@pytest.mark.parametrize(
    ("better", "target", "goal", "ratio", "verdict"),
    [
        (Better.HIGHER, 1.5, 2.5, 2.6, "met, goal reached"),
        (Better.HIGHER, 1.5, 2.5, 1.5, "met"),
        (Better.HIGHER, 1.5, None, 1.49, "missed"),
        (Better.LOWER, 0.7, None, 0.7, "met"),
        (Better.LOWER, 0.7, None, 0.71, "missed"),
        (Better.LOWER, None, None, 9.0, ""),
    ],
)
def test_a_line_is_met_when_the_median_reaches_its_target(
    better: Better, target: float | None, goal: float | None, ratio: float, verdict: str
) -> None:
    judged = line(better, target, goal=goal)
    assert judge_line(measure(judged), judged, rounds([100], [100 * ratio])).verdict == verdict


def test_a_line_may_be_judged_on_the_default_flush_policy() -> None:
    judged = line(target=0.7, judged=ACK)
    taken = rounds(kafka=[100], os=[200], ack=[60])
    assert judge_line(measure(judged), judged, taken).verdict == "missed"


def test_an_own_figure_is_compared_with_its_target_and_needs_no_kafka() -> None:
    judged = line(Better.LOWER, 2.0, own=True)
    result = judge_line(measure(judged), judged, [{OS: {"f": 1.4}, ACK: {"f": 1.1}}])
    assert result.verdict == "met"
    assert result.ratios[ACK].median == 1.1


def test_an_own_figure_can_be_judged_on_apache_kafka_too() -> None:
    judged = line(Better.HIGHER, 2.0, own=True, judged=KAFKA)
    result = judge_line(measure(judged), judged, [{OS: {"f": 3.0}, KAFKA: {"f": 1.5}}])
    assert result.verdict == "missed"
    assert row_cells(result)[3].startswith("1.50 u")
    assert "on Apache Kafka" in row_cells(result)[4]


def test_a_round_without_the_judged_engine_makes_no_verdict() -> None:
    judged = line()
    taken = [*rounds([100], [300]), {KAFKA: {"f": 100.0}}]
    assert judge_line(measure(judged), judged, taken).verdict == "not measured"


def test_the_order_is_swapped_each_round() -> None:
    assert turn_order([KAFKA, OS, ACK], 0) == [KAFKA, OS, ACK]
    assert turn_order([KAFKA, OS, ACK], 1) == [ACK, OS, KAFKA]


def test_warm_up_turns_are_recorded_but_not_judged() -> None:
    def turn(number: int, figure: float) -> Turn:
        return Turn(
            round=number,
            position=0,
            variant=OS,
            figures={"f": figure},
            seconds=1.0,
            load_average=(0.0, 0.0, 0.0),
        )

    record = MeasureRecord(measure=measure(line()), turns=[turn(-1, 1.0), turn(0, 5.0)])
    assert record.rounds() == [{OS: {"f": 5.0}}]
    assert [written["round"] for written in record.as_json()["turns"]] == [-1, 0]
