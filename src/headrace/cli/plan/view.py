# SPDX-License-Identifier: Apache-2.0
"""Output of `headrace plan`: inputs with their source, then the results."""

from __future__ import annotations

from typing import Any

from headrace.cli.durations import human_ms
from headrace.cli.output import Cell, Output
from headrace.client.planning.capacity import Choice, Figure, Outage, Plan, Situation

NOT_MEASURED = "not measured"


def show(situation: Situation, plan: Plan, output: Output) -> None:
    output.table(("FIGURE", "VALUE", "SOURCE", "HOW"), _figures(situation))
    _gap(output)
    output.table(("RESULT", "VALUE", "BECAUSE"), _results(situation, plan))
    _gap(output)
    node = ("NODE FAILS: LAG", "CAUGHT UP") if situation.node_down_ms else ()
    output.table(
        ("CONSUMERS", "", "LOAD", "ONE FAILS: LAG", "CAUGHT UP", *node),
        [_choice_row(choice, situation, plan) for choice in plan.choices],
    )
    for title, lines in (("Bottleneck", plan.limits), ("Not measured", plan.unknown)):
        if lines:
            _gap(output)
            output.styled((title, "bold"))
        for line in lines:
            output.line(f"- {line}")


def document(situation: Situation, plan: Plan) -> dict[str, Any]:
    return {
        "topic": situation.topic,
        "figures": {
            "produce_rate": _figure_document(situation.produce_rate),
            "consume_rate": _figure_document(situation.consume_rate)
            | {"at_least": situation.consume_rate_is_floor},
            "busiest_partition_rate": situation.busiest_partition_rate,
            "partitions": situation.partitions,
            "consumers": situation.consumers,
            "headroom": _figure_document(situation.headroom),
            "session_timeout_ms": _figure_document(situation.session_timeout_ms),
            "rebalance_ms": _optional(situation.rebalance_ms),
            "node_down_ms": _optional(situation.node_down_ms),
        },
        "consumers": plan.consumers,
        "consumers_with_spare": plan.consumers_with_spare,
        "partitions": plan.partitions,
        "choices": [
            {
                "consumers": choice.consumers,
                "load": choice.load,
                "consumer_dies": _outage_document(choice.consumer_dies),
                "node_dies": None if choice.node_dies is None else _outage_document(choice.node_dies),
            }
            for choice in plan.choices
        ],
        "limits": list(plan.limits),
        "not_measured": list(plan.unknown),
    }


def _figures(situation: Situation) -> list[tuple[Cell, ...]]:
    at_least = "≥ " if situation.consume_rate_is_floor else ""
    consume, produce = situation.consume_rate, situation.produce_rate
    headroom = situation.headroom
    rows: list[tuple[Cell, ...]] = [
        ("all producers", _rate(produce.value), produce.source, produce.how),
        ("one consumer", at_least + _rate(consume.value), consume.source, consume.how),
    ]
    if situation.busiest_partition_rate is not None:
        rows.append(("busiest partition", _rate(situation.busiest_partition_rate), "measured", produce.how))
    rows += [
        ("partitions now", str(situation.partitions), "measured", "the topic's"),
        ("head-room", f"{headroom.value:g}×", headroom.source, headroom.how),
        _duration_row("session timeout", situation.session_timeout_ms, "--session-timeout"),
        _duration_row("rebalance", situation.rebalance_ms, "--rebalance-time"),
        _duration_row("node outage", situation.node_down_ms, "--node-down"),
    ]
    return rows


def _results(situation: Situation, plan: Plan) -> list[tuple[Cell, ...]]:
    at_most = "≤ " if situation.consume_rate_is_floor else ""
    produce, consume = situation.produce_rate.value, situation.consume_rate.value
    least = f"{plan.consumers_with_spare} consumers × {situation.headroom.value:g}"
    return [
        ("consumers", f"{at_most}{plan.consumers}", f"⌈{_number(produce)} / {_number(consume)}⌉"),
        ("… with a spare", f"{at_most}{plan.consumers_with_spare}", "the others keep up when one fails"),
        ("partitions", str(plan.partitions), f"≥ {least}, and no consumer is overloaded"),
    ]


def _choice_row(choice: Choice, situation: Situation, plan: Plan) -> tuple[Cell, ...]:
    marks = []
    if choice.consumers == situation.consumers:
        marks.append("now")
    if choice.consumers == plan.consumers:
        marks.append("needed")
    if choice.consumers == plan.consumers_with_spare:
        marks.append("with a spare")
    outages = [choice.consumer_dies] + ([choice.node_dies] if choice.node_dies else [])
    costs: list[Cell] = [cost for outage in outages for cost in (outage.lag, _caught_up(outage))]
    return (str(choice.consumers), ", ".join(marks), f"{choice.load:.0%}", *costs)


def _caught_up(outage: Outage) -> str:
    return "never" if outage.caught_up_ms is None else human_ms(outage.caught_up_ms)


def _duration_row(name: str, figure: Figure | None, option: str) -> tuple[Cell, ...]:
    if figure is None:
        return (name, None, NOT_MEASURED, f"set {option}")
    return (name, human_ms(round(figure.value)), figure.source, figure.how)


def _rate(value: float) -> str:
    return f"{_number(value)} records/s"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def _figure_document(figure: Figure) -> dict[str, Any]:
    return {"value": figure.value, "source": figure.source, "how": figure.how}


def _optional(figure: Figure | None) -> dict[str, Any] | None:
    return None if figure is None else _figure_document(figure)


def _outage_document(outage: Outage) -> dict[str, Any]:
    seconds = None if outage.caught_up_ms is None else outage.caught_up_ms / 1000
    return {"lag": outage.lag, "caught_up_seconds": seconds}


def _gap(output: Output) -> None:
    if not output.terminal:
        output.line("")
