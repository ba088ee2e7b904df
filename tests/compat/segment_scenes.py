# SPDX-License-Identifier: Apache-2.0
"""Scenes of interleaved transactions on Apache Kafka, played by several producers, read by several clients.

`python tests/compat/segment_scenes.py` plays them and keeps the segments under tests/data/segments for
`make test`; test_jvm_arrow_segments.py plays them anew.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.arrow.kernels.types import HEADERS
from headrace.cluster.engines.engine import RunningNode
from headrace.cluster.engines.kafka import KafkaEngine
from tests.harness.batches.recorded import Recording, Row, read_aborted

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEPT = Path(__file__).parents[1] / "data/segments"
PER_CODEC = 2 * (5 + 4 + 3 + 2)


def record(tag: str, n: int) -> dict[str, Any]:
    """The n-th of a run: some without key, tombstones, empty, with headers; as in TransactionScene.java."""
    return {
        "key": None if n % 3 == 0 else f"key {tag}".encode(),
        "value": None if n % 4 == 3 else f"{tag} {n} ".encode() * (n * 5),
        "headers": [("n", b"%d" % n), ("größe", None)] if n % 2 else [],
        "timestamp": 1_700_000_000_000 + 1000 * n,
    }


class Turns:
    """Two transactional writers and a plain one, for every codec, in turns: what each engine fills in."""

    def play(self, codec: str) -> None:
        for ends in ((("one", "commit"), ("two", "abort")), (("two", "commit"), ("one", "abort"))):
            self.begin("one")
            self.send("one", f"{codec} one", 5)
            self.begin("two")
            self.send("two", f"{codec} two", 4)
            self.send("plain", f"{codec} plain", 3)
            self.send("one", f"{codec} one again", 2)
            for who, end in ends:
                self.end(who, end)

    def begin(self, who: str) -> None:
        raise NotImplementedError

    def send(self, who: str, tag: str, count: int) -> None:
        raise NotImplementedError

    def end(self, who: str, how: str) -> None:
        raise NotImplementedError


class LibrdkafkaTurns(Turns):
    def __init__(self, bootstrap: str, topic: str, codec: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50}
        self._topic = topic
        self._producers = {
            who: confluent_kafka.Producer({**settings, "transactional.id": f"{topic}-{who}-{codec}"})
            for who in ("one", "two")
        }
        for producer in self._producers.values():
            producer.init_transactions(30)
        self._producers["plain"] = confluent_kafka.Producer(settings)

    def begin(self, who: str) -> None:
        self._producers[who].begin_transaction()

    def send(self, who: str, tag: str, count: int) -> None:
        for n in range(count):
            self._producers[who].produce(self._topic, partition=0, **record(tag, n))
        assert self._producers[who].flush(30) == 0

    def end(self, who: str, how: str) -> None:
        getattr(self._producers[who], f"{how}_transaction")(30)


class HeadraceTurns(Turns):
    def __init__(self, bootstrap: str, topic: str, codec: str) -> None:
        self._bootstrap, self._topic, self._codec = bootstrap, topic, codec
        self._transactions = {
            who: headrace.transaction(f"{topic}-{who}-{codec}", bootstrap=bootstrap) for who in ("one", "two")
        }

    def begin(self, who: str) -> None:
        self._transactions[who].begin()

    def send(self, who: str, tag: str, count: int) -> None:
        options: Any = {"key": "key", "headers": "headers", "timestamp": "timestamp"}
        options |= {"compression": self._codec}
        if who == "plain":
            headrace.write(as_table(tag, count), self._topic, bootstrap=self._bootstrap, **options)
        else:
            self._transactions[who].write(as_table(tag, count), self._topic, **options)

    def end(self, who: str, how: str) -> None:
        getattr(self._transactions[who], how)()


def as_table(tag: str, count: int) -> Any:
    rows = [record(tag, n) for n in range(count)]
    for row in rows:
        row["headers"] = [{"key": key, "value": value} for key, value in row["headers"]]
    fields = {"key": pa.binary(), "value": pa.binary(), "headers": HEADERS, "timestamp": pa.timestamp("ms")}
    return pa.Table.from_pylist(rows, pa.schema(fields))


def play_librdkafka(engine: KafkaEngine, bootstrap: str, topic: str) -> None:
    for codec in CODECS:
        LibrdkafkaTurns(bootstrap, topic, codec).play(codec)


def play_headrace(engine: KafkaEngine, bootstrap: str, topic: str) -> None:
    for codec in CODECS:
        HeadraceTurns(bootstrap, topic, codec).play(codec)


def play_java(engine: KafkaEngine, bootstrap: str, topic: str) -> None:
    done = engine.tool(str(Path(__file__).parent / "java/TransactionScene.java"), bootstrap, topic, *CODECS)
    assert done.returncode == 0, done.output


SCENES: dict[str, tuple[Callable[[KafkaEngine, str, str], None], dict[str, str]]] = {
    "librdkafka": (play_librdkafka, {}),
    "java": (play_java, {}),
    "java-append-time": (play_java, {"message.timestamp.type": "LogAppendTime"}),
    "headrace": (play_headrace, {}),
}


def play(engine: KafkaEngine, node: RunningNode, name: str) -> Recording:
    """Plays a scene and reads it with every client; they must agree."""
    scene, config = SCENES[name]
    # One segment, kept although its records' timestamps are of years ago.
    config = {"retention.ms": "-1", "segment.ms": str(1 << 60), **config}
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    scene(engine, node.bootstrap, name)
    committed = by_librdkafka(node.bootstrap, name, "read_committed")
    everything = by_librdkafka(node.bootstrap, name, "read_uncommitted")
    assert len(everything) == PER_CODEC * len(CODECS)
    for read in (by_kafka_python, by_aiokafka):
        assert read(node.bootstrap, name, "read_committed", len(committed)) == committed, read.__name__
        assert read(node.bootstrap, name, "read_uncommitted", len(everything)) == everything, read.__name__
    folder = node.data_dir / f"{name}-0"
    return Recording(
        name=name,
        log=(folder / "00000000000000000000.log").read_bytes(),
        aborted=read_aborted(folder / "00000000000000000000.txnindex"),
        committed=tuple(committed),
        everything=tuple(everything),
    )


def by_librdkafka(bootstrap: str, topic: str, isolation: str) -> list[Row]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "segments", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**settings, "isolation.level": isolation, "check.crcs": True})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    rows: list[Row] = []
    while not (message := consumer.poll(20)).error():
        kind, timestamp = message.timestamp()
        headers = tuple((key, value) for key, value in message.headers() or ())
        append_time = int(kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME)
        rows.append(Row(message.offset(), timestamp, append_time, message.key(), message.value(), headers))
    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
    consumer.close()
    return rows


def by_kafka_python(bootstrap: str, topic: str, isolation: str, count: int) -> list[Row]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, consumer_timeout_ms=10_000
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    rows = []
    for each in consumer:
        rows.append(_row(each))
        if len(rows) == count:
            break
    consumer.close()
    return rows


def by_aiokafka(bootstrap: str, topic: str, isolation: str, count: int) -> list[Row]:
    async def collect() -> list[Row]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            return [_row(await asyncio.wait_for(consumer.getone(), 10)) for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(collect())


def _row(each: Any) -> Row:
    return Row(
        each.offset,
        each.timestamp,
        each.timestamp_type,
        each.key,
        each.value,
        tuple((key, value) for key, value in each.headers),
    )


def main() -> None:
    engine = KafkaEngine()
    with tempfile.TemporaryDirectory() as folder, engine.start(Path(folder), {}) as node:
        for name in SCENES:
            recording = play(engine, node, name)
            recording.save(KEPT)
            print(f"{name}: {len(recording.everything)} rows, {len(recording.log)} bytes")


if __name__ == "__main__":
    main()
