# SPDX-License-Identifier: Apache-2.0
"""How long one caller waits: alone, beside a saturating neighbour, and from producer to consumer."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.cell import Cell
from bench.judge import percentile
from bench.loads import saturate
from bench.model import Figures
from bench.payloads import plain_batch
from bench.raw_client import no_collection, produce_check, round_trips
from bench.raw_requests import FetchReply, fetch_request, produce_request

_QUIET_CONSUMER = {"enable.auto.commit": False, "log_level": 0}


def _p50_p99(times_us: list[float]) -> Figures:
    return {"p50_us": percentile(times_us, 50), "p99_us": percentile(times_us, 99)}


def synchronous_produce(cell: Cell) -> Figures:
    """A program that sends one event and waits for the answer (confluent-kafka, its default acks=all)."""
    return synchronous_sends(cell, {"bootstrap.servers": cell.node.bootstrap})


def synchronous_sends(cell: Cell, client: Mapping[str, Any]) -> Figures:
    """`client`: how confluent-kafka connects."""
    producer = _synchronous_producer(client)
    with cell.topic() as topic, no_collection():
        _timed_sends(producer, topic, 200)
        return _p50_p99(_timed_sends(producer, topic, cell.scaled(3000, least=200)))


def _synchronous_producer(client: Mapping[str, Any]) -> Producer:
    return Producer({**client, "linger.ms": 0, "log_level": 0})


def _timed_sends(producer: Producer, topic: str, count: int) -> list[float]:
    """Microseconds of each send, the answer included."""
    value = b"v" * 100
    failures: list[str] = []
    times_us: list[float] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    for _ in range(count):
        started = time.perf_counter_ns()
        producer.produce(topic, value, on_delivery=delivered)
        producer.flush()
        times_us.append((time.perf_counter_ns() - started) / 1000)
    if failures:
        raise KafkaException(f"{len(failures)} synchronous sends failed: {failures[0]}")
    return times_us


_SENDS_PER_TURN = 20
"""Of either topic, and so many fsyncs: short turns, so that all see the same machine."""


def flush_overhead(cell: Cell) -> Figures:
    """Flush `ack` against the least that it can cost: the same send with `os`, and one fsync of an append."""
    producer = _synchronous_producer({"bootstrap.servers": cell.node.bootstrap})
    os_us: list[float] = []
    ack_us: list[float] = []
    fsync_us: list[float] = []
    with (
        cell.topic(headrace_flush="os") as unflushed,
        cell.topic(headrace_flush="ack") as flushed,
        tempfile.TemporaryFile(dir=cell.node.data_dir) as file,
        no_collection(),
    ):
        _timed_sends(producer, unflushed, 100)
        _timed_sends(producer, flushed, 100)
        for _ in range(cell.scaled(150, least=10)):
            os_us += _timed_sends(producer, unflushed, _SENDS_PER_TURN)
            ack_us += _timed_sends(producer, flushed, _SENDS_PER_TURN)
            fsync_us += _timed_fsyncs(file.fileno(), _SENDS_PER_TURN)
    figures: Figures = {}
    for percent in (50, 99):
        least = percentile(os_us, percent) + percentile(fsync_us, percent)
        measured = percentile(ack_us, percent)
        figures |= {f"least_p{percent}_us": least, f"ack_p{percent}_us": measured}
        figures[f"p{percent}_ratio"] = measured / least
    return figures


def _timed_fsyncs(descriptor: int, count: int) -> list[float]:
    times_us: list[float] = []
    for _ in range(count):
        os.write(descriptor, b"v" * 1000)
        started = time.perf_counter_ns()
        os.fdatasync(descriptor)
        times_us.append((time.perf_counter_ns() - started) / 1000)
    return times_us


def end_to_end(cell: Cell) -> Figures:
    """From send to seen: what a live dashboard feels (confluent-kafka on both ends)."""
    bootstrap = cell.node.bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **_QUIET_CONSUMER})
    times_us: list[float] = []
    try:
        with cell.topic() as topic, no_collection():
            consumer.assign([TopicPartition(topic, 0, 0)])
            warm_up = 100
            for turn in range(warm_up + cell.scaled(1500, least=100)):
                time.sleep(0.0005)  # the consumer's next fetch is waiting at the broker by then
                started = time.perf_counter_ns()
                producer.produce(topic, b"v" * 100)
                producer.poll(0)
                message = consumer.poll(10)
                if message is None or message.error():
                    raise KafkaException(f"the record did not arrive: {message and message.error()}")
                if turn >= warm_up:
                    times_us.append((time.perf_counter_ns() - started) / 1000)
            producer.flush()
    finally:
        consumer.close()
    return _p50_p99(times_us)


def end_to_end_raw(cell: Cell) -> Figures:
    """The broker's share of the same: produce on one socket until a waiting fetch on another is answered."""
    times_us: list[float] = []
    with cell.topic() as topic, cell.connect() as writer, cell.connect() as reader, no_collection():
        produce = produce_request(topic, {0: plain_batch(1, 100)}, acks=1)
        check, fetched = produce_check(topic), FetchReply(topic)
        warm_up = 100
        for turn in range(warm_up + cell.scaled(2000, least=100)):
            reader.send(fetch_request(topic, turn, max_wait_ms=10_000))
            time.sleep(0.0005)
            started = time.perf_counter_ns()
            writer.send(produce)
            reply = reader.receive()
            if turn >= warm_up:
                times_us.append((time.perf_counter_ns() - started) / 1000)
            fetched.check(reply)
            if not fetched.has_records(reply):
                raise RuntimeError("a waiting fetch was answered without the record")
            check(writer.receive())
    return _p50_p99(times_us)


def beside_a_saturating_neighbour(cell: Cell) -> Figures:
    """Whether one greedy bulk loader makes everyone else wait."""
    seconds = max(3.0 * cell.scale, 0.8)
    with cell.topic() as bulk, cell.topic() as quiet, cell.connect() as connection:
        request = produce_request(quiet, {0: plain_batch(1, 100)}, acks=1)
        round_trips(connection, [request], produce_check(quiet), count=100)
        load = cell.pool.submit(saturate, cell.node.host, cell.node.port, bulk, seconds + 0.6)
        time.sleep(0.5)  # the neighbour is at full speed by then
        times_us = round_trips(connection, [request], produce_check(quiet), seconds=seconds, pause_ms=1.0)
        accepted = load.result()
    return {**_p50_p99(times_us), "neighbour_mb_per_s": accepted / (seconds + 0.6) / 1e6}
