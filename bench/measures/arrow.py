# SPDX-License-Identifier: Apache-2.0
"""The Arrow client beside other ways to the same end, on the same broker and topic, one after the other.

Ratios are made within one turn: what the machine does meanwhile hits both sides.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

import headrace
from bench.cell import Cell
from bench.model import Figures
from bench.raw_client import fetch_each, produce_check, produce_pipelined
from bench.raw_requests import produce_request
from headrace.client.arrow.fetch.sections import Fetched
from headrace.client.arrow.read.decode import Decoder
from headrace.client.arrow.write.columns import WriteColumns
from headrace.client.arrow.write.encode import encode_batch
from headrace.wire.compression import Codec

ROWS_PER_BATCH = 8_000
_BATCHES = 1_250
_ROW_BY_ROW_SHARE = 0.2
_ROW_BY_ROW_LEAST = 100_000
"""Row-by-row clients get a part of the records: their rate does not depend on it, the turn's length does."""
RESPONSE_BYTES = 8 << 20
COLUMNS = ["key", "value", "offset", "timestamp"]
_FIRST_BATCH = (
    "import time, pyarrow; begun = time.perf_counter(); import headrace; "
    "headrace.read({topic!r}, bootstrap={bootstrap!r}, count=1000).read_next_batch(); "
    "print(time.perf_counter() - begun)"
)


def rows(count: int) -> Any:
    """100 bytes a row: a key of 12 and a value of 88 that compresses as text does."""
    keys = [b"key-%08d" % number for number in range(count)]
    words = np.random.default_rng(1).integers(0, 1000, (count, 11))
    values = [b"".join(b"word%04d" % word for word in line) for line in words.tolist()]
    return pa.record_batch({"key": pa.array(keys), "value": pa.array(values)})


def prebuilt(codec: Codec, count: int = ROWS_PER_BATCH) -> bytes:
    batch = rows(count)
    columns = WriteColumns(key="key").bound(batch.schema, "bench").pick(batch, int(time.time() * 1000))
    encoded = encode_batch(columns, np.arange(count, dtype=np.int64), codec=codec, max_bytes=1 << 21)
    return bytes(encoded.batch)


def fill_topic(cell: Cell, topic: str, batch: bytes, count: int) -> None:
    request = produce_request(topic, {0: batch}, acks=1)
    with cell.connect() as connection:
        produce_pipelined(connection, request, produce_check(topic), in_flight=5, count=count)


def _read(cell: Cell, codec: Codec) -> Figures:
    batch = prebuilt(codec)
    batches = max(20, int(_BATCHES * cell.suite_scale))

    topic = cell.shared_topic(lambda name: fill_topic(cell, name, batch, batches))
    bootstrap = cell.node.bootstrap
    ours = rate(lambda: _count(headrace.read(topic, bootstrap=bootstrap, columns=COLUMNS)))
    theirs = _consume_rate(bootstrap, topic, _some_of(batches * ROWS_PER_BATCH))
    raw = rate(lambda: _throw_away(cell, topic, batches, len(batch)))
    return {
        "records_per_s": ours,
        "confluent_records_per_s": theirs,
        "versus_confluent": ours / theirs,
        "versus_thrown_away": ours / raw,
    }


def read_plain(cell: Cell) -> Figures:
    """A topic into Arrow columns; confluent-kafka into the same table; a fetch that throws the bytes away."""
    return _read(cell, Codec.NONE)


def read_lz4(cell: Cell) -> Figures:
    """The same of a topic compressed with lz4."""
    return _read(cell, Codec.LZ4)


def read_zstd(cell: Cell) -> Figures:
    """The same of a topic compressed with zstd."""
    return _read(cell, Codec.ZSTD)


def write_plain(cell: Cell) -> Figures:
    """A table into a topic; confluent-kafka's produce() in a loop; batches that were built before."""
    batch = prebuilt(Codec.NONE)
    batches = cell.scaled(_BATCHES, least=10)
    table = pa.Table.from_batches([rows(ROWS_PER_BATCH)] * batches)
    bootstrap = cell.node.bootstrap
    with cell.topic() as topic, cell.connect() as connection:
        ours = rate(lambda: headrace.write(table, topic, bootstrap=bootstrap, key="key").records)
        theirs = _produce_rate(bootstrap, topic, table.slice(0, _some_of(len(table))))
        request = produce_request(topic, {0: batch}, acks=-1)
        raw = rate(
            lambda: (
                produce_pipelined(connection, request, produce_check(topic), in_flight=5, count=batches)[0]
                * ROWS_PER_BATCH
            )
        )
    return {
        "records_per_s": ours,
        "confluent_records_per_s": theirs,
        "versus_confluent": ours / theirs,
        "versus_prebuilt": ours / raw,
    }


def decode_alone(cell: Cell) -> Figures:
    """Decoding without a network: records per second of one core."""
    run = prebuilt(Codec.NONE) * 9
    decoder = Decoder("bench", ["key", "value"])
    turns = cell.scaled(40, least=3)
    started = time.process_time()
    for _ in range(turns):
        decoded = sum(batch.num_rows for batch in decoder.decode([Fetched(0, run, 0, 1 << 62)]))
    seconds = time.process_time() - started
    return {
        "records_per_s": turns * decoded / seconds,
        "mb_per_s": turns * len(run) / seconds / 1e6,
    }


def first_batch(cell: Cell) -> Figures:
    """A fresh process that has imported pyarrow, until it holds its first batch."""
    topic = cell.shared_topic(
        lambda name: _ignore(headrace.write(rows(1000), name, bootstrap=cell.node.bootstrap, key="key"))
    )
    program = _FIRST_BATCH.format(topic=topic, bootstrap=cell.node.bootstrap)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {"seconds": float(done.stdout)}


def rate(work: Callable[[], int]) -> float:
    started = time.perf_counter()
    done = work()
    return done / (time.perf_counter() - started)


def _count(reader: Any) -> int:
    return sum(batch.num_rows for batch in reader)


def _some_of(count: int) -> int:
    return max(int(count * _ROW_BY_ROW_SHARE), min(count, _ROW_BY_ROW_LEAST))


@contextmanager
def consumed(bootstrap: str, topic: str) -> Iterator[Callable[[], list[Any]]]:
    """confluent-kafka at its best: up to 10,000 messages a call, after the first one."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 131_072,
            "max.partition.fetch.bytes": RESPONSE_BYTES,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.consume(1, timeout=30)
    yield lambda: consumer.consume(10_000, timeout=30)
    consumer.close()


def _consume_rate(bootstrap: str, topic: str, count: int) -> float:
    """From its first message on: that it takes long to begin is not held against it."""
    columns: tuple[list[Any], ...] = ([], [], [], [])
    with consumed(bootstrap, topic) as consume:
        started = time.perf_counter()
        while len(columns[0]) < count - 1:
            messages = consume()
            columns[0].extend([message.key() for message in messages])
            columns[1].extend([message.value() for message in messages])
            columns[2].extend([message.offset() for message in messages])
            columns[3].extend([message.timestamp()[1] for message in messages])
        pa.table([pa.array(column) for column in columns], names=COLUMNS)
        return len(columns[0]) / (time.perf_counter() - started)


def _throw_away(cell: Cell, topic: str, batches: int, batch_bytes: int) -> int:
    per_response = max(1, RESPONSE_BYTES // batch_bytes)
    offsets = [first * ROWS_PER_BATCH for first in range(0, batches, per_response)]
    with cell.connect(buffer_bytes=RESPONSE_BYTES + (1 << 20)) as connection:
        received, _ = fetch_each(connection, topic, offsets, max_bytes=per_response * batch_bytes)
    return received // batch_bytes * ROWS_PER_BATCH


def _produce_rate(bootstrap: str, topic: str, table: Any) -> float:
    """From its first delivery on."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 10_000_000,
        }
    )
    producer.produce(topic, b"first")
    producer.flush(60)
    started = time.perf_counter()
    for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
        producer.produce(topic, value, key)
    if producer.flush(120):
        raise RuntimeError("confluent-kafka could not deliver everything")
    return len(table) / (time.perf_counter() - started)


def _ignore(_: object) -> None:
    return None
