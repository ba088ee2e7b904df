# SPDX-License-Identifier: Apache-2.0
"""Writes records whose handling failed to the dead-letter topic, with the error in headers.

A record counts as finished only when the broker has acknowledged its dead letter.
"""

from __future__ import annotations

import threading
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.kafka_errors import client_error
from headrace.client.parallel.record import Record, error_text
from headrace.client.settings import client_settings
from headrace.client.tools.admin import Admin

PREFIX = "headrace."
_ERROR_TEXT_LIMIT = 2_000
_POLL_S = 0.05

Header = tuple[str, bytes | None]


def dead_letter_headers(record: Record, error: BaseException, group: str) -> list[Header]:
    """The record's headers, then those of the failure; headers of an earlier failure are replaced."""
    own: list[Header] = [(name, value) for name, value in record.headers if not name.startswith(PREFIX)]
    failure = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": "" if record.timestamp_ms is None else record.timestamp_ms,
        "group": group,
        "attempts": record.attempt,
        "error": error_text(error)[:_ERROR_TEXT_LIMIT],
    }
    return own + [(PREFIX + name, str(value).encode(errors="replace")) for name, value in failure.items()]


class DeadLetters:
    """Creates the topic if it does not exist. `send` may be called from any thread."""

    def __init__(self, bootstrap: str | Cluster, topic: str, group: str) -> None:
        admin = Admin(bootstrap)
        if not admin.topic_exists(topic):
            try:
                admin.create_topic(topic)
            except ClientError as error:
                if error.code != "TOPIC_ALREADY_EXISTS":  # made meanwhile by another member
                    raise
        import confluent_kafka

        self.topic = topic
        self._group = group
        self._exception: type[Exception] = confluent_kafka.KafkaException
        self._producer: Any = confluent_kafka.Producer(
            client_settings(bootstrap)
            | {
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "message.max.bytes": 1_000_000_000,  # the topic's own limit decides
                "linger.ms": 0,
                "delivery.timeout.ms": 30_000,
            }
        )

    def send(self, record: Record, error: BaseException) -> None:
        """Returns when the broker has acknowledged it; ClientError otherwise."""
        reported = threading.Event()
        failures: list[Any] = []

        def report(failure: Any, _: Any) -> None:
            if failure is not None:
                failures.append(failure)
            reported.set()

        try:
            self._producer.produce(
                self.topic,
                value=record.value,
                key=record.key,
                headers=dead_letter_headers(record, error, self._group),
                on_delivery=report,
            )
        except (self._exception, BufferError) as refused:
            raise self._failed(record, refused) from refused
        while not reported.is_set():
            self._producer.poll(_POLL_S)
        if failures:
            raise self._failed(record, failures[0])

    def close(self) -> None:
        self._producer.flush(_POLL_S)

    def _failed(self, record: Record, failure: Any) -> ClientError:
        reason = (
            ClientError("too many wait already")
            if isinstance(failure, BufferError)
            else client_error(failure, name=self.topic)
        )
        return ClientError(
            f"the dead letter of {record} could not be written: {reason.what}",
            next_step=reason.next_step,
            code=reason.code,
        )
