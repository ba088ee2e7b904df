# SPDX-License-Identifier: Apache-2.0
"""Charts of the demonstration: what stands on the screen and in the SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from headrace.demo.chart import Chart, Kind, Mark, Series, as_svg, in_terminal, ticks

LAG = Series(name="all partitions", points=[(0, 0), (5, 400), (10, 0)])
KILLED = Mark(5, "a consumer is killed & fenced")


def chart(*series: Series, log: bool = False) -> Chart:
    return Chart(
        title="Lag", x_label="seconds", y_label="records", series=series or [LAG], marks=[KILLED], log=log
    )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 400, [0, 100, 200, 300, 400]),
        (0, 0.3, [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        (0, 7, [0, 2, 4, 6, 8]),
        (-5, 55, [-10, 0, 10, 20, 30, 40, 50, 60]),
    ],
)
def test_ticks_are_round_numbers_up_to_the_highest(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


def test_the_terminal_shows_each_point_at_its_height_and_explains_each_symbol() -> None:
    lines = in_terminal(chart(), width=60, rows=5)
    assert lines[0] == "Lag (records)"
    assert lines[1].startswith(" 400 │")
    assert "●" in lines[1], "the highest value is in the highest row"
    assert lines[5].startswith("   0 │●"), "the first point is at zero"
    assert lines[-1] == "  ● all partitions   ┊ 5: a consumer is killed & fenced"
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    many = [Series(name=f"partition {number}", points=[(number, number)]) for number in range(6)]
    assert max(map(len, in_terminal(chart(*many), width=width))) <= width


def test_bars_at_the_same_place_are_stacked() -> None:
    early = Series(name="in time", points=[(0, 2), (10, 3)], kind=Kind.BARS)
    late = Series(name="late", points=[(10, 1)], kind=Kind.BARS)
    assert [points for _, points in chart(early, late).stacked()] == [[(0, 0, 2), (10, 0, 3)], [(10, 3, 4)]]


def test_a_logarithmic_axis_spans_whole_powers_of_ten() -> None:
    latency = chart(Series(name="a write", points=[(0, 3), (1, 131)], kind=Kind.DOTS), log=True)
    assert latency.y_ticks() == [1, 10, 100, 1000]


def test_the_svg_is_well_formed_and_names_every_series_and_event() -> None:
    document = ElementTree.fromstring(as_svg(chart()))
    texts = [element.text for element in document.iter() if element.text]
    expected = {"Lag", "seconds", "records", "■ all partitions", "1 ┊ a consumer is killed & fenced"}
    assert expected <= set(texts)


def test_a_chart_without_points_is_drawn_empty() -> None:
    empty = Chart(title="Lag", x_label="s", y_label="records", series=[Series(name="none", points=[])])
    assert in_terminal(empty)[0] == "Lag (records)"
    assert as_svg(empty).endswith("</svg>\n")
