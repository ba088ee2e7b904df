# SPDX-License-Identifier: Apache-2.0
"""Fixtures for pytest, found by themselves once Headrace is installed.

    def test_orders(kafka):
        kafka.create_topic("orders")
        service = Service(bootstrap=kafka.bootstrap)

`kafka`: a broker of its own for each test. `kafka_bootstrap`: its address. `kafka_cluster`: three nodes.
`kafka_topic`: the name of a new topic on `kafka`. `kafka_options`: the arguments of these brokers. A fault
that no request has met fails the test. No broker is imported until a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.testing.embedded.broker import Broker

_TOPIC = "test-topic"


@pytest.fixture
def kafka_options() -> dict[str, Any]:
    """Arguments of `Broker` for `kafka` and `kafka_cluster`; a test module may define its own."""
    return {}


@pytest.fixture
def kafka(kafka_options: dict[str, Any]) -> Iterator[Broker]:
    """A Kafka broker for this test alone, in this process."""
    from headrace.testing import Broker

    with Broker(**kafka_options) as broker:
        yield broker
        broker.assert_faults_met()


@pytest.fixture
def kafka_bootstrap(kafka: Broker) -> str:
    """The address of the broker `kafka`, for `bootstrap.servers`."""
    return kafka.bootstrap


@pytest.fixture
def kafka_cluster(kafka_options: dict[str, Any]) -> Iterator[Broker]:
    """A cluster of three nodes for this test alone, in this process."""
    from headrace.testing import Broker

    with Broker(**{"nodes": 3, **kafka_options}) as broker:
        yield broker
        broker.assert_faults_met()


@pytest.fixture
def kafka_topic(kafka: Broker) -> str:
    """The name of a topic with one partition on the broker `kafka`."""
    kafka.create_topic(_TOPIC)
    return _TOPIC
