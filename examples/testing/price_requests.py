# SPDX-License-Identifier: Apache-2.0
"""Request and reply over topics, on confluent-kafka: correlation ids, timeouts, repeated requests.

    client = PriceClient("127.0.0.1:9092")
    price = client.ask("pears")          # raises TimeoutError

    server = PriceServer("127.0.0.1:9092", {"pears": "1.20"}.get)
    while running:
        server.step(timeout_s=1)

A request that gets no reply is sent again with the same id. The server may answer it twice; the client takes
the first reply and drops those that come too late.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

FindPrice = Callable[[str], str | None]
_POLL_S = 0.05


class PriceClient:
    """Reads replies from the end of partition 0 of its reply topic, which no other client uses."""

    def __init__(
        self, bootstrap: str, *, replies: str = "price-replies", settings: Mapping[str, Any] | None = None
    ) -> None:
        shared = {"bootstrap.servers": bootstrap, "client.id": "price-client", **(settings or {})}
        self._replies = replies
        self._producer = Producer(shared)
        self._consumer = Consumer({**shared, "group.id": replies, "enable.auto.commit": False})
        place = TopicPartition(replies, 0)
        _, place.offset = self._consumer.get_watermark_offsets(place, timeout=10)
        self._consumer.assign([place])  # an offset, not "the end": no reply falls between

    def ask(self, product: str, *, timeout_s: float = 2.0, attempts: int = 3) -> str:
        """The price, or ValueError as the server says. Raises TimeoutError when no attempt got a reply."""
        wanted = uuid.uuid4().bytes
        for _ in range(attempts):
            headers: list[tuple[str, str | bytes | None]] = [("id", wanted), ("reply-to", self._replies)]
            self._producer.produce("price-requests", product, headers=headers)
            if (reply := self._wait_for(wanted, time.monotonic() + timeout_s)) is not None:
                if (error := _header(reply, "error")) is not None:
                    raise ValueError(error.decode())
                return (reply.value() or b"").decode()
        raise TimeoutError(f"no price of {product} after {attempts} attempts of {timeout_s} s")

    def close(self) -> None:
        self._consumer.close()

    def _wait_for(self, wanted: bytes, deadline: float) -> Message | None:
        while time.monotonic() < deadline:
            self._producer.poll(0)
            reply = self._consumer.poll(_POLL_S)
            if reply is not None and reply.error() is None and _header(reply, "id") == wanted:
                return reply
        return None


class PriceServer:
    """A group of servers shares the requests."""

    def __init__(
        self, bootstrap: str, find_price: FindPrice, *, settings: Mapping[str, Any] | None = None
    ) -> None:
        shared = {"bootstrap.servers": bootstrap, "client.id": "price-server", **(settings or {})}
        reading = {"group.id": "price-server", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._find_price = find_price
        self._producer = Producer(shared)
        self._consumer = Consumer({**shared, **reading})
        self._consumer.subscribe(["price-requests"])

    def step(self, timeout_s: float) -> bool:
        """Answers the next request; False when none came in time."""
        request = self._consumer.poll(timeout_s)
        if request is None or request.error() is not None:
            return False
        reply_to = _header(request, "reply-to")
        if reply_to is not None:
            self._reply(reply_to.decode(), request)
        self._consumer.commit(message=request, asynchronous=True)
        return True

    def close(self) -> None:
        self._consumer.close()

    def _reply(self, topic: str, request: Message) -> None:
        product = (request.value() or b"").decode(errors="replace")
        price = self._find_price(product)
        headers: list[tuple[str, str | bytes | None]] = [("id", _header(request, "id"))]
        if price is None:
            headers.append(("error", f"there is no {product}"))
        for _ in range(2):  # a reply that is lost all the same is asked for again
            failed: list[KafkaError] = []
            self._producer.produce(topic, price, headers=headers, on_delivery=partial(_note, failed))
            if self._producer.flush(10) == 0 and not failed:
                return


def _note(failed: list[KafkaError], error: KafkaError | None, _: Message) -> None:
    if error is not None:
        failed.append(error)


def _header(message: Message, name: str) -> bytes | None:
    found = dict(message.headers() or ()).get(name)
    return found.encode() if isinstance(found, str) else found
