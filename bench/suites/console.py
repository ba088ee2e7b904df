# SPDX-License-Identifier: Apache-2.0
"""The suite of the web console: how late it is, what it asks of the brokers, and its memory.

How it is judged: bench/judge.py.
"""

from __future__ import annotations

from bench.measures import console
from bench.model import OS, Better, Line, Measure, Suite

LOWER = Better.LOWER


def _own(figure: str, title: str, unit: str, target: float | None) -> Line:
    return Line(figure=figure, title=title, unit=unit, better=LOWER, target=target, own=True)


_MEASURES = (
    Measure(
        name="large_cluster",
        run=console.large_cluster,
        lines=(
            _own(
                "first_paint_ms", "overview in Chromium: navigation to the first drawn node, p50", "ms", 2000
            ),
            _own("members_ms", "group's page: assignment to its member drawn, slowest", "ms", 300),
            _own("page_lag_ms", "group's page: commit to its lag, slowest", "ms", 500),
            _own("overview_lag_s", "groups: record to its lag, slowest", "s", 5),
            _own("requests_per_s", "requests to the brokers, one viewer", "/s", 20),
            _own("ten_requests_per_s", "requests to the brokers, ten viewers", "/s", 20),
            _own("broker_cpu_percent", "CPU of the broker that the console causes, one viewer", "%", None),
            _own("ten_broker_cpu_percent", "the same, ten viewers", "%", None),
            _own("console_cpu_percent", "CPU of the console, one viewer", "%", None),
            _own("ten_console_cpu_percent", "the same, ten viewers", "%", None),
            _own("rss_mb", "memory of the console", "MB", 150),
        ),
        profile=None,
        variants=(OS,),
        warm_up=False,
    ),
    Measure(
        name="failover",
        run=console.failover,
        lines=(
            _own("drawn_p50_ms", "failover: new leader's first record to its drawing, p50", "ms", 300),
            _own("drawn_worst_ms", "the same, slowest", "ms", 300),
        ),
        profile=None,
        variants=(OS,),
        warm_up=False,
    ),
)

CONSOLE_SUITE = Suite(
    name="console",
    title="Web console: 1,000 topics × 10 partitions and 500 groups on one node; failover on three nodes",
    measures=_MEASURES,
    rounds=3,
    note="Browser, console and brokers share the machine's cores. Kafbat UI and AKHQ are not compared: "
    "neither is on Maven Central, where the other suites' peers come from.",
)
