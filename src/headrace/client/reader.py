"""Reading records from given offsets, without a group: confluent-kafka's consumer for tools.

Knows no console. Where to begin and end is the caller's choice, by offset; admin.py finds offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client.bootstrap import check_reachable
from headrace.client.kafka_errors import client_error
from headrace.client.settings import client_settings

_BATCH = 500
_WAIT_S = 0.2
_PASSING_TROUBLE = {
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_RESOLVE",
    "_TIMED_OUT",
    # About the group that the library insists on and that nobody joins:
    "COORDINATOR_NOT_AVAILABLE",
    "GROUP_AUTHORIZATION_FAILED",
}
"""librdkafka goes on trying by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    partition: int
    offset: int
    timestamp_ms: int | None
    append_time: bool
    """True when the broker set the timestamp, False when the producer did."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RecordReader:
    """Iterates over a topic's records from `starts`; ends when every partition has reached its `stop`.

    Without `stops` it follows the log for ever. A stop is the offset after the last one wanted. `on_pause` is
    called whenever all that has arrived was handed out.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        starts: Mapping[int, int],
        stops: Mapping[int, int] | None = None,
        *,
        on_trouble: Callable[[str], None] | None = None,
        on_pause: Callable[[], None] | None = None,
    ) -> None:
        check_reachable(bootstrap)
        import confluent_kafka

        self._kafka: Any = confluent_kafka
        self._topic = topic
        self._stops = stops
        self._on_pause = on_pause or (lambda: None)
        self._open = {
            partition for partition, start in starts.items() if stops is None or start < stops[partition]
        }
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
            [confluent_kafka.TopicPartition(topic, index, starts[index]) for index in sorted(self._open)]
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
        error = message.error()
        if error is not None:
            self._take_error(error, message.partition())
            return None
        partition, offset = message.partition(), message.offset()
        if partition not in self._open:
            return None  # past the stop
        if self._stops is not None and offset + 1 >= self._stops[partition]:
            self._open.discard(partition)
            if offset >= self._stops[partition]:
                return None
        kind, timestamp = message.timestamp()
        return ReadRecord(
            partition=partition,
            offset=offset,
            timestamp_ms=None if kind == self._kafka.TIMESTAMP_NOT_AVAILABLE else timestamp,
            append_time=kind == self._kafka.TIMESTAMP_LOG_APPEND_TIME,
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),
        )

    def _take_error(self, error: Any, partition: int) -> None:
        """The end of a partition is no error; what passes by itself is waited for; the rest is raised."""
        if error.code() == self._kafka.KafkaError._PARTITION_EOF:
            self._open.discard(partition)
        elif error.name() not in _PASSING_TROUBLE:
            raise client_error(error, name=self._topic)
