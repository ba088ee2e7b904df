# SPDX-License-Identifier: Apache-2.0
"""Classic and KIP-848 consumers in one group: an application changes protocol member by member, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupType, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.groups.polled_consumers import PolledGroup

TIMEOUT_S = 20
PARTITIONS = 4
CLASSIC = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
MODERN = {"group_protocol": "consumer"}


@pytest.fixture
def polled_group(group_bootstrap: str, topic: str) -> Iterator[PolledGroup]:
    admin = AdminClient({"bootstrap.servers": group_bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    with PolledGroup(group_bootstrap, topic, enable_auto_commit=True) as polled_group:
        yield polled_group


class Application:
    """Members of one group over one topic of the same name, and what it was sent."""

    def __init__(self, polled_group: PolledGroup, bootstrap: str, topic: str) -> None:
        self._polled_group, self._topic = polled_group, topic
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self.sent: list[bytes] = []
        self.received: set[bytes] = set()

    def join(self, name: str, settings: dict[str, Any]) -> None:
        self._polled_group.join(name, [self._topic], **settings)
        self._work()

    def leave(self, name: str) -> None:
        left = self._polled_group.leave(name)
        self.received |= {message.value() or b"" for message in left.records}
        self._work()

    def kind(self) -> ConsumerGroupType:
        described = self._admin.describe_consumer_groups([self._topic])[self._topic].result(TIMEOUT_S)
        return described.type

    def _work(self) -> None:
        """Everybody has a fair share, and what is sent now arrives."""
        self._polled_group.wait_until_stable(*((self._topic, partition) for partition in range(PARTITIONS)))
        for _ in range(20):
            self.sent.append(b"%d" % len(self.sent))
            self._producer.produce(self._topic, self.sent[-1], key=self.sent[-1])
        assert self._producer.flush(TIMEOUT_S) == 0
        self._polled_group.until(
            lambda: self.received | set(self._polled_group.values()) == set(self.sent), "all records"
        )


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_a_group_changes_protocol_member_by_member_and_back(
    polled_group: PolledGroup, group_bootstrap: str, topic: str, assignor: str
) -> None:
    """As many members as before at each step; no partition is ever read by two, no record is left out."""
    classic = {**CLASSIC, "partition_assignment_strategy": assignor}
    application = Application(polled_group, group_bootstrap, topic)
    application.join("classic-1", classic)
    application.join("classic-2", classic)
    assert application.kind() is ConsumerGroupType.CLASSIC
    application.join("modern-1", MODERN)
    assert application.kind() is ConsumerGroupType.CONSUMER
    application.leave("classic-1")
    application.join("modern-2", MODERN)
    application.leave("classic-2")
    assert application.kind() is ConsumerGroupType.CONSUMER

    application.join("classic-3", classic)
    application.leave("modern-1")
    application.leave("modern-2")
    assert application.kind() is ConsumerGroupType.CLASSIC


def test_a_group_whose_assignor_keeps_notes_of_its_own_is_not_upgraded(
    polled_group: PolledGroup, group_bootstrap: str, topic: str
) -> None:
    """librdkafka's sticky assignor does after a second rebalance; Apache Kafka refuses with the same code."""
    sticky = {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"}
    application = Application(polled_group, group_bootstrap, topic)
    application.join("classic-1", sticky)
    application.join("classic-2", sticky)
    with pytest.raises(KafkaException, match="group id does not exist"):
        application.join("modern", MODERN)
    application.leave("modern")
    assert application.kind() is ConsumerGroupType.CLASSIC
