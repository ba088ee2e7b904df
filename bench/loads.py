# SPDX-License-Identifier: Apache-2.0
"""Loads that run in this process or in a worker: confluent-kafka producers and the raw saturating producer.

Client settings are the clients' defaults except where a measure's title names one.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer

from bench.payloads import plain_batch
from bench.raw_client import RawConnection, produce_check, produce_pipelined
from bench.raw_requests import produce_request
from bench.workers import wait_until
from headrace.cluster.engines.kafka import KafkaEngine

_COMMON = {
    "log_level": 0,  # failures are reported by delivery reports
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
    "delivery.report.only.error": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When a load began and ended, on the machine's monotonic clock."""

    started: float
    ended: float


def covered_seconds(spans: list[Span]) -> float:
    return max(span.ended for span in spans) - min(span.started for span in spans)


def open_producers(bootstrap: str, topic: str, count: int, settings: dict[str, Any]) -> list[Producer]:
    """Connected producers that know the topic: connecting is not what is measured."""
    producers = [Producer({"bootstrap.servers": bootstrap, **_COMMON, **settings}) for _ in range(count)]
    for producer in producers:
        producer.list_topics(topic, timeout=30)
    return producers


def produce_records(
    bootstrap: str,
    topic: str,
    records: int,
    value_bytes: int,
    *,
    start_at: float = 0.0,
    producers: int = 1,
    keyed: bool = False,
    settings: dict[str, Any] | None = None,
) -> Span:
    """Send so many records in turn through the producers, and wait until all are acknowledged."""
    failures: list[str] = []

    def note_failure(error: object, _: object) -> None:
        failures.append(str(error))

    clients = open_producers(bootstrap, topic, producers, settings or {})
    value = os.urandom(value_bytes)
    keys = [os.urandom(8) for _ in range(10_000)] if keyed else [None]
    wait_until(start_at)
    started = time.monotonic()
    for number in range(records):
        client = clients[number % producers]
        while True:
            try:
                client.produce(topic, value, keys[number % len(keys)], on_delivery=note_failure)
                break
            except BufferError:
                client.poll(0.005)
    failures += ["not acknowledged within 60 s" for client in clients if client.flush(60)]
    ended = time.monotonic()
    if failures:
        raise KafkaException(f"{len(failures)} of {records} records were not delivered: {failures[0]}")
    return Span(started=started, ended=ended)


def saturate(host: str, port: int, topic: str, seconds: float, *, start_at: float = 0.0) -> int:
    """1 MB produce requests, pipelined, for so long; bytes accepted."""
    batch = plain_batch(1000, 1000)
    request = produce_request(topic, {0: batch}, acks=1)
    with RawConnection(host, port) as connection:
        wait_until(start_at)
        answered, _ = produce_pipelined(
            connection, request, produce_check(topic), in_flight=4, seconds=seconds
        )
    return answered * len(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfResult:
    records_per_second: float
    steady_records_per_second: float


_RATE = re.compile(r"^(\d+) (steady state )?records sent, ([\d.]+) records/sec", re.MULTILINE)


def parse_producer_perf(output: str) -> PerfResult:
    """The summary lines of ProducerPerformance; lines of its reporting interval come before them."""
    whole = [float(rate) for _, steady, rate in _RATE.findall(output) if not steady]
    steady = [float(rate) for _, steady, rate in _RATE.findall(output) if steady]
    if not whole:
        raise ValueError(f"ProducerPerformance printed no summary:\n{output[-1000:]}")
    return PerfResult(records_per_second=whole[-1], steady_records_per_second=(steady or whole)[-1])


def java_producer_perf(
    tools: KafkaEngine, bootstrap: str, topic: str, records: int, value_bytes: int
) -> PerfResult:
    """Apache Kafka's own ProducerPerformance; its first fifth warms the client's JVM up."""
    done = tools.tool(
        "producer-perf-test",
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *("--num-records", str(records), "--record-size", str(value_bytes), "--throughput", "-1"),
        *("--warmup-records", str(records // 5)),
    )
    if done.returncode != 0:
        raise RuntimeError(f"ProducerPerformance failed:\n{done.output[-1000:]}")
    return parse_producer_perf(done.stdout)
