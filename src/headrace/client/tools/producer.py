# SPDX-License-Identifier: Apache-2.0
"""Sending records one by one, with a report for each: confluent-kafka's producer for tools.

Which partition a record goes to: ../partitioning/partitioners.py, or librdkafka's murmur2 (the same).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.kafka_errors import client_error
from headrace.client.partitioning.partitioners import ExplicitPartitioner, Partitioner
from headrace.client.reachable import check_reachable
from headrace.client.settings import client_settings

Acks = Literal["0", "1", "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

DEFAULT_DELIVERY_TIMEOUT_MS = 30_000
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
_POLL_S = 0.1
_LET_LIBRDKAFKA_CHOOSE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRecord:
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of the record with this number (D6). With acks=0 nobody says the offset."""

    number: int
    key: bytes | None
    partition: int | None
    offset: int | None
    error: ClientError | None = None


class RecordProducer:
    """`on_delivery` is called from a thread of its own, in the order of completion."""

    def __init__(
        self,
        bootstrap: str | Cluster,
        topic: str,
        *,
        partitions: int,
        acks: Acks = "all",
        compression: Compression = "none",
        partitioner: Partitioner | None = None,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        linger_ms: int = 5,
        delivery_timeout_ms: int = DEFAULT_DELIVERY_TIMEOUT_MS,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        """Without a partitioner of ours a key decides by its hash, as in the Java client.

        `max_message_bytes` is the topic's limit. The broker applies it to whole batches and librdkafka does
        not split a refused one, so batches stay below it: else a large record makes others fail.
        """
        check_reachable(bootstrap)
        import confluent_kafka

        self._kafka: Any = confluent_kafka
        self._topic = topic
        self._partitioner = partitioner
        self._partitions = partitions
        self._on_delivery = on_delivery or (lambda delivery: None)
        self._client: Any = confluent_kafka.Producer(
            client_settings(bootstrap)
            | {
                "acks": acks,
                # Retries cannot duplicate or reorder; only possible when all replicas acknowledge.
                "enable.idempotence": acks == "all",
                "partitioner": "murmur2_random",
                "compression.type": compression,
                "message.max.bytes": min(max(max_message_bytes, 1000), 1_000_000_000),
                "batch.size": min(max(max_message_bytes, 1), 1_000_000),
                "linger.ms": linger_ms,
                "delivery.timeout.ms": delivery_timeout_ms,
            }
        )
        self._sent = 0
        self._stopping = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="delivery-reports", daemon=True)
        self._poller.start()

    def send(self, record: OutgoingRecord) -> None:
        """Queues the record; waits while the queue is full. Raises ClientError when no partition fits it."""
        partition = self._place(record)
        number = self._sent
        self._sent += 1
        while True:
            try:
                self._produce(record, partition, number)
            except BufferError:
                self._stopping.wait(_POLL_S / 10)  # the poller makes room
            except self._kafka.KafkaException as error:
                failure = client_error(error, name=self._topic)
                self._on_delivery(
                    Delivery(number=number, key=record.key, partition=None, offset=None, error=failure)
                )
                return
            else:
                return

    def close(self, timeout_ms: int | None = None) -> int:
        """Waits for the open reports; the number of records that are still without one."""
        self._stopping.set()
        self._poller.join()
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while (left := int(self._client.flush(_POLL_S))) > 0:  # in slices: Ctrl-C must get through
            if deadline is not None and time.monotonic() > deadline:
                break
        return left

    def _place(self, record: OutgoingRecord) -> int:
        if record.partition is not None:
            return ExplicitPartitioner(record.partition).partition(record.key, 0, self._partitions)
        if self._partitioner is None:
            return _LET_LIBRDKAFKA_CHOOSE
        return self._partitioner.partition(record.key, record.size, self._partitions)

    def _produce(self, record: OutgoingRecord, partition: int, number: int) -> None:
        extra = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
        self._client.produce(
            self._topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers) or None,
            partition=partition,
            on_delivery=lambda error, message: self._report(number, error, message),
            **extra,
        )

    def _poll(self) -> None:
        while not self._stopping.is_set():
            self._client.poll(_POLL_S)

    def _report(self, number: int, error: Any, message: Any) -> None:
        failure = None if error is None else client_error(error, name=self._topic)
        partition, offset = message.partition(), message.offset()
        self._on_delivery(
            Delivery(
                number=number,
                key=message.key(),
                partition=None if partition is None or partition < 0 else partition,
                offset=None if offset is None or offset < 0 else offset,
                error=failure,
            )
        )
