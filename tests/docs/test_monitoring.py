# SPDX-License-Identifier: Apache-2.0
"""The alert rules and the dashboard of deploy/ use metrics and labels that nodes export."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.broker.reporting.metrics_export import FAMILIES, api_label
from headrace.wire.api_table import APIS
from headrace.wire.error_codes import ErrorCode

ROOT = Path(__file__).resolve().parents[2]
RULES = [
    rule
    for group in yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "headrace.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

OF_THE_SCRAPE = {"job", "instance"}
"""Labels that Prometheus adds to every series."""
OF_THE_PROCESS = {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_start_time_seconds",
    "process_open_fds",
    "process_max_fds",
}


def _exported() -> dict[str, set[str]]:
    """The labels of each series of a scrape, by its name."""
    series: dict[str, set[str]] = {"up": set(), **{name: set() for name in OF_THE_PROCESS}}
    for family in FAMILIES:
        labels = set(family.labels)
        if family.kind == "histogram":
            series |= {f"{family.name}_bucket": labels | {"le"}}
            series |= {f"{family.name}{end}": labels for end in ("_sum", "_count")}
        else:
            series[f"{family.name}_total" if family.kind == "counter" else family.name] = labels
    return series


EXPORTED = _exported()
_SERIES = re.compile(r"\b((?:headrace|process)_\w+|up)\b(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
_BY = re.compile(r"\bby \(([^)]*)\)")


def _expressions() -> Iterator[tuple[str, str]]:
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def unknown_names(expression: str) -> list[str]:
    """Series, and labels of series, that no node exports."""
    found, labels = [], set(OF_THE_SCRAPE)
    for name, matchers in _SERIES.findall(expression):
        known = EXPORTED.get(name)
        if known is None:
            found.append(name)
            continue
        labels |= known
        used = {label for label, _ in _MATCHER.findall(matchers)}
        found += [f"{name}{{{label}}}" for label in sorted(used - known - OF_THE_SCRAPE)]
    grouped = {label.strip() for text in _BY.findall(expression) for label in text.split(",")}
    return found + sorted(grouped - labels)


@pytest.mark.parametrize(("where", "expression"), list(_expressions()))
def test_an_expression_uses_series_and_labels_that_nodes_export(where: str, expression: str) -> None:
    assert _SERIES.search(expression), "names no metric"
    assert unknown_names(expression) == [], where
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing), where


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        ("sum(headrace_nodez)", ["headrace_nodez"]),
        ("rate(headrace_requests[1m])", ["headrace_requests"]),
        ('headrace_nodes{topic="orders"}', ["headrace_nodes{topic}"]),
        ("sum by (topic) (headrace_groups)", ["topic"]),
        ('headrace_groups{type="Classic", instance=~"a|b"}', []),
    ],
)
def test_a_wrong_name_is_found(expression: str, unknown: list[str]) -> None:
    assert unknown_names(expression) == unknown


def test_values_of_labels_are_those_that_nodes_use() -> None:
    """Of the labels with a fixed set of values."""
    values = {
        "api": {api_label(key) for key in APIS},
        "error": {code.name.upper() for code in ErrorCode},
        "kind": {"clean", "unclean", "shrink", "expand"},
        "job": {"headrace"},
    }
    for where, expression in _expressions():
        for label, value in _MATCHER.findall(expression):
            assert label not in values or value in values[label], f"{where}: {label}={value}"


def test_rates_are_of_counters_and_histograms_only() -> None:
    for where, expression in _expressions():
        for name in re.findall(r"\b(?:rate|increase)\((\w+)", expression):
            assert name.endswith(("_total", "_bucket", "_sum", "_count")), where


def test_every_rule_says_how_severe_it_is_and_what_it_means() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]


def test_rules_print_only_labels_that_their_series_have_left() -> None:
    """An aggregation drops the labels that it does not name."""
    for rule in RULES:
        text = " ".join(rule["annotations"].values())
        named = set(re.findall(r"\$labels\.(\w+)", text))
        aggregated = re.match(r"(?:sum|max)\b", rule["expr"])
        kept = {label.strip() for found in _BY.findall(rule["expr"]) for label in found.split(",")}
        assert named <= (kept if aggregated else {"instance"}), rule["alert"]


def _boxes() -> list[dict[str, Any]]:
    return [panel["gridPos"] for panel in DASHBOARD["panels"]]


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    cells = [
        (x, y)
        for box in _boxes()
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24, "a dashboard is 24 columns wide"


def test_panels_have_ids_of_their_own_and_the_chosen_data_source() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource", "instance"}
    for panel in PANELS:
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert {source["uid"] for source in sources} == {"${datasource}"}, panel["title"]


def test_operators_are_told_of_both_files() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    assert "deploy/prometheus/alerts.yaml" in text
    assert "deploy/grafana/headrace.json" in text
