# SPDX-License-Identifier: Apache-2.0
"""An order service on confluent-kafka: every order goes to a topic and is kept until the broker confirms it.

    service = OrderService("127.0.0.1:9092")
    service.place(Order("o-1", "ann", 12.5))
    if not service.confirm(timeout_s=10): ...

librdkafka repeats requests; this code sends orders again whose time ran out, waits for a full queue and
replaces a producer that has met a fatal error. What the broker refuses is in `refused`.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

_SETTINGS = {"client.id": "order-service", "enable.idempotence": True, "delivery.timeout.ms": 30_000}
_NOT_STORED_YET = {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._FATAL,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
_POLL_S = 0.05


@dataclass(frozen=True)
class Order:
    id: str
    customer: str
    amount: float


class OrderService:
    """Consumers skip an id they know: an order whose time ran out may have been stored after all."""

    def __init__(
        self, bootstrap: str, *, topic: str = "orders", settings: Mapping[str, Any] | None = None
    ) -> None:
        self._settings = {"bootstrap.servers": bootstrap, **_SETTINGS, **(settings or {})}
        self._topic = topic
        self._producer = Producer(self._settings)
        self._unconfirmed: dict[str, Order] = {}
        self._to_send: deque[Order] = deque()
        self.refused: dict[str, str] = {}

    def place(self, order: Order) -> None:
        """Returns at once; `confirm` says whether it is stored."""
        self._unconfirmed[order.id] = order
        self._to_send.append(order)
        self._send()

    def confirm(self, timeout_s: float) -> bool:
        """Waits; whether the broker has confirmed or refused every order."""
        deadline = time.monotonic() + timeout_s
        while self._unconfirmed and time.monotonic() < deadline:
            try:
                self._producer.poll(_POLL_S)
            except KafkaException as error:
                if not error.args[0].fatal():
                    raise
                self._producer = Producer(self._settings)
                self._to_send = deque(self._unconfirmed.values())
            self._send()
        return not self._unconfirmed

    def _send(self) -> None:
        for _ in range(len(self._to_send)):
            order = self._to_send.popleft()
            try:
                self._producer.produce(
                    self._topic,
                    key=order.customer,
                    value=json.dumps(asdict(order)),
                    on_delivery=partial(self._delivered, order),
                )
            except BufferError:  # the local queue is full; polling makes room
                self._to_send.appendleft(order)
                return
            except KafkaException as error:
                self._delivered(order, error.args[0], None)

    def _delivered(self, order: Order, error: KafkaError | None, _: Message | None) -> None:
        if error is not None and error.code() in _NOT_STORED_YET:
            self._to_send.append(order)
            return
        self._unconfirmed.pop(order.id, None)
        if error is not None:
            self.refused[order.id] = error.str()
