# SPDX-License-Identifier: Apache-2.0
"""What TLS and logins cost: throughput, CPU per GB, a synchronous send, a handshake, a login.

confluent-kafka where an application feels it, raw sockets where the broker alone is asked. Headrace alone:
security_own.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from bench.cell import Cell
from bench.loads import covered_seconds, produce_records
from bench.measures.latency import synchronous_sends
from bench.model import Figures, Profile
from bench.payloads import plain_batch
from bench.raw_client import RawConnection, fetch_each, produce_check, produce_pipelined
from bench.raw_requests import metadata_request, produce_request
from bench.raw_sasl import log_in
from bench.secured import HOST, MECHANISM, PASSWORD, USER

PROFILE = Profile(name="secured", secured=True)

_RECORDS_PER_BATCH = 1000
_VALUE_BYTES = 1000
_RESPONSE_BYTES = 1 << 20
_WITHIN_SECONDS = 60.0
_LONGEST_SECONDS = 20.0
_WARM_UPS = 2
_WITHOUT_TOPIC = metadata_request("there-is-no-such-topic")


def tls_produce(cell: Cell) -> Figures:
    """A bulk load over TLS, confluent-kafka with its default batches of up to 1 MB."""
    client = cell.secured.tls_client()
    records = _full(cell, 300_000)
    with cell.topic() as topic, cell.cpu_clock() as cpu:
        span = produce_records(client["bootstrap.servers"], topic, records, _VALUE_BYTES, settings=client)
    payload = records * _VALUE_BYTES
    return {"mb_per_s": payload / covered_seconds([span]) / 1e6, "cpu_s_per_gb": cpu.per_gb(payload)}


def tls_produce_raw(cell: Cell) -> Figures:
    """The same from a raw TLS socket with requests of 1 MB."""
    batch = plain_batch(_RECORDS_PER_BATCH, _VALUE_BYTES)
    with cell.topic() as topic, _connect_tls(cell) as connection:
        request = produce_request(topic, {0: batch}, acks=1)
        with cell.cpu_clock() as cpu:
            count, seconds = produce_pipelined(
                connection, request, produce_check(topic), in_flight=4, count=_full(cell, 400)
            )
    return {"mb_per_s": count * len(batch) / seconds / 1e6, "cpu_s_per_gb": cpu.per_gb(count * len(batch))}


def tls_fetch(cell: Cell) -> Figures:
    """Catching up over TLS, confluent-kafka with its default responses of 1 MB."""
    topic, batches = _filled_topic(cell)
    records = batches * _RECORDS_PER_BATCH
    with cell.cpu_clock() as cpu:
        seconds = consume_records(cell.secured.tls_client(), topic, records)
    payload = records * _VALUE_BYTES
    return {"mb_per_s": payload / seconds / 1e6, "cpu_s_per_gb": cpu.per_gb(payload)}


def tls_fetch_raw(cell: Cell) -> Figures:
    """The same to a raw TLS socket: what the broker can send."""
    topic, batches = _filled_topic(cell)
    offsets = [batch * _RECORDS_PER_BATCH for batch in range(batches)]
    with _connect_tls(cell) as connection, cell.cpu_clock() as cpu:
        received, seconds = fetch_each(connection, topic, offsets, max_bytes=_RESPONSE_BYTES)
    expected = batches * len(plain_batch(_RECORDS_PER_BATCH, _VALUE_BYTES))
    if received < expected:
        raise RuntimeError(f"asked for {expected} bytes of records and got {received}")
    return {"mb_per_s": received / seconds / 1e6, "cpu_s_per_gb": cpu.per_gb(received)}


def consume_records(client: dict[str, Any], topic: str, records: int) -> float:
    """Read so many from the beginning; seconds from the first one on, which comes after the connection."""
    consumer = Consumer({**client, "group.id": "unused", "enable.auto.commit": False, "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        _check([consumer.poll(_WITHIN_SECONDS)])
        started, seen = time.monotonic(), 1
        while seen < records:
            messages = consumer.consume(min(10_000, records - seen), 0.5)
            _check(messages)
            seen += len(messages)
            if time.monotonic() > started + _WITHIN_SECONDS:
                raise TimeoutError(f"{seen} of {records} records within {_WITHIN_SECONDS:.0f} s")
        return time.monotonic() - started
    finally:
        consumer.close()


def _check(messages: Sequence[Message | None]) -> None:
    for message in messages:
        if message is None:
            raise TimeoutError(f"no record within {_WITHIN_SECONDS:.0f} s")
        if message.error():
            raise KafkaException(message.error())


def synchronous_login_produce(cell: Cell) -> Figures:
    """One event sent and waited for, over TLS and after a SCRAM login."""
    return synchronous_sends(cell, cell.secured.login_client())


def handshakes(cell: Cell) -> Figures:
    """A full TLS 1.3 handshake (ECDSA P-256) and one small request, on a new connection each."""
    context = cell.secured.context()
    port = cell.secured.tls_port

    def connect() -> None:
        with RawConnection(HOST, port, buffer_bytes=4096, tls=context) as connection:
            connection.call(_WITHOUT_TOPIC)

    return _cpu_of_each(cell, connect, _full(cell, 1000))


def logins(cell: Cell) -> Figures:
    """A SCRAM-SHA-512 login on a new connection each, without TLS."""
    port = cell.secured.sasl_port

    def connect() -> None:
        with RawConnection(HOST, port, buffer_bytes=4096) as connection:
            log_in(connection, MECHANISM, USER, PASSWORD)

    return _cpu_of_each(cell, connect, _full(cell, 1500))


def _cpu_of_each(cell: Cell, connect: Callable[[], None], count: int) -> Figures:
    if not cell.state.get("warm"):  # a JVM compiles its cryptography only after thousands of connections
        cell.state["warm"] = True
        _repeat(connect, _WARM_UPS * count)
    with cell.cpu_clock() as cpu:
        done = _repeat(connect, count)
    return {"cpu_us": cpu.seconds / done * 1e6, "done": done}


def _repeat(connect: Callable[[], None], count: int) -> int:
    """How often it was done within the time that there is."""
    done, deadline = 0, time.monotonic() + _LONGEST_SECONDS
    while done < count and time.monotonic() < deadline:
        connect()
        done += 1
    return done


def _full(cell: Cell, amount: int) -> int:
    """In warm-up turns, too: a JVM that compiles its TLS while it is measured is not what users run."""
    return max(amount // 50, int(amount * cell.suite_scale))


def _connect_tls(cell: Cell) -> RawConnection:
    secured = cell.secured
    return RawConnection(HOST, secured.tls_port, buffer_bytes=2 * _RESPONSE_BYTES, tls=secured.context())


def _filled_topic(cell: Cell) -> tuple[str, int]:
    """A topic of 1 MB batches, filled on a node's first turn and read in all its turns; (name, batches)."""
    batches = _full(cell, 400)

    def fill(topic: str) -> None:
        request = produce_request(topic, {0: plain_batch(_RECORDS_PER_BATCH, _VALUE_BYTES)}, acks=1)
        with cell.connect() as connection:
            produce_pipelined(connection, request, produce_check(topic), in_flight=5, count=batches)

    return cell.shared_topic(fill), batches
