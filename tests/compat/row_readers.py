# SPDX-License-Identifier: Apache-2.0
"""Row-oriented clients that read one partition on and on: what each shows of the next so many records."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiokafka
import confluent_kafka
import kafka


class Seen(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RowReaders:
    """From the beginning of partition 0; `read` gives the rows by client."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._librdkafka = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "rows"})
        self._librdkafka.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        self._kafka_python = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
        self._kafka_python.assign([kafka.TopicPartition(topic, 0)])
        self._kafka_python.seek_to_beginning()
        self._loop = asyncio.new_event_loop()
        self._aiokafka = self._loop.run_until_complete(self._start_aiokafka(bootstrap, topic))

    def read(self, count: int) -> dict[str, list[Seen]]:
        return {
            "librdkafka": self._with_librdkafka(count),
            "kafka-python": self._with_kafka_python(count),
            "aiokafka": self._with_aiokafka(count),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._librdkafka.close()
        self._kafka_python.close()
        self._loop.run_until_complete(self._aiokafka.stop())
        self._loop.close()

    @staticmethod
    async def _start_aiokafka(bootstrap: str, topic: str) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        return consumer

    def _with_librdkafka(self, count: int) -> list[Seen]:
        rows: list[Seen] = []
        while len(rows) < count:
            messages = self._librdkafka.consume(count - len(rows), timeout=10)
            assert messages, f"librdkafka got {len(rows)} of {count}"
            for each in messages:
                assert each.error() is None
                headers = tuple(each.headers() or ())
                rows.append(Seen(each.timestamp()[1], each.key(), each.value(), headers))
        return rows

    def _with_kafka_python(self, count: int) -> list[Seen]:
        rows: list[Seen] = []
        while len(rows) < count:
            polled = self._kafka_python.poll(10_000, max_records=count - len(rows))
            assert polled, f"kafka-python got {len(rows)} of {count}"
            rows += [_seen(each) for records in polled.values() for each in records]
        return rows

    def _with_aiokafka(self, count: int) -> list[Seen]:
        async def collect() -> list[Seen]:
            return [_seen(await asyncio.wait_for(self._aiokafka.getone(), 10)) for _ in range(count)]

        return self._loop.run_until_complete(collect())


def _seen(each: Any) -> Seen:
    return Seen(each.timestamp, each.key, each.value, tuple((key, value) for key, value in each.headers))
