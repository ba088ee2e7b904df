# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Producer
from price_requests import PriceClient, PriceServer

from headrace.testing import Broker

QUICK = {
    "fetch.error.backoff.ms": 10,
    "fetch.wait.max.ms": 50,
    "heartbeat.interval.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "log_level": 0,
}
PRICES = {"pears": "1.20", "figs": "0.40"}


@contextmanager
def serving(broker: Broker) -> Iterator[list[str]]:
    """A server in a thread; yields the products that it was asked for."""
    asked: list[str] = []
    ended = threading.Event()

    def find_price(product: str) -> str | None:
        asked.append(product)
        return PRICES.get(product)

    def serve() -> None:
        with closing(PriceServer(broker.bootstrap, find_price, settings=QUICK)) as server:
            while not ended.is_set():
                server.step(0.05)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        ended.set()
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture
def broker(kafka: Broker) -> Broker:
    kafka.create_topic("price-requests")
    kafka.create_topic("price-replies")
    return kafka


def client_of(broker: Broker) -> closing[PriceClient]:
    return closing(PriceClient(broker.bootstrap, settings=QUICK))


def wait_for_fetch(broker: Broker) -> None:
    for _ in range(200):
        if broker.requests(api="Fetch", client="price-server"):
            return
        time.sleep(0.05)
    raise AssertionError("the server does not read")


def test_a_request_gets_its_reply(broker: Broker) -> None:
    with serving(broker), client_of(broker) as client:
        assert client.ask("pears", timeout_s=10) == "1.20"
        assert client.ask("figs", timeout_s=10) == "0.40"
        with pytest.raises(ValueError, match="there is no plum"):
            client.ask("plum", timeout_s=10)


def test_without_a_server_the_client_gives_up(broker: Broker) -> None:
    with client_of(broker) as client, pytest.raises(TimeoutError, match="no price of pears after 2 attempts"):
        client.ask("pears", timeout_s=0.1, attempts=2)
    assert len({dict(record.headers)["id"] for record in broker.records("price-requests")}) == 1


def test_a_lost_request_is_sent_again(broker: Broker) -> None:
    with serving(broker), client_of(broker) as client:
        assert client.ask("pears", timeout_s=10) == "1.20"
        broker.fail(api="Produce", client="price-client", error="INVALID_RECORD")
        assert client.ask("figs", timeout_s=0.3, attempts=30) == "0.40"


def test_a_lost_reply_is_written_again(broker: Broker) -> None:
    broker.fail(api="Produce", client="price-server", error="INVALID_RECORD")
    with serving(broker) as asked, client_of(broker) as client:
        assert client.ask("pears", timeout_s=10) == "1.20"
    assert asked == ["pears"]


def test_a_reply_that_comes_too_late_is_dropped(broker: Broker) -> None:
    broker.fail(api="Fetch", client="price-server", delay="1h")
    with serving(broker), client_of(broker) as client:
        wait_for_fetch(broker)
        with pytest.raises(TimeoutError):
            client.ask("pears", timeout_s=0.3, attempts=1)
        broker.advance("1h")
        assert client.ask("figs", timeout_s=10) == "0.40"
    assert [record.value for record in broker.records("price-replies")] == [b"1.20", b"0.40"]


def test_two_replies_to_one_request_are_one_price(broker: Broker) -> None:
    broker.fail(api="Fetch", client="price-client", delay="1h")
    with serving(broker), client_of(broker) as client:
        timer = threading.Timer(0.3, broker.advance, ("1h",))
        timer.start()
        assert client.ask("pears", timeout_s=0.2, attempts=50) == "1.20"
        timer.join(20)
        assert client.ask("figs", timeout_s=10) == "0.40"
    assert len(broker.records("price-replies")) > 2


def test_a_request_that_names_no_reply_topic_is_skipped(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("price-requests", "figs")
    assert producer.flush(10) == 0
    with serving(broker), client_of(broker) as client:
        assert client.ask("pears", timeout_s=10) == "1.20"


def test_a_crash_of_the_broker_is_bridged_by_attempts(broker: Broker) -> None:
    with serving(broker), client_of(broker) as client:
        assert client.ask("pears", timeout_s=10) == "1.20"
        broker.crash()
        broker.restart()
        assert client.ask("figs", timeout_s=0.3, attempts=50) == "0.40"


def test_an_expelled_server_joins_again(broker: Broker) -> None:
    with serving(broker), client_of(broker) as client:
        assert client.ask("pears", timeout_s=10) == "1.20"
        broker.advance("1m", expire="price-server")
        assert client.ask("figs", timeout_s=0.3, attempts=50) == "0.40"
