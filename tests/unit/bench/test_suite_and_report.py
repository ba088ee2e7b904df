# SPDX-License-Identifier: Apache-2.0
"""The table that is printed, and that every promise of the issue has a line in it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.__main__ import chosen_measures, parse_arguments
from bench.judge import LineResult, Spread
from bench.loads import parse_producer_perf
from bench.measures.fresh import GROWTH_CONNECTIONS, GROWTH_PARTITIONS, growth_figure
from bench.model import ACK, KAFKA, OS, Better, Line, Suite
from bench.plots import draw_growth, draw_ratios
from bench.report import markdown, markdown_table, number, print_table
from bench.suites.arrow import ARROW_SUITE
from bench.suites.groups import GROUPS_SUITE
from bench.suites.node import NODE_SUITE
from bench.suites.security import SECURITY_SUITE
from bench.suites.testing import TESTING_SUITE
from bench.suites.transactions import TRANSACTIONS_SUITE
from headrace.cluster.engines.engine import EngineError

RUN: dict[str, Any] = {
    "suite": "node",
    "time": "2030-01-02T03:04:05+00:00",
    "commit": "abc",
    "rounds": 7,
    "minutes": 28.0,
    "whole": True,
    "versions": {"apache-kafka": "4.3.0", "headrace": "0.1.0", "python": "3.11", "confluent-kafka": "2"},
    "machine": {"cores": 2, "processor": "p", "memory_gb": 8, "system": "s"},
}


def result(verdict: str = "missed") -> LineResult:
    line = Line(figure="f", title="fetch", unit="MB/s", better=Better.HIGHER, target=1.0, goal=2.0)
    return LineResult(
        measure="m",
        line=line,
        values={name: Spread(median=1234.5, low=1.0, high=2.0) for name in (KAFKA, OS, ACK)},
        ratios={OS: Spread(median=0.95, low=0.5, high=1.5), ACK: Spread(median=0.8, low=0.7, high=0.9)},
        verdict=verdict,
    )


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (0.256, "0.26"), (12.34, "12.3"), (1234.5, "1,234"), (99.99, "100.0")]
)
def test_numbers_are_shown_short(value: float, shown: str) -> None:
    assert number(value) == shown


def test_the_table_prints_median_lowest_highest_and_missed_on_any_width() -> None:
    for width in (190, 100):
        out = io.StringIO()
        print_table(Console(file=out, width=width), "title", [result()])
        text = out.getvalue()
        assert "0.95× (0.50 … 1.50)" in text
        assert "missed" in text
        assert ("1,234 MB/s" in text) == (width == 190)


def test_markdown_names_both_flush_policies_and_marks_a_missed_line() -> None:
    text = markdown("title", [result(), result("met")], RUN, pictures={"ratios": "node.png"})
    assert "`os` leaves flushing to the page cache" in text
    assert "`ack` is Headrace's default" in text
    assert "| ≥ 1× (goal 2×) | **missed** |" in text
    assert "![ratios](node.png)" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1


def test_a_small_ratio_shows_two_figures() -> None:
    ratios = {OS: Spread(median=0.0015, low=0.00101, high=0.05)}
    assert "0.0015× (0.001 … 0.05)" in markdown_table([replace(result("met"), ratios=ratios)])


def test_an_own_figure_is_shown_in_its_unit() -> None:
    line = Line(figure="f", title="reload", unit="s", better=Better.LOWER, target=1.0, own=True)
    own = replace(result("met"), line=line)
    assert "| 0.95 s (0.50 … 1.50) | ≤ 1 s | met |" in markdown_table([own])


# The required ratios: figure, target ratio, and whether more is better.
PROMISES = [
    ("raw_produce", "mb_per_s", 1.5),
    ("raw_produce", "cpu_s_per_gb", 0.5),
    ("confluent_100", "krecords_per_s", 1.0),
    ("confluent_100", "cpu_s_per_gb", 0.45),
    ("confluent_1000", "krecords_per_s", 1.0),
    ("confluent_1000", "cpu_s_per_gb", 0.45),
    ("java_100", "krecords_per_s", 0.9),
    ("java_100", "cpu_s_per_gb", 0.45),
    ("java_1000", "krecords_per_s", 1.0),
    ("java_1000", "cpu_s_per_gb", 0.45),
    ("many_producers", "mb_per_s", 0.9),
    ("many_producers", "cpu_s_per_gb", 0.6),
    ("lz4", "cpu_s_per_gb", 0.5),
    ("zstd", "cpu_s_per_gb", 0.5),
    ("neighbour", "p99_us", 0.7),
    ("small_requests", "krequests_per_s", 8.0),
    ("synchronous", "p50_us", 0.7),
    ("synchronous", "p99_us", 0.7),
    ("end_to_end", "p50_us", 0.6),
    ("end_to_end", "p99_us", 0.6),
    ("fetch_1mb", "mb_per_s", 1.0),
    ("fetch_1mb", "cpu_s_per_gb", 0.7),
    ("fetch_10mb", "mb_per_s", 1.0),
    ("fetch_10mb", "cpu_s_per_gb", 1.1),
    ("mixed", "p999_us", 1.0),
    ("fresh_node", "start_s", 0.1),
    ("fresh_node", "idle_mb", 0.2),
    ("fresh_node", "loaded_mb", 0.4),
    ("fresh_node", "metadata_p50_us", 1.0),
    ("many_idempotent_producers", "mb_per_s", 0.7),
    ("background", "cold_read_ratio", 2.0),
    ("background", "compaction_ratio", 2.0),
]


GROUP_PROMISES = [
    ("first_classic", "p50_ms", 0.7),
    ("first_kip848", "p50_ms", 0.7),
    ("rebalance", "rebalance_ms", 0.5),
    ("target", "target_ms", 0.5),
    ("pauses_classic", "join_pause_ms", 1.0),
    ("pauses_classic", "leave_pause_ms", 1.0),
    ("pauses_kip848", "join_pause_ms", 1.0),
    ("pauses_kip848", "leave_pause_ms", 1.0),
    ("killed", "classic_takeover_ms", 1.0),
    ("killed", "consumer_takeover_ms", 1.0),
    ("commits", "kcommits_per_s", 2.0),
    ("heartbeats_classic", "cpu_percent", 0.7),
    ("heartbeats_kip848", "cpu_percent", 0.7),
    ("reload", "reload_s", 1.0),
]


SECURITY_PROMISES = [
    ("tls_fetch", "mb_per_s", 1.2),
    ("tls_fetch", "cpu_s_per_gb", 0.7),
    ("tls_produce", "mb_per_s", 1.0),
    ("tls_produce", "cpu_s_per_gb", 0.8),
    ("sasl_ssl_sync", "p50_us", 1.0),
    ("sasl_ssl_sync", "p99_us", 1.0),
    ("handshake", "cpu_us", 0.33),
    ("login", "cpu_us", 0.5),
    ("acls", "single_cost_percent", 5.0),
    ("acls", "pipelined_cost_percent", 5.0),
    ("idle_plain", "added_mib", 100),
    ("idle_tls", "added_mib", 250),
    ("attacks", "handshakes_ratio", 2.0),
    ("attacks", "logins_ratio", 2.0),
    ("attacks", "frames_ratio", 2.0),
]


TESTING_PROMISES = [
    ("first_produce", "first_produce_ms", 0.05),
    ("warm", "first_produce_ms", 50),
    ("cold_import", "cold_s", 0.5),
    ("many_tests", "tests_s", 15),
    ("installed_size", "whole_mib", 90),
]


TRANSACTION_PROMISES = [
    ("one", "transactions_per_s", 1.5),
    ("one", "commit_p50_ms", 0.7),
    ("one", "commit_p99_ms", 0.7),
    ("one_java", "transactions_per_s", 1.5),
    ("one_java", "commit_p50_ms", 0.7),
    ("one_java", "commit_p99_ms", 0.7),
    ("many", "transactions_per_s", 1.0),
    ("reading", "committed_ratio", 0.9),
    ("reading", "raw_committed_ratio", 0.9),
    ("three_nodes", "transactions_per_s", 1.0),
    ("three_nodes", "many_transactions_per_s", 1.0),
    ("three_nodes", "killed_ms", 0.2),
    ("load", "load_s", 1.0),
]


@pytest.mark.parametrize(
    ("suite", "promises"),
    [
        (GROUPS_SUITE, GROUP_PROMISES),
        (SECURITY_SUITE, SECURITY_PROMISES),
        (TESTING_SUITE, TESTING_PROMISES),
        (TRANSACTIONS_SUITE, TRANSACTION_PROMISES),
    ],
)
def test_every_target_has_a_row(suite: Suite, promises: list[tuple[str, str, float]]) -> None:
    lines = {(measure.name, line.figure): line for measure in suite.measures for line in measure.lines}
    assert {key: line.target for key, line in lines.items() if line.target is not None} == {
        (name, figure): target for name, figure, target in promises
    }


def test_pictures_are_drawn_also_from_incomplete_rounds(tmp_path: Path) -> None:
    draw_ratios("title", [result()], tmp_path / "node.png")
    few = GROWTH_CONNECTIONS[0]
    figures = {
        growth_figure(kind, count, few): 1.0 for kind in ("p50_us", "rss_mb") for count in GROWTH_PARTITIONS
    }
    draw_growth([{KAFKA: figures}, {OS: figures}], tmp_path / "growth.png")
    assert (tmp_path / "node.png").stat().st_size > 1000
    assert (tmp_path / "growth.png").stat().st_size > 1000


def test_every_measure_has_a_unique_name_and_a_description() -> None:
    for suite in (NODE_SUITE, GROUPS_SUITE, ARROW_SUITE):
        names = [measure.name for measure in suite.measures]
        assert len(set(names)) == len(names)
        assert suite.rounds >= 7
        for measure in suite.measures:
            assert measure.run.__doc__, measure.name
            assert measure.lines, measure.name


def test_rows_are_chosen_by_name_and_a_wrong_name_lists_the_valid_ones() -> None:
    assert [m.name for m in chosen_measures(NODE_SUITE, "lz4,raw_produce")] == ["lz4", "raw_produce"]
    with pytest.raises(EngineError, match=r"no 'nope'.*raw_produce"):
        chosen_measures(NODE_SUITE, "nope")


def test_an_unknown_engine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["node", "--engines", "kafka,pulsar"])
    assert "no 'pulsar'; there are kafka, headrace-os, headrace-ack" in capsys.readouterr().err


def test_the_steady_rate_of_producer_performance_is_read() -> None:
    output = (
        "Warmup first 10 records.\n"
        "5000 records sent, 999.0 records/sec (0.1 MB/sec), 5.0 ms avg latency\n"
        "30000 records sent, 102529.049897 records/sec (9.78 MB/sec), 597.25 ms avg latency\n"
        "20000 steady state records sent, 113960.1 records/sec (10.87 MB/sec), 653.45 ms avg latency\n"
    )
    parsed = parse_producer_perf(output)
    assert parsed.records_per_second == pytest.approx(102529.05)
    assert parsed.steady_records_per_second == pytest.approx(113960.1)
    with pytest.raises(ValueError, match="no summary"):
        parse_producer_perf("java.lang.Exception")
