# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any

from order_service import Order, OrderService

from headrace.testing import Broker

QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "log_level": 0,
}
ORDERS = [Order("o-1", "ann", 12.5), Order("o-2", "bob", 3.0), Order("o-3", "ann", 7.0)]


def service_of(broker: Broker, **settings: Any) -> OrderService:
    broker.create_topic("orders")
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return OrderService(broker.bootstrap, settings=QUICK | named)


def stored(broker: Broker) -> list[str]:
    return [json.loads(record.value or b"")["id"] for record in broker.records("orders")]


def place_all(service: OrderService) -> None:
    for order in ORDERS:
        service.place(order)


def test_orders_are_stored_under_their_customer(kafka: Broker) -> None:
    service = service_of(kafka)
    place_all(service)
    assert service.confirm(10)
    assert stored(kafka) == ["o-1", "o-2", "o-3"]
    assert [record.key for record in kafka.records("orders")] == [b"ann", b"bob", b"ann"]


def test_errors_that_pass_are_retried(kafka: Broker) -> None:
    service = service_of(kafka)
    for error in ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "UNKNOWN_PRODUCER_ID"):
        kafka.fail(api="Produce", client="order-service", error=error)
    place_all(service)
    assert service.confirm(10)
    assert stored(kafka) == ["o-1", "o-2", "o-3"]


def test_a_lost_connection_neither_loses_nor_duplicates_an_order(kafka: Broker) -> None:
    service = service_of(kafka)
    kafka.fail(api="Produce", client="order-service", disconnect="before")
    kafka.fail(api="Produce", client="order-service", disconnect="after")
    place_all(service)
    assert service.confirm(10)
    assert stored(kafka) == ["o-1", "o-2", "o-3"]


def test_a_refused_order_is_reported_and_the_next_one_stored(kafka: Broker) -> None:
    service = service_of(kafka)
    kafka.fail(api="Produce", client="order-service", error="MESSAGE_TOO_LARGE")
    service.place(ORDERS[0])
    assert service.confirm(10)
    assert list(service.refused) == ["o-1"]
    service.place(ORDERS[1])
    assert service.confirm(10)
    assert stored(kafka) == ["o-2"]


def test_a_full_queue_is_waited_for(kafka: Broker) -> None:
    service = service_of(kafka, queue_buffering_max_messages=1)
    place_all(service)
    assert service.confirm(10)
    assert stored(kafka) == ["o-1", "o-2", "o-3"]


def test_orders_whose_time_ran_out_are_sent_again(kafka: Broker) -> None:
    service = service_of(kafka, delivery_timeout_ms=200, linger_ms=0)
    kafka.crash()
    place_all(service)
    assert not service.confirm(0.5)
    kafka.restart()
    assert service.confirm(30)
    assert set(stored(kafka)) == {"o-1", "o-2", "o-3"}


def test_a_fatal_error_replaces_the_producer(kafka: Broker) -> None:
    service = service_of(kafka)
    service.place(ORDERS[0])
    assert service.confirm(10)
    kafka.fail(api="Produce", client="order-service", error="OUT_OF_ORDER_SEQUENCE_NUMBER")
    service.place(ORDERS[1])
    service.place(ORDERS[2])
    assert service.confirm(10)
    assert stored(kafka) == ["o-1", "o-2", "o-3"]
    assert len(kafka.requests(api="InitProducerId", client="order-service")) == 2


def test_confirmed_orders_survive_a_power_cut(kafka: Broker) -> None:
    service = service_of(kafka)
    place_all(service)
    assert service.confirm(10)
    kafka.crash(power_cut=True)
    kafka.restart()
    assert stored(kafka) == ["o-1", "o-2", "o-3"]


def test_orders_that_a_crash_interrupts_are_sent_to_the_restarted_broker(kafka: Broker) -> None:
    service = service_of(kafka)
    service.place(ORDERS[0])
    assert service.confirm(10)
    kafka.fail(api="Produce", client="order-service", drop=True)
    service.place(ORDERS[1])
    assert not service.confirm(0.1)
    kafka.crash()
    kafka.restart()
    assert service.confirm(10)
    assert stored(kafka) == ["o-1", "o-2"]


def test_a_crashed_leader_is_left_for_another_node(kafka_cluster: Broker) -> None:
    service = service_of(kafka_cluster)
    service.place(ORDERS[0])
    assert service.confirm(10)
    kafka_cluster.move_leader("orders", to=2)
    service.place(ORDERS[1])
    assert service.confirm(10)
    kafka_cluster.crash(2)
    service.place(ORDERS[2])
    assert service.confirm(10)
    assert stored(kafka_cluster) == ["o-1", "o-2", "o-3"]
