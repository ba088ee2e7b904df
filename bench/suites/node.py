# SPDX-License-Identifier: Apache-2.0
"""The suite of one node: every performance target as a line.

Targets are ratios to Apache Kafka in the same run with Headrace's flush policy `os`, which is Kafka's own
default; `ack` stands beside it. How a line is judged: bench/judge.py.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.cell import Cell
from bench.measures import cores, fetch, fresh, latency, mixed, own, produce
from bench.model import ACK, OS, Better, Figures, Line, Measure, Suite

HIGHER, LOWER = Better.HIGHER, Better.LOWER


def _cpu(title: str, target: float | None) -> Line:
    return Line(figure="cpu_s_per_gb", title=f"{title}: broker CPU", unit="s/GB", better=LOWER, target=target)


def _throughput(title: str, target: float | None, *, goal: float | None = None, judged: str = OS) -> Line:
    return Line(
        figure="mb_per_s", title=title, unit="MB/s", better=HIGHER, target=target, goal=goal, judged=judged
    )


def _records(title: str, target: float, *, goal: float | None = None) -> Line:
    return Line(
        figure="krecords_per_s", title=title, unit="k records/s", better=HIGHER, target=target, goal=goal
    )


def _latency(title: str, percent: str, target: float | None) -> Line:
    return Line(figure=f"p{percent}_us", title=title, unit="µs", better=LOWER, target=target)


def _own(figure: str, title: str) -> Line:
    return Line(figure=figure, title=title, unit="× quiet p99", better=LOWER, target=2.0, own=True)


def _flush_overhead(percent: str) -> Line:
    return Line(
        figure=f"p{percent}_ratio",
        title=f"synchronous produce with `ack`, p{percent}: times `os` and one fsync (own figure)",
        unit="× `os` + fsync",
        better=LOWER,
        target=1.1,
        judged=ACK,
        own=True,
    )


def _compressed(codec: str, run: Callable[[Cell], Figures]) -> Measure:
    title = f"{codec} batches of 900 JSON records"
    return Measure(name=codec, run=run, lines=(_throughput(title, 1.0), _cpu(title, 0.7)))


_PRODUCE = (
    Measure(
        name="raw_produce",
        run=produce.raw_produce,
        lines=(
            _throughput("produce, 1 MB requests, raw client, acks=1", 1.5, goal=2.5),
            _cpu("produce, 1 MB requests", 0.5),
        ),
    ),
    Measure(
        name="confluent_100",
        run=produce.confluent_100,
        lines=(
            _records("produce, confluent-kafka, 100 B", 1.0),
            _cpu("produce, confluent-kafka, 100 B", 0.45),
        ),
    ),
    Measure(
        name="confluent_1000",
        run=produce.confluent_1000,
        lines=(
            _records("produce, confluent-kafka, 1,000 B", 1.0),
            _cpu("produce, confluent-kafka, 1,000 B", 0.45),
        ),
    ),
    Measure(
        name="java_100",
        run=produce.java_100,
        lines=(
            _records("produce, Java ProducerPerformance, 100 B", 0.9, goal=1.0),
            _cpu("produce, Java, 100 B", 0.45),
        ),
    ),
    Measure(
        name="java_1000",
        run=produce.java_1000,
        lines=(
            _records("produce, Java ProducerPerformance, 1,000 B", 1.0),
            _cpu("produce, Java, 1,000 B", 0.45),
        ),
    ),
    Measure(
        name="many_producers",
        run=produce.many_producers,
        lines=(
            _throughput("16 producers over 256 partitions, 1 KB, linger 5 ms", 0.9),
            _cpu("16 producers over 256 partitions", 0.6),
        ),
    ),
    Measure(
        name="many_partitions_per_request",
        run=produce.many_partitions_per_request,
        lines=(
            _throughput("16 partitions in each request, 256 in all, raw client", None),
            _cpu("16 partitions in each request", None),
        ),
    ),
    _compressed("gzip", produce.gzip_batches),
    _compressed("snappy", produce.snappy_batches),
    _compressed("lz4", produce.lz4_batches),
    _compressed("zstd", produce.zstd_batches),
    Measure(
        name="small_requests",
        run=produce.small_requests,
        lines=(
            Line(
                figure="krequests_per_s",
                title="pipelined small produce requests",
                unit="k requests/s",
                better=HIGHER,
                target=8.0,
            ),
        ),
    ),
    Measure(
        name="many_idempotent_producers",
        run=produce.many_idempotent_producers,
        lines=(
            _throughput(
                "64 idempotent producers, acks=all, `ack` against Kafka's page cache", 0.7, judged=ACK
            ),
        ),
    ),
)

_LATENCY = (
    Measure(
        name="neighbour",
        run=latency.beside_a_saturating_neighbour,
        lines=(_latency("another connection while one saturates the broker, p99", "99", 0.7),),
    ),
    Measure(
        name="synchronous",
        run=latency.synchronous_produce,
        lines=(
            _latency("synchronous produce, confluent-kafka, p50", "50", 0.7),
            _latency("synchronous produce, confluent-kafka, p99", "99", 0.7),
        ),
    ),
    Measure(
        name="flush_overhead",
        run=latency.flush_overhead,
        variants=(ACK,),
        lines=(_flush_overhead("50"), _flush_overhead("99")),
    ),
    Measure(
        name="end_to_end",
        run=latency.end_to_end,
        lines=(
            _latency("produce to a tailing consumer, confluent-kafka, p50", "50", 0.6),
            _latency("produce to a tailing consumer, confluent-kafka, p99", "99", 0.6),
        ),
    ),
    Measure(
        name="end_to_end_raw",
        run=latency.end_to_end_raw,
        lines=(
            _latency("produce to a waiting fetch, raw client, p50", "50", 0.6),
            _latency("produce to a waiting fetch, raw client, p99", "99", 0.6),
        ),
    ),
)

_FETCH = (
    Measure(
        name="fetch_1mb",
        run=fetch.fetch_1mb,
        lines=(
            _throughput("fetch from page cache, 1 MB responses", 1.0),
            _cpu("fetch, 1 MB responses", 0.7),
        ),
    ),
    Measure(
        name="fetch_10mb",
        run=fetch.fetch_10mb,
        lines=(
            _throughput("fetch from page cache, 10 MB responses", 1.0),
            _cpu("fetch, 10 MB responses", 1.1),
        ),
    ),
)

_FRESH = Measure(
    name="fresh_node",
    run=fresh.fresh_node,
    profile=None,
    warm_up=False,
    lines=(
        Line(figure="start_s", title="start to first answered request", unit="s", better=LOWER, target=0.1),
        Line(figure="idle_mb", title="resident memory, idle", unit="MB", better=LOWER, target=0.2),
        Line(
            figure="loaded_mb",
            title="resident memory, 1,000 partitions + 1,000 connections + 10,000 producer ids",
            unit="MB",
            better=LOWER,
            target=0.4,
        ),
        Line(
            figure="metadata_p50_us",
            title="Metadata for 1,000 partitions, p50",
            unit="µs",
            better=LOWER,
            target=1.0,
        ),
    ),
)

_MIXED = Measure(
    name="mixed",
    run=mixed.mixed_load,
    profile=mixed.PROFILE,
    lines=(
        _latency(
            f"mixed produce and tailing consume (slices of {mixed.SLICE_SECONDS:.0f} s in turn) "
            "with roll, retention and snapshots: produce p99.9",
            "999",
            1.0,
        ),
    ),
)

_OWN = Measure(
    name="background",
    run=own.beside_background_work,
    profile=own.PROFILE,
    variants=(OS, ACK),
    warm_up=False,
    lines=(
        _own("cold_read_ratio", "synchronous produce p99 while a 1 GB segment is read cold (own figure)"),
        _own("compaction_ratio", "synchronous produce p99 while 1 GB is compacted (own figure)"),
    ),
)

_CORES = Measure(
    name="cores",
    run=cores.two_cores_against_one,
    profile=None,
    variants=(OS,),
    warm_up=False,
    lines=tuple(
        Line(
            figure=f"{figure}_ratio",
            title=f"CPU per request with `serve --cores 2`, {title} (own figure)",
            unit="× one core",
            better=LOWER,
            target=1.05,
            own=True,
        )
        for figure, title in (
            ("small", "pipelined small produce requests"),
            ("16kb", "16 KB produce requests"),
        )
    ),
)

NODE_SUITE = Suite(
    name="node",
    title="One node against Apache Kafka, the same clients, the same machine, flush policy `os` and `ack`",
    measures=(*_PRODUCE, *_LATENCY, *_FETCH, _FRESH, _MIXED, _OWN, _CORES),
)
