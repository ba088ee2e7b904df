# SPDX-License-Identifier: Apache-2.0
"""Produce throughput and what it costs the broker in CPU."""

from __future__ import annotations

from bench.cell import Cell
from bench.loads import covered_seconds, java_producer_perf, produce_records
from bench.model import Figures
from bench.payloads import compressed_batch, plain_batch
from bench.raw_client import produce_check, produce_pipelined
from bench.raw_requests import produce_request


def raw_produce(cell: Cell) -> Figures:
    """How fast a node takes data in when the client costs nothing: bulk loads, mirroring, log shippers."""
    batch = plain_batch(1000, 1000)
    with cell.topic() as topic, cell.connect() as connection:
        request = produce_request(topic, {0: batch}, acks=1)
        with cell.cpu_clock() as cpu:
            count, seconds = produce_pipelined(
                connection, request, produce_check(topic), in_flight=5, count=cell.scaled(600, least=20)
            )
    sent = count * len(batch)
    return {"mb_per_s": sent / seconds / 1e6, "cpu_s_per_gb": cpu.per_gb(sent)}


def _confluent(cell: Cell, value_bytes: int, records: int) -> Figures:
    with cell.topic() as topic:
        produce_records(cell.node.bootstrap, topic, cell.scaled(records // 20), value_bytes)
        with cell.cpu_clock() as cpu:
            span = produce_records(cell.node.bootstrap, topic, records, value_bytes)
    return {
        "krecords_per_s": records / covered_seconds([span]) / 1e3,
        "cpu_s_per_gb": cpu.per_gb(records * value_bytes),
    }


def confluent_100(cell: Cell) -> Figures:
    """What a Python application with confluent-kafka gets for small events, and what it costs the node."""
    return _confluent(cell, 100, cell.scaled(1_000_000, least=20_000))


def confluent_1000(cell: Cell) -> Figures:
    """The same with records of 1,000 bytes: bytes count, not calls."""
    return _confluent(cell, 1000, cell.scaled(400_000, least=10_000))


def _java(cell: Cell, value_bytes: int, records: int) -> Figures:
    with cell.topic() as topic, cell.cpu_clock() as cpu:
        result = java_producer_perf(cell.tools, cell.node.bootstrap, topic, records, value_bytes)
    return {
        "krecords_per_s": result.steady_records_per_second / 1e3,
        "cpu_s_per_gb": cpu.per_gb(records * value_bytes),
    }


def java_100(cell: Cell) -> Figures:
    """What a JVM application gets for small events (idempotent, acks=all, as its defaults are)."""
    return _java(cell, 100, cell.scaled(1_200_000, least=20_000))


def java_1000(cell: Cell) -> Figures:
    """The same with records of 1,000 bytes."""
    return _java(cell, 1000, cell.scaled(250_000, least=10_000))


def _many_partitions(cell: Cell) -> str:
    return cell.shared_topic(lambda topic: cell.touch_partitions(topic, 256), partitions=256)


def many_producers(cell: Cell) -> Figures:
    """A busy cluster's daily bread: 16 applications, keys spread over 256 partitions, small batches."""
    records = cell.scaled(60_000, least=2_000)
    one = {
        "bootstrap": cell.node.bootstrap,
        "topic": _many_partitions(cell),
        "records": records,
        "value_bytes": 1000,
        "producers": 8,
        "keyed": True,
        "settings": {"linger.ms": 5},
    }
    with cell.cpu_clock() as cpu:
        spans = cell.pool.run_together(produce_records, [one, one])
    payload = 2 * records * 1000
    return {"mb_per_s": payload / covered_seconds(spans) / 1e6, "cpu_s_per_gb": cpu.per_gb(payload)}


def many_partitions_per_request(cell: Cell) -> Figures:
    """As above in the way of the Java client: each request carries batches of 16 KB for 16 partitions."""
    batch = plain_batch(16, 1000)
    topic = _many_partitions(cell)
    requests = b"".join(
        produce_request(topic, dict.fromkeys(range(first, first + 16), batch), acks=1)
        for first in range(0, 256, 16)
    )
    with cell.connect() as connection:
        check = produce_check(topic)  # looks at the first partition of each reply
        with cell.cpu_clock() as cpu:
            count, seconds = produce_pipelined(
                connection, requests, check, in_flight=32, requests_per_send=16, count=cell.scaled(1600)
            )
    payload = count * 16 * len(batch)
    return {"mb_per_s": payload / seconds / 1e6, "cpu_s_per_gb": cpu.per_gb(payload)}


def _compressed(cell: Cell, codec: str) -> Figures:
    batch, value_bytes = compressed_batch(codec, 900)
    with cell.topic() as topic, cell.connect() as connection:
        request = produce_request(topic, {0: batch}, acks=1)
        with cell.cpu_clock() as cpu:
            count, seconds = produce_pipelined(
                connection, request, produce_check(topic), in_flight=5, count=cell.scaled(500, least=20)
            )
    payload = count * value_bytes
    return {"mb_per_s": payload / seconds / 1e6, "cpu_s_per_gb": cpu.per_gb(payload)}


def gzip_batches(cell: Cell) -> Figures:
    """Both engines decompress what producers compressed, to check it: batches of JSON records, gzip."""
    return _compressed(cell, "gzip")


def snappy_batches(cell: Cell) -> Figures:
    """The same for snappy."""
    return _compressed(cell, "snappy")


def lz4_batches(cell: Cell) -> Figures:
    """The same for lz4."""
    return _compressed(cell, "lz4")


def zstd_batches(cell: Cell) -> Figures:
    """The same for zstd."""
    return _compressed(cell, "zstd")


def small_requests(cell: Cell) -> Figures:
    """Requests per second on one connection: chatty producers that cannot batch."""
    batch = plain_batch(1, 100)
    with cell.topic() as topic, cell.connect() as connection:
        request = produce_request(topic, {0: batch}, acks=1)
        with cell.cpu_clock() as cpu:
            count, seconds = produce_pipelined(
                connection,
                request * 32,
                produce_check(topic),
                in_flight=512,
                requests_per_send=32,
                seconds=2.0 * max(cell.scale, 0.2),
            )
    return {"krequests_per_s": count / seconds / 1e3, "cpu_us_per_request": cpu.seconds / count * 1e6}


def many_idempotent_producers(cell: Cell) -> Figures:
    """64 careful applications at once (idempotent, acks=all): what durability on every ack costs them."""
    records = cell.scaled(60_000, least=2_000)
    with cell.topic(partitions=16) as topic:
        cell.touch_partitions(topic, 16)
        one = {
            "bootstrap": cell.node.bootstrap,
            "topic": topic,
            "records": records,
            "value_bytes": 1000,
            "producers": 32,
            "settings": {"enable.idempotence": True, "acks": "all"},
        }
        with cell.cpu_clock() as cpu:
            spans = cell.pool.run_together(produce_records, [one, one])
    payload = 2 * records * 1000
    return {"mb_per_s": payload / covered_seconds(spans) / 1e6, "cpu_s_per_gb": cpu.per_gb(payload)}
