# SPDX-License-Identifier: Apache-2.0
"""The Arrow client beside the other Python clients, beside json.loads, and what memory it takes.

Every side fills the same table. How the topic is made and confluent-kafka is driven: arrow.py.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

import aiokafka
import kafka
import pyarrow as pa

import headrace
from bench.cell import Cell
from bench.measures.arrow import COLUMNS, RESPONSE_BYTES, ROWS_PER_BATCH, consumed, fill_topic, prebuilt, rate
from bench.model import Figures
from headrace.wire.compression import Codec

_BATCHES = 100
_ROW_BY_ROW = 100_000
"""Records for clients of one record at a time: their rate does not depend on it, the turn's length does."""
_DOCUMENTS = 600_000
_DOCUMENT = pa.struct(
    [("id", pa.int64()), ("user", pa.string()), ("amount", pa.float64()), ("paid", pa.bool_())]
)
_BUDGET = 32 << 20
_PEAK = (
    "import headrace, headrace.client.arrow.read.reader; "
    "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) * 1024; "
    "read = lambda **options: sum(batch.num_rows for batch in headrace.read("
    "{topic!r}, bootstrap={bootstrap!r}, **options)); "
    "read(end={{0: 1}}, budget=1); before = peak(); "
    "assert read(budget={budget}) == {rows}; "
    "print(peak() - before)"
)
"""Over what reading one record takes. The kernel's figure, since getrusage's is inherited from the parent."""


def other_clients(cell: Cell) -> Figures:
    """kafka-python and aiokafka, on the same topic into the same table."""
    topic = cell.shared_topic(lambda name: fill_topic(cell, name, prebuilt(Codec.NONE), _BATCHES))
    bootstrap = cell.node.bootstrap
    count = min(cell.scaled(_ROW_BY_ROW, least=10_000), _BATCHES * ROWS_PER_BATCH)
    ours = rate(lambda: _count(headrace.read(topic, bootstrap=bootstrap, columns=COLUMNS)))
    kafka_python = _kafka_python_rate(bootstrap, topic, count)
    aio = asyncio.run(_aiokafka_rate(bootstrap, topic, count))
    return {
        "kafka_python_records_per_s": kafka_python,
        "aiokafka_records_per_s": aio,
        "versus_kafka_python": ours / kafka_python,
        "versus_aiokafka": ours / aio,
    }


def json_values(cell: Cell) -> Figures:
    """JSON objects into typed columns; confluent-kafka and json.loads per record into the same columns."""
    documents = max(50_000, int(_DOCUMENTS * cell.suite_scale))
    bootstrap = cell.node.bootstrap
    topic = cell.shared_topic(
        lambda name: _ignore(headrace.write(_documents(documents), name, bootstrap=bootstrap))
    )
    form = headrace.Json(_DOCUMENT)
    ours = rate(lambda: _count(headrace.read(topic, bootstrap=bootstrap, columns=["value"], value=form)))
    theirs = _json_loads_rate(bootstrap, topic, documents // 3)
    return {"records_per_s": ours, "loads_records_per_s": theirs, "versus_loads": ours / theirs}


def peak_memory(cell: Cell) -> Figures:
    """The most memory that a process takes while it reads a topic many times as large as its budget."""
    batches = _BATCHES * 4
    topic = cell.shared_topic(lambda name: fill_topic(cell, name, prebuilt(Codec.NONE), batches))
    program = _PEAK.format(
        topic=topic, bootstrap=cell.node.bootstrap, budget=_BUDGET, rows=batches * ROWS_PER_BATCH
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {"times_budget": float(done.stdout) / _BUDGET}


def _kafka_python_rate(bootstrap: str, topic: str, count: int) -> float:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        max_poll_records=10_000,
        fetch_max_bytes=RESPONSE_BYTES,
        max_partition_fetch_bytes=RESPONSE_BYTES,
    )
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    rows = _Rows()
    while rows.counted < count:
        rows.keep(consumer.poll(30_000).get(partition, []))
    found = rows.rate()
    consumer.close()
    return found


async def _aiokafka_rate(bootstrap: str, topic: str, count: int) -> float:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        fetch_max_bytes=RESPONSE_BYTES,
        max_partition_fetch_bytes=RESPONSE_BYTES,
    )
    await consumer.start()
    try:
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        rows = _Rows()
        while rows.counted < count:
            found = await consumer.getmany(timeout_ms=30_000, max_records=10_000)
            rows.keep(found.get(partition, []))
        return rows.rate()
    finally:
        await consumer.stop()


class _Rows:
    """Records in columns. The clock runs from the first ones on, which are not counted."""

    def __init__(self) -> None:
        self.counted = 0
        self._started: float | None = None
        self._columns: tuple[list[Any], ...] = ([], [], [], [])

    def keep(self, records: list[Any]) -> None:
        if self._started is None and records:
            self._started = time.perf_counter()
            return
        self.counted += len(records)
        keys, values, offsets, timestamps = self._columns
        keys.extend([record.key for record in records])
        values.extend([record.value for record in records])
        offsets.extend([record.offset for record in records])
        timestamps.extend([record.timestamp for record in records])

    def rate(self) -> float:
        assert self._started is not None
        pa.table([pa.array(column) for column in self._columns], names=COLUMNS)
        return self.counted / (time.perf_counter() - self._started)


def _json_loads_rate(bootstrap: str, topic: str, count: int) -> float:
    columns: dict[str, list[Any]] = {field.name: [] for field in _DOCUMENT}
    with consumed(bootstrap, topic) as consume:
        started = time.perf_counter()
        done = 0
        while done < count:
            messages = consume()
            done += len(messages)
            for message in messages:
                document = json.loads(message.value())
                for name, column in columns.items():
                    column.append(document[name])
        pa.table([pa.array(columns[field.name], field.type) for field in _DOCUMENT], names=list(columns))
        return done / (time.perf_counter() - started)


def _documents(count: int) -> Any:
    return pa.table(
        {
            "value": pa.array(
                [
                    {"id": n, "user": f"user-{n % 9973}", "amount": n * 0.25, "paid": n % 3 == 0}
                    for n in range(count)
                ],
                _DOCUMENT,
            )
        }
    )


def _count(reader: Any) -> int:
    return sum(batch.num_rows for batch in reader)


def _ignore(_: object) -> None:
    return None
