# SPDX-License-Identifier: Apache-2.0
"""A worker on confluent-kafka: charges payments, commits them by hand, sends failures to a dead-letter topic.

    worker = PaymentWorker("127.0.0.1:9092", charge=bank.charge)
    while running:
        worker.step(timeout_s=1)
    worker.close()

A payment is delivered at least once: `charge` gets its id and must do nothing when it has seen it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

Charge = Callable[[str, float], None]
"""Called with the id of a payment and its amount."""
_SETTINGS = {"client.id": "payment-worker", "group.id": "payment-worker", "auto.offset.reset": "earliest"}
_ATTEMPTS = 3
_FLUSH_S = 10.0
_log = logging.getLogger(__name__)


class Unavailable(Exception):
    """Raised by `charge` when it is worth another attempt."""


class PaymentWorker:
    def __init__(
        self,
        bootstrap: str,
        charge: Charge,
        *,
        topic: str = "payments",
        pause_s: float = 1.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        shared = {"bootstrap.servers": bootstrap, **_SETTINGS, **(settings or {})}
        self._consumer = Consumer({**shared, "enable.auto.commit": False})
        self._consumer.subscribe([topic])
        self._letters = Producer({"bootstrap.servers": bootstrap, "client.id": "payment-worker"})
        self._dead_letters = f"{topic}.dead"
        self._charge = charge
        self._pause_s = pause_s

    def step(self, timeout_s: float) -> bool:
        """Handles the next payment; False when none came in time."""
        message = self._consumer.poll(timeout_s)
        if message is None:
            return False
        if (error := message.error()) is not None:
            _log.warning("the consumer goes on after: %s", error)
            return False
        try:
            self._handle(message)
        except (Unavailable, ValueError, KeyError) as failure:
            if not self._bury(message, failure):
                self._consumer.seek(_place(message))  # the next step begins with it again
                return True
        self._commit(message)
        return True

    def close(self) -> None:
        self._consumer.close()

    def _handle(self, message: Message) -> None:
        payment = json.loads(message.value() or b"")
        for left in reversed(range(_ATTEMPTS)):
            try:
                self._charge(payment["id"], payment["amount"])
            except Unavailable:
                if left == 0:
                    raise
                time.sleep(self._pause_s)
            else:
                return

    def _bury(self, message: Message, error: Exception) -> bool:
        """Whether the dead letter is stored; without it the payment must not be committed."""
        failed: list[KafkaError] = []
        where = f"{message.topic()}/{message.partition()}/{message.offset()}"
        self._letters.produce(
            self._dead_letters,
            key=message.key(),
            value=message.value(),
            headers={"error": f"{type(error).__name__}: {error}", "source": where},
            on_delivery=lambda refusal, _: failed.append(refusal) if refusal else None,
        )
        return self._letters.flush(_FLUSH_S) == 0 and not failed

    def _commit(self, message: Message) -> None:
        try:
            self._consumer.commit(message=message, asynchronous=False)
        except KafkaException as error:  # the partition is another worker's now: it gets the payment again
            _log.warning("not committed: %s", error)


def _place(message: Message) -> TopicPartition:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return TopicPartition(topic, partition, offset)
