# SPDX-License-Identifier: Apache-2.0
"""A node in daily use: a steady stream in, a tailing consumer out, segments rolling, old ones going.

In slices taken in turn, seven minutes in all: ten minutes for each engine would alone fill the suite's half
hour. The nodes and their topics live through all slices, so that segments roll and old ones go meanwhile.
"""

from __future__ import annotations

import os
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.cell import Cell
from bench.judge import percentile
from bench.model import Figures, Profile
from bench.payloads import plain_batch
from bench.raw_client import produce_check, round_trips
from bench.raw_requests import produce_request
from bench.workers import wait_until

SLICE_SECONDS = 20.0
PROFILE = Profile(name="mixed", settings={"log.retention.check.interval.ms": "5000"})

_PARTITIONS = 4
_RECORDS_PER_TICK = 100
_TICK_SECONDS = 0.01
_TOPIC_CONFIGS = {"segment_bytes": str(16 << 20), "retention_bytes": str(32 << 20)}


def mixed_load(cell: Cell) -> Figures:
    """The slowest one in a thousand of small synchronous sends while everything else goes on."""
    topic = cell.shared_topic(lambda _: None, partitions=_PARTITIONS, **_TOPIC_CONFIGS)
    seconds = max(SLICE_SECONDS * cell.scale, 1.5)
    bootstrap = cell.node.bootstrap
    loads = [
        cell.pool.submit(produce_steadily, bootstrap, topic, seconds),
        cell.pool.submit(consume_tail, bootstrap, topic, seconds),
    ]
    time.sleep(0.5)  # both are connected by then
    batch = plain_batch(1, 1000)
    requests = [produce_request(topic, {index: batch}, acks=-1) for index in range(_PARTITIONS)]
    with cell.connect() as connection:
        times_us = round_trips(
            connection, requests, produce_check(topic), seconds=seconds - 0.5, pause_ms=1.0
        )
    produced, consumed = (load.result() for load in loads)
    return {
        "p50_us": percentile(times_us, 50),
        "p99_us": percentile(times_us, 99),
        "p999_us": percentile(times_us, 99.9),
        "produced_mb_per_s": produced / seconds / 1e3,
        "consumed_mb_per_s": consumed / seconds / 1e3,
    }


def produce_steadily(bootstrap: str, topic: str, seconds: float, *, start_at: float = 0.0) -> int:
    """10 MB/s of 1 KB records from an idempotent producer; records acknowledged."""
    failures: list[str] = []

    def note_failure(error: object, _: object) -> None:
        failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "log_level": 0,
        }
    )
    value = os.urandom(1000)
    wait_until(start_at)
    started = time.monotonic()
    ticks = int(seconds / _TICK_SECONDS)
    for tick in range(ticks):
        for _ in range(_RECORDS_PER_TICK):
            producer.produce(topic, value, on_delivery=note_failure)
        producer.poll(0)
        time.sleep(max(0.0, started + (tick + 1) * _TICK_SECONDS - time.monotonic()))
    if producer.flush(30):
        failures.append("not acknowledged within 30 s")
    if failures:
        raise KafkaException(f"the steady producer lost records: {failures[0]}")
    return ticks * _RECORDS_PER_TICK


def consume_tail(bootstrap: str, topic: str, seconds: float, *, start_at: float = 0.0) -> int:
    """Read what is being written, from the end on; records seen."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    wait_until(start_at)
    end = -1  # OFFSET_END
    consumer.assign([TopicPartition(topic, index, end) for index in range(_PARTITIONS)])
    seen = 0
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=0.2):
                if message.error():
                    raise KafkaException(f"the tailing consumer failed: {message.error()}")
                seen += 1
    finally:
        consumer.close()
    return seen
