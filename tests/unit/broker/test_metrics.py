# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from headrace.broker.metrics import (
    LATENCY_BOUNDS,
    OTHER_API,
    Histogram,
    Metrics,
    quantile_of,
)
from headrace.broker.replication.replicas import ReplicationFigures
from headrace.broker.reporting.metric_family import MetricSources
from headrace.broker.reporting.metrics_export import FAMILIES, MetricsExport, api_label
from headrace.broker.transactions.coordinator import TransactionFigures
from headrace.machines.groups.group import Group, GroupSettings
from headrace.testing.simworld import Simulation
from headrace.types import ClusterView, TopicPartition
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.metric_sources import metric_sources


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


class FakePartition(NamedTuple):
    topic_partition: TopicPartition
    size_bytes: int
    leads: bool = True
    high_watermark: int = 100
    last_stable_offset: int = 100
    open_transaction_since_ms: int | None = None
    damaged_segments: Mapping[int, str] = MappingProxyType({})


def minute_later(metrics: Metrics, clock: Clock) -> None:
    for _ in range(7):
        clock.now += 10
        metrics.move_window()


def test_requests_are_counted_and_timed_by_api() -> None:
    metrics = Metrics(Clock())
    for seconds in (0.0004, 0.0006, 3.0):
        metrics.request_done(0, seconds)
    metrics.request_done(3, 100.0)
    (produce, produced), (metadata, described) = metrics.requests()
    assert (produce, produced.count, produced.seconds) == (0, 3, pytest.approx(3.001))
    assert (metadata, described.count, described.buckets[-1]) == (3, 1, 1)


def test_a_latency_on_a_bound_counts_below_it() -> None:
    histogram = Histogram()
    for bound in LATENCY_BOUNDS:
        histogram.observe(bound)
    assert histogram.buckets == [1] * len(LATENCY_BOUNDS) + [0]


def test_keys_that_kafka_does_not_have_are_counted_together() -> None:
    metrics = Metrics(Clock())
    for key in (-32768, 999, 32767):
        metrics.request_done(key, 0.001)
        metrics.request_error(key, ErrorCode.unsupported_version)
    ((key, histogram),) = metrics.requests()
    assert (key, histogram.count) == (OTHER_API, 3)
    assert metrics.errors == {(OTHER_API, ErrorCode.unsupported_version): 3}


def test_the_p99_covers_the_last_minute() -> None:
    clock = Clock()
    metrics = Metrics(clock)
    for _ in range(1000):
        metrics.fsync.observe(0.3)
    assert metrics.fsync.recent_quantile(0.99) == pytest.approx(0.5, abs=0.05)
    minute_later(metrics, clock)
    assert metrics.fsync.recent_quantile(0.99) is None
    for _ in range(100):
        metrics.fsync.observe(0.0015)
    slow = metrics.fsync.recent_quantile(0.99)
    assert slow is not None
    assert 0.001 < slow <= 0.002
    assert metrics.fsync.count == 1100


def test_values_before_the_first_window_step_count() -> None:
    clock = Clock()
    metrics = Metrics(clock)
    metrics.fsync.observe(0.3)
    clock.now += 15
    metrics.move_window()
    assert metrics.fsync.recent_quantile(0.5) is not None


@pytest.mark.parametrize(
    ("buckets", "quantile", "expected"),
    [
        ([0] * 18, 0.99, None),
        ([100] + [0] * 17, 0.5, 0.000025),
        ([0] * 17 + [5], 0.99, LATENCY_BOUNDS[-1]),
        ([0, 0, 0, 0, 10, 10] + [0] * 12, 0.75, 0.0015),
    ],
)
def test_quantiles_are_interpolated_within_a_bucket(
    buckets: list[int], quantile: float, expected: float | None
) -> None:
    found = quantile_of(buckets, quantile)
    assert found == (None if expected is None else pytest.approx(expected))


def test_client_names_cannot_grow_memory_without_bound() -> None:
    metrics = Metrics(Clock())
    for number in range(2000):
        metrics.client_seen(f"client-{number}", "1")
    assert len(metrics.clients) <= 501
    assert sum(metrics.clients.values()) == 2000


def test_a_deleted_topic_is_removed() -> None:
    metrics = Metrics(Clock())
    metrics.topic("a").bytes_in += 5
    assert metrics.topic("a").bytes_in == 5
    metrics.forget_topic("a")
    metrics.forget_topic("never was")
    assert metrics.topics == {}


def test_the_probe_says_when_it_last_ran() -> None:
    clock = Clock()
    metrics = Metrics(clock)
    clock.now += 7
    assert metrics.seconds_since_tick() == 7
    metrics.loop_delay(0.001)
    assert metrics.seconds_since_tick() == 0


def test_api_names_are_kafkas() -> None:
    assert [api_label(key) for key in (0, 18, 23, OTHER_API, 199)] == [
        "Produce",
        "ApiVersions",
        "OffsetForLeaderEpoch",
        "Unknown",
        "Key199",
    ]


def scrape(simulation: Simulation, sources: MetricSources) -> str:
    world = simulation.start_process("node")
    return simulation.run(MetricsExport(sources, world).render()).decode()


def test_a_scrape_is_valid_exposition_text_and_has_every_family() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    with Simulation(1) as simulation:
        metrics = Metrics(Clock())
        metrics.request_done(0, 0.0003)
        metrics.request_error(0, ErrorCode.corrupt_message)
        metrics.fsync.observe(0.002)
        metrics.loop_delay(0.0001)
        metrics.client_seen("librdkafka", "2.15.0")
        metrics.topic("orders").bytes_in += 1000
        metrics.topic("orders").refused("lz4", ErrorCode.invalid_record)
        metrics.own_records_dropped["__headrace_events"] = 7
        metrics.throttled("producer_byte_rate", 0.5)
        metrics.connections = 3
        metrics.transactions.ended("client", commits=True)
        metrics.transactions.ended("timed out", commits=False)
        metrics.transactions.committed_in(0)
        metrics.transactions.failed_verifications += 2
        view = ClusterView(version=1, cluster_id="")
        damaged = TopicPartition("orders", 1)
        metrics.scrub.ended_ms = 5_000
        sources = metric_sources(
            metrics,
            partitions=lambda: [
                FakePartition(
                    TopicPartition("orders", 0), 4000, damaged_segments={100: "a batch is cut off"}
                ),
                FakePartition(
                    TopicPartition("orders", 1), 2000, last_stable_offset=60, open_transaction_since_ms=500
                ),
                FakePartition(TopicPartition("followed", 0), 100, leads=False, open_transaction_since_ms=500),
            ],
            damaged=lambda: {0: (damaged, "a batch has a wrong checksum")},
            replication=lambda: ReplicationFigures(
                followed=2,
                longest_lag=7,
                below_min_insync=1,
                slow=frozenset({2}),
                ack_ms={2: 200.0},
                slow_moves={2: 1},
            ),
            groups=lambda: [Group("g", GroupSettings(), view)],
            transactions=lambda: TransactionFigures(by_state={"PrepareCommit": 1}, pending_markers=2),
            wall_ms=lambda: 2_000,
            store_backup_age_s=lambda: 12.5,
        )
        families = {
            family.name: family for family in text_string_to_metric_families(scrape(simulation, sources))
        }

    assert {family.name for family in FAMILIES} <= set(families)
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert values["headrace_requests_total", "Produce"] == 1
    assert values["headrace_request_seconds_count", "Produce"] == 1
    assert values["headrace_request_seconds_bucket", "Produce", "0.0005"] == 1
    assert values["headrace_request_seconds_bucket", "Produce", "0.0002"] == 0
    assert 0.0002 < values["headrace_request_p99_seconds", "Produce"] <= 0.0005
    assert values["headrace_request_errors_total", "Produce", "CORRUPT_MESSAGE"] == 1
    assert values["headrace_topic_received_bytes_total", "orders"] == 1000
    assert values["headrace_topic_refused_batches_total", "lz4", "INVALID_RECORD", "orders"] == 1
    assert values["headrace_log_size_bytes", "orders"] == 6000
    assert values["headrace_partitions",] == 3
    assert values["headrace_partitions_offline",] == 1
    assert values["headrace_partition_offline", "1", "orders"] == 1
    assert values["headrace_damaged_segments", "0", "orders"] == 1
    assert values["headrace_scrub_last_pass_timestamp_seconds",] == 5
    assert values["headrace_coordination_backup_age_seconds",] == 12.5
    assert values["headrace_connections",] == 3
    assert values["headrace_clients_seen_total", "librdkafka", "2.15.0"] == 1
    assert values["headrace_transactions", "PrepareCommit"] == 1
    assert values["headrace_transaction_markers_pending",] == 2
    assert values["headrace_transaction_ends_total", "client_commit"] == 1
    assert values["headrace_transaction_ends_total", "timeout"] == 1
    assert values["headrace_transaction_ends_total", "fenced"] == 0
    assert values["headrace_transaction_commit_seconds_bucket", "0.001"] == 1
    assert values["headrace_transaction_verifications_failed_total",] == 2
    lags = {key: value for key, value in values.items() if key[0] == "headrace_partition_last_stable_lag"}
    assert lags == {("headrace_partition_last_stable_lag", "1", "orders"): 40}
    assert values["headrace_partition_open_transaction_seconds", "1", "orders"] == 1.5


def test_a_family_of_many_topics_is_rendered_in_slices_that_read_as_one() -> None:
    with Simulation(1) as simulation:
        metrics = Metrics(Clock())
        for number in range(1200):
            metrics.topic(f"topic-{number}").bytes_in = number
        text = scrape(simulation, metric_sources(metrics))
    assert text.count("# TYPE headrace_topic_received_bytes_total counter") == 1
    assert text.count("\nheadrace_topic_received_bytes_total{") == 1200
    assert 'headrace_topic_received_bytes_total{topic="topic-1199"} 1199.0' in text
