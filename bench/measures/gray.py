# SPDX-License-Identifier: Apache-2.0
"""A cluster of three with one slow node: latency and throughput of all its partitions, after time to react.

The slow node leads one of three partitions when it becomes slow, and follows the others. Either engine has
the same time to react before anything is measured. Disk: the same preloaded library makes each fsync of
both longer. Network: packets that the node sends are delayed and lost between two TAP devices.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from bench.cell import Cell
from bench.clusters import NODES
from bench.judge import percentile
from bench.model import KAFKA, Figures
from bench.nodes import DELETE_SOON, HEADRACE_SETTINGS
from headrace.cluster.plan import EngineName
from tests.harness.live.cluster import LiveCluster, OnALan, host_name
from tests.harness.live.lan import Lan
from tests.harness.live.paced_writer import PacedWriter
from tests.harness.live.slow_link import SlowLink
from tests.integration.preloads import Preload

TOPIC = "gray"
SLOW_NODE = 0
FSYNC_MS = 200
DELAY_MS, LOSS = 50, 0.05
FLUSHES_EACH = {"log.flush.interval.messages": "1"}
WARM_UP_S, REACTION_S, MEASURED_S, FLOOD_S = 2.0, 12.0, 5.0, 2.0
_ENDS_WITHIN_S = 10.0
_VALUE = b"." * 1000
_IN_FLIGHT = {"max.in.flight.requests.per.connection": 5}
"""As an idempotent producer has: slow requests gather records in larger batches, not in a queue."""

MakeSlow = Callable[[], None]


def slow_disk(cell: Cell) -> Figures:
    """Apache Kafka at its defaults: it answers from the page cache, and flushes behind."""
    with _with_slow_disk(cell, {}) as (cluster, make_slow):
        return _measure(cell, cluster, make_slow)


def slow_disk_flushed(cell: Cell) -> Figures:
    """Apache Kafka flushes each append before it answers, as Headrace's `ack` does."""
    with _with_slow_disk(cell, FLUSHES_EACH if cell.variant == KAFKA else {}) as (cluster, make_slow):
        return _measure(cell, cluster, make_slow)


def slow_network(cell: Cell) -> Figures:
    with ExitStack() as stack:
        lan = stack.enter_context(Lan([host_name(node_id) for node_id in range(NODES)]))
        link = stack.enter_context(SlowLink(lan, host_name(SLOW_NODE)))
        folder = stack.enter_context(_folder(cell))
        cluster = stack.enter_context(
            LiveCluster(
                folder / "cluster", engine=_engine(cell), settings=_settings(cell, {}), network=OnALan(lan)
            )
        )
        return _measure(cell, cluster, lambda: link.set(DELAY_MS, LOSS))


@contextmanager
def _with_slow_disk(cell: Cell, settings: Mapping[str, str]) -> Iterator[tuple[LiveCluster, MakeSlow]]:
    with _folder(cell) as folder:
        folder.mkdir(parents=True)
        disks = Preload("slow_disk.c", "SLOW_DISK", folder)
        cluster = LiveCluster(
            folder / "cluster",
            engine=_engine(cell),
            settings=_settings(cell, settings),
            dress=disks.dress,
        )
        with cluster:
            yield cluster, lambda: disks.set(SLOW_NODE, FSYNC_MS)


@contextmanager
def _folder(cell: Cell) -> Iterator[Path]:
    folder = cell.nodes.new_folder(f"gray-{cell.variant}")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _engine(cell: Cell) -> EngineName:
    return "kafka" if cell.variant == KAFKA else "headrace"


def _settings(cell: Cell, more: Mapping[str, str]) -> dict[str, str]:
    return {**DELETE_SOON, **HEADRACE_SETTINGS.get(cell.variant, {}), **more}


def _measure(cell: Cell, cluster: LiveCluster, make_slow: MakeSlow) -> Figures:
    nodes = cluster.node_ids
    replicas = [[nodes[(first + step) % NODES] for step in range(NODES)] for first in range(NODES)]
    cluster.create_topic(TOPIC, replicas, min_insync_replicas="2")
    cluster.wait_in_sync()
    with PacedWriter(cluster.bootstrap, TOPIC, NODES, options=_IN_FLIGHT) as writer:
        time.sleep(WARM_UP_S)
        make_slow()
        time.sleep(REACTION_S)
        first, last = time.monotonic(), time.monotonic() + max(MEASURED_S * cell.scale, 1.0)
        while time.monotonic() < last:
            time.sleep(0.1)
    took_ms = writer.latencies_ms(first, last)
    return {
        "p50_ms": percentile(took_ms, 50),
        "p99_ms": percentile(took_ms, 99),
        "failed": float(writer.failed),
        "mb_per_s": _flood(cluster, max(FLOOD_S * cell.scale, 1.0)),
    }


def _flood(cluster: LiveCluster, seconds: float) -> float:
    """MB/s that are acknowledged while one client sends as fast as it can to all partitions."""
    acknowledged = 0

    def note(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5, **_IN_FLIGHT}
    producer = Producer(settings)
    number, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            producer.produce(TOPIC, _VALUE, partition=number % NODES, on_delivery=note)
            number += 1
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    rate = acknowledged * len(_VALUE) / seconds / 1e6
    producer.purge()  # what still waits is not measured
    producer.flush(_ENDS_WITHIN_S)
    return rate
