# SPDX-License-Identifier: Apache-2.0
"""Damage on a replica: how soon it is whole again, and what the scrub that looks for damage costs.

The scrub is switched off and on in slices taken in turn, on one node and one connection. Read next:
src/headrace/broker/replication/log_repairs.py, src/headrace/broker/partition/scrubber.py.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from urllib.request import urlopen

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.cell import Cell
from bench.clusters import running_cluster
from bench.judge import percentile
from bench.loads import produce_records
from bench.model import Figures, Profile
from bench.payloads import plain_batch
from bench.raw_client import RawConnection, produce_check, produce_pipelined, round_trips
from bench.raw_requests import produce_request
from headrace.cluster.engines.engine import RunningNode, free_ports
from tests.harness.live.cluster import LiveCluster
from tests.harness.waiting import poll

TOPIC = "healing"
DAMAGED_BYTES = 10 << 20
HEALING_RECORDS, SCRUBBED_BYTES = 150_000, 10_000_000_000
_VALUE_BYTES = 1000
_SEGMENT_BYTES = 32 << 20
_SLICES, _SLICE_S, _LATEST_S = 4, 5.0, 120.0
_NEVER, _ALWAYS = "-1", "1000"


def found_by_reading(cell: Cell) -> Figures:
    """10 MB of the leader's log are overwritten; nothing looks for it but a client that reads it all."""
    with running_cluster(cell, {"headrace.scrub.interval.ms": _NEVER}) as cluster:
        cluster.create_topic(TOPIC, [[0, 1, 2]], **{"segment.bytes": str(_SEGMENT_BYTES)})
        records = cell.scaled(HEALING_RECORDS, least=40_000)
        produce_records(cluster.bootstrap, TOPIC, records, _VALUE_BYTES, settings={"acks": "all"})
        cluster.wait_in_sync()
        victim = cluster.leader(TOPIC, 0)
        log = cluster.folder.node(victim) / "data" / f"{TOPIC}-0"
        _overwrite(min(log.glob("*.log")), 8 << 20, DAMAGED_BYTES)
        started = time.monotonic()
        lost = records - _count_read(cluster.bootstrap, records)
        read_s = time.monotonic() - started
        poll(lambda: _is_healed(cluster, log), bool, timeout_s=_LATEST_S, poll_s=0.02)
        return {
            "healed_s": time.monotonic() - started,
            "read_s": read_s,
            "not_read": float(lost),
        }


def _overwrite(path: Path, position: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(b"\xee" * size)


def _count_read(bootstrap: str, records: int) -> int:
    """Records that a client gets one after the other; what it retries by itself is no failure."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    expected, deadline = 0, time.monotonic() + _LATEST_S
    try:
        while expected < records and time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.2):
                if message.error() is None and message.offset() == expected:
                    expected += 1
    finally:
        consumer.close()
    return expected


def _is_healed(cluster: LiveCluster, log: Path) -> bool:
    metadata = cluster.metadata()
    return (
        any(log.glob("*.log.damaged-*"))
        and metadata is not None
        and not metadata.under_replicated
        and not metadata.damaged_logs
    )


def scrub(cell: Cell) -> Figures:
    """Round trips at half the rate of one connection while the scrub reads at its default rate or not."""
    with _node(cell) as (node, metrics_port):
        size = cell.scaled(SCRUBBED_BYTES, least=200_000_000)
        _fill(node, size)
        toggle = _Scrub(node)
        toggle.every(_NEVER)
        batch = produce_request(TOPIC, {0: plain_batch(1, _VALUE_BYTES)}, acks=-1)
        with RawConnection(node.host, node.port) as connection:
            check = produce_check(TOPIC)
            pause_ms = mean(round_trips(connection, [batch], check, seconds=2.0)) / 1000
            p99_us: dict[str, list[float]] = {_NEVER: [], _ALWAYS: []}
            for number in range(2 * _SLICES):
                interval = (_NEVER, _ALWAYS)[(number + number // 2) % 2]
                toggle.every(interval)
                times_us = round_trips(connection, [batch], check, seconds=_SLICE_S, pause_ms=pause_ms)
                p99_us[interval].append(percentile(times_us, 99))
        without, under_scrub = median(p99_us[_NEVER]), median(p99_us[_ALWAYS])
        return {
            "p99_ratio": under_scrub / without,
            "without_p99_us": without,
            "scrub_p99_us": under_scrub,
            "minutes_for_10_gb": _whole_pass(toggle, metrics_port) / 60,
        }


@contextmanager
def _node(cell: Cell) -> Iterator[tuple[RunningNode, int]]:
    (metrics_port,) = free_ports(1)
    profile = Profile(name="healing", settings={"headrace.metrics.port": str(metrics_port)})
    prepared = cell.nodes.prepare(cell.variant, profile)
    try:
        with prepared.launch() as node:
            yield node, metrics_port
    finally:
        shutil.rmtree(prepared.data_dir.parent, ignore_errors=True)


def _fill(node: RunningNode, size: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    topic = NewTopic(TOPIC, 1, 1, config={"segment.bytes": str(_SEGMENT_BYTES)})
    for created in admin.create_topics([topic]).values():
        created.result(30)
    batch = plain_batch(1000, _VALUE_BYTES)
    request, sent = produce_request(TOPIC, {0: batch}, acks=1), 0
    with RawConnection(node.host, node.port) as connection:
        while sent < size:
            answered, _ = produce_pipelined(
                connection, request, produce_check(TOPIC), in_flight=4, seconds=1.0
            )
            sent += answered * len(batch)


class _Scrub:
    """Of one node, switched while it runs."""

    def __init__(self, node: RunningNode) -> None:
        self._admin = AdminClient({"bootstrap.servers": node.bootstrap})
        (self._node_id,) = self._admin.list_topics(timeout=30).brokers

    def every(self, interval_ms: str) -> None:
        operation = AlterConfigOpType.SET
        entry = ConfigEntry("headrace.scrub.interval.ms", interval_ms, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, str(self._node_id), incremental_configs=[entry])
        for altered in self._admin.incremental_alter_configs([resource]).values():
            altered.result(30)


def _whole_pass(toggle: _Scrub, metrics_port: int) -> float:
    """Seconds that the scrub would take for 10 GB, by a pass over what there is."""
    toggle.every(_NEVER)
    time.sleep(1.0)
    passes, checked = _counters(metrics_port)
    toggle.every(_ALWAYS)
    started = time.monotonic()
    poll(lambda: _counters(metrics_port)[0], lambda now: now > passes, timeout_s=3600, poll_s=0.1)
    read = _counters(metrics_port)[1] - checked
    return (time.monotonic() - started) * SCRUBBED_BYTES / read


def _counters(metrics_port: int) -> tuple[float, float]:
    with urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=30) as reply:
        lines = [line.rpartition(" ") for line in reply.read().decode().splitlines()]
    found = {name: float(value) for name, _, value in lines if name.startswith("headrace_scrub_")}
    return found["headrace_scrub_passes_total"], found["headrace_scrub_checked_bytes_total"]
