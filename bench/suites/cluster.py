# SPDX-License-Identifier: Apache-2.0
"""The suite of the cluster: every performance target of three nodes as a line.

Three nodes each on one machine; Apache Kafka's are combined KRaft nodes at its defaults, started through the
same supervisor. Each measure starts a cluster of its own. How it is judged: bench/judge.py.
"""

from __future__ import annotations

from bench.measures import failover, replicated
from bench.model import ACK, KAFKA, OS, Better, Line, Measure, Suite

HIGHER, LOWER = Better.HIGHER, Better.LOWER


def _ms(figure: str, title: str, target: float | None, *, judged: str = ACK) -> Line:
    return Line(figure=figure, title=title, unit="ms", better=LOWER, target=target, judged=judged)


def _p50_and_worst(name: str, title: str, target: float) -> tuple[Line, Line]:
    return (
        _ms(f"{name}_p50_ms", f"{title}, p50", target),
        _ms(f"{name}_worst_ms", f"{title}, worst", target),
    )


_FAILOVER = (
    Measure(
        name="killed",
        run=failover.killed_leader,
        profile=None,
        variants=(KAFKA, ACK),
        warm_up=False,
        lines=(
            *_p50_and_worst("sqlite", "SIGKILL of a leader to the next acked write, SQLite", 0.1),
            *_p50_and_worst("zookeeper", "SIGKILL of a leader to the next acked write, ZooKeeper", 0.1),
        ),
    ),
    Measure(
        name="quick_sessions",
        run=failover.quick_sessions,
        profile=None,
        variants=(KAFKA, ACK),
        warm_up=False,
        lines=(
            *_p50_and_worst("killed", "SIGKILL of a leader, both with sessions of 2 s", 0.6),
            *_p50_and_worst("hung", "SIGSTOP of a leader, both with sessions of 2 s, client waits 1 s", 1.0),
        ),
    ),
    Measure(
        name="rolling",
        run=failover.rolling_restart,
        profile=None,
        variants=(KAFKA, ACK),
        warm_up=False,
        lines=(
            _ms("longest_gap_ms", "rolling restart of all three: longest gap of a partition", 1.0),
            Line(
                figure="failed",
                title="rolling restart: sends that failed after retries (own figure)",
                unit="records",
                better=LOWER,
                target=0.0,
                judged=ACK,
                own=True,
            ),
        ),
    ),
    Measure(
        name="many_partitions",
        run=failover.many_partitions,
        profile=None,
        variants=(KAFKA, ACK),
        warm_up=False,
        lines=(
            Line(
                figure="all_led_s",
                title="1,000 partitions × RF 3, one node killed: all have leaders again",
                unit="s",
                better=LOWER,
                target=1.0,
                judged=ACK,
            ),
        ),
    ),
)

_STEADY = (
    Measure(
        name="start",
        run=replicated.from_nothing,
        profile=None,
        variants=(KAFKA, ACK),
        warm_up=False,
        lines=(
            Line(
                figure="start_s",
                title="cluster of three from nothing to serving",
                unit="s",
                better=LOWER,
                target=0.2,
                judged=ACK,
            ),
        ),
    ),
    Measure(
        name="writing",
        run=replicated.steady_writing,
        profile=None,
        warm_up=False,
        lines=(
            Line(
                figure="mb_per_s",
                title="acks=all, RF 3, min.isr 2, 1 KB records: throughput",
                unit="MB/s",
                better=HIGHER,
                target=1.0,
            ),
            Line(
                figure="cpu_s_per_gb",
                title="the same: CPU of all nodes",
                unit="s/GB",
                better=LOWER,
                target=0.5,
            ),
            _ms("p50_ms", "acks=all, RF 3: synchronous round trip, p50", 0.8, judged=OS),
            _ms("p99_ms", "acks=all, RF 3: synchronous round trip, p99", 0.8, judged=OS),
            Line(
                figure="memory_mb",
                title="memory of all three nodes after 5 GB",
                unit="MB",
                better=LOWER,
                target=0.15,
            ),
        ),
    ),
)

CLUSTER_SUITE = Suite(
    name="cluster",
    title="Three nodes against Apache Kafka with three combined KRaft nodes, the same clients and machine",
    measures=(*_FAILOVER, *_STEADY),
    rounds=1,
    note="Ten kills and five pauses are inside one round. Failover is measured with each engine at its "
    "defaults: Headrace flushes before it acknowledges (`ack`). All three nodes share the machine's cores.",
)
