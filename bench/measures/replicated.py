# SPDX-License-Identifier: Apache-2.0
"""Writing with acks=all to three replicas: throughput, CPU of all nodes, and their memory."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from bench.cell import Cell
from bench.clusters import NODES, cpu_seconds, rss_mb, running_cluster
from bench.judge import percentile
from bench.loads import covered_seconds, produce_records
from bench.model import Figures
from tests.harness.live.cluster import LiveCluster

TOPIC = "replicated"
GIGABYTES = 5
VALUE_BYTES = 1000
ROUND_TRIPS = 2000
WRITERS = 2


def steady_writing(cell: Cell) -> Figures:
    """One cluster per turn: the round trip of a single writer first, then 5 GB by two, then the memory."""
    with running_cluster(cell) as cluster:
        nodes = cluster.node_ids
        replicas = [[nodes[(first + step) % NODES] for step in range(NODES)] for first in range(NODES)]
        cluster.create_topic(TOPIC, replicas, min_insync_replicas="2")
        cluster.wait_in_sync()
        round_trips_ms = _round_trips_ms(cluster, cell.scaled(ROUND_TRIPS, least=200))
        figures = _produce(cell, cluster)
        return {
            "p50_ms": percentile(round_trips_ms, 50),
            "p99_ms": percentile(round_trips_ms, 99),
            **figures,
            "memory_mb": rss_mb(cluster),
        }


def from_nothing(cell: Cell) -> Figures:
    """Three nodes on empty, prepared folders until each of them answers a client."""
    with running_cluster(cell) as cluster:
        return {"start_s": cluster.ready_after_s}


def _round_trips_ms(cluster: LiveCluster, count: int) -> list[float]:
    """Each record is sent when the one before it was acknowledged by all in-sync replicas."""
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
    producer = Producer(settings)
    took: list[float] = []
    for _ in range(count + count // 10):
        before = time.perf_counter()
        producer.produce(TOPIC, b"." * 100, partition=0)
        if producer.flush(30):
            raise TimeoutError("a record was not acknowledged within 30 s")
        took.append((time.perf_counter() - before) * 1000)
    return took[count // 10 :]


def _produce(cell: Cell, cluster: LiveCluster) -> Figures:
    records = cell.scaled(GIGABYTES * 1_000_000, least=50_000) // WRITERS
    load = {
        "bootstrap": cluster.bootstrap,
        "topic": TOPIC,
        "records": records,
        "value_bytes": VALUE_BYTES,
        "settings": {"acks": "all"},
    }
    before = cpu_seconds(cluster)
    spans = cell.pool.run_together(produce_records, [load] * WRITERS)
    payload = records * WRITERS * VALUE_BYTES
    return {
        "mb_per_s": payload / covered_seconds(spans) / 1e6,
        "cpu_s_per_gb": (cpu_seconds(cluster) - before) / (payload / 1e9),
    }
