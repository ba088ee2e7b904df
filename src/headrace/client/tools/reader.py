# SPDX-License-Identifier: Apache-2.0
"""Reading records from given offsets, without a group: confluent-kafka's consumer for tools.

Where to begin and end is the caller's choice, by offset; admin.py finds offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.kafka_errors import client_error
from headrace.client.reachable import check_reachable
from headrace.client.settings import client_settings
from headrace.types import TopicPartition

_BATCH = 500
_WAIT_S = 0.2
_PASSING_TROUBLE = {
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_RESOLVE",
    "_TIMED_OUT",
    # Settings of a group that librdkafka requires and that is never joined:
    "COORDINATOR_NOT_AVAILABLE",
    "GROUP_AUTHORIZATION_FAILED",
}
"""librdkafka goes on trying by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    append_time: bool
    """True when the broker set the timestamp, False when the producer did."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RecordReader:
    """Iterates over records of partitions from `starts`; ends when every partition has reached its `stop`.

    Without `stops` it follows the logs without end. A stop is the offset after the last one wanted.
    `on_pause` is called whenever all records received were handed out.
    """

    def __init__(
        self,
        bootstrap: str | Cluster,
        starts: Mapping[TopicPartition, int],
        stops: Mapping[TopicPartition, int] | None = None,
        *,
        on_trouble: Callable[[str], None] | None = None,
        on_pause: Callable[[], None] | None = None,
    ) -> None:
        check_reachable(bootstrap)
        import confluent_kafka

        self._kafka: Any = confluent_kafka
        self._names = ", ".join(sorted({where.topic for where in starts}))
        self._stops = stops
        self._on_pause = on_pause or (lambda: None)
        self._open = {where for where, start in starts.items() if stops is None or start < stops[where]}
        trouble = on_trouble or (lambda text: None)
        self._client: Any = confluent_kafka.Consumer(
            client_settings(bootstrap)
            | {
                "group.id": "headrace-reader",  # demanded by the library; nothing is joined or committed
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": stops is not None,
                "auto.offset.reset": "earliest",
                "error_cb": lambda error: trouble(str(error.str())),
            }
        )
        self._client.assign(
            [confluent_kafka.TopicPartition(*where, starts[where]) for where in sorted(self._open)]
        )

    def __iter__(self) -> Iterator[ReadRecord]:
        while self._open:
            for message in self._client.consume(_BATCH, _WAIT_S):
                record = self._take(message)
                if record is not None:
                    yield record
            self._on_pause()

    def close(self) -> None:
        self._client.close()

    def _take(self, message: Any) -> ReadRecord | None:
        where = TopicPartition(message.topic(), message.partition())
        error = message.error()
        if error is not None:
            self._take_error(error, where)
            return None
        offset = message.offset()
        if where not in self._open:
            return None  # past the stop
        if self._stops is not None and offset + 1 >= self._stops[where]:
            self._open.discard(where)
            if offset >= self._stops[where]:
                return None
        kind, timestamp = message.timestamp()
        return ReadRecord(
            topic=where.topic,
            partition=where.partition,
            offset=offset,
            timestamp_ms=None if kind == self._kafka.TIMESTAMP_NOT_AVAILABLE else timestamp,
            append_time=kind == self._kafka.TIMESTAMP_LOG_APPEND_TIME,
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),
        )

    def _take_error(self, error: Any, where: TopicPartition) -> None:
        """The end of a partition is no error; what passes by itself is waited for; the rest is raised."""
        if error.code() == self._kafka.KafkaError._PARTITION_EOF:
            self._open.discard(where)
        elif error.name() not in _PASSING_TROUBLE:
            raise client_error(error, name=where.topic or self._names)


def topic_reader(
    bootstrap: str | Cluster,
    topic: str,
    starts: Mapping[int, int],
    stops: Mapping[int, int] | None = None,
    *,
    on_pause: Callable[[], None] | None = None,
) -> RecordReader:
    """A reader of one topic, with offsets by partition."""
    ends = None if stops is None else of_topic(topic, stops)
    return RecordReader(bootstrap, of_topic(topic, starts), ends, on_pause=on_pause)


def of_topic(topic: str, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
