# SPDX-License-Identifier: Apache-2.0
"""The protocol in which `headrace consume --group` joins."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from headrace.cli.records.group_protocol import choose_protocol, serves_kip848
from headrace.testing import Broker
from headrace.wire.api_key import ApiKey
from tests.harness.waiting import wait_until

SERVED = {int(ApiKey.CONSUMER_GROUP_HEARTBEAT): (0, 1)}


@pytest.mark.parametrize(
    ("versions", "features", "served"),
    [
        (SERVED, {}, True),
        (SERVED, {"transaction.version": 2}, True),
        (SERVED, {"metadata.version": 25, "group.version": 1}, True),
        (SERVED, {"metadata.version": 21}, False),
        (SERVED, {"metadata.version": 25, "group.version": 0}, False),
        ({}, {}, False),
    ],
)
def test_a_broker_serves_it_by_its_versions_and_its_feature(
    versions: dict[int, Any], features: dict[str, int], served: bool
) -> None:
    connection: Any = SimpleNamespace(versions=versions, features=features)
    assert serves_kip848(connection) is served


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t")
        yield broker


def test_a_new_group_uses_kip_848(broker: Broker) -> None:
    assert choose_protocol(broker.bootstrap, "g", None) == "consumer"
    assert choose_protocol(broker.bootstrap, "g", "consumer") == "consumer"
    assert choose_protocol(broker.bootstrap, "g", "classic") == "cooperative"
    assert choose_protocol(broker.bootstrap, "g", "eager") == "eager"


@pytest.mark.parametrize(
    ("assignor", "protocol"), [("range", "eager"), ("cooperative-sticky", "cooperative")]
)
def test_a_group_with_classic_members_is_joined_as_one_of_them(
    broker: Broker, assignor: str, protocol: str
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g"}
    member: Any = confluent_kafka.Consumer({**settings, "partition.assignment.strategy": assignor})
    try:
        member.subscribe(["t"])
        wait_until(lambda: member.poll(0.05) is None and member.assignment(), "an assignment", timeout_s=10)
        assert choose_protocol(broker.bootstrap, "g", None) == protocol
        assert choose_protocol(broker.bootstrap, "g", "classic") == protocol
    finally:
        member.close()
