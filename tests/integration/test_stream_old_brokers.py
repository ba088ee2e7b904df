# SPDX-License-Identifier: Apache-2.0
"""Streams speak the older versions of every request that a group needs, as with brokers of years ago."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.wire.api_table import APIS
from tests.harness.groups.polled_consumers import QUICK_GROUPS
from tests.harness.groups.stream_members import QUICK, StreamGroup

KAFKA_1_0 = {
    "fetch": 6,
    "list_offsets": 2,
    "metadata": 5,
    "offset_commit": 3,
    "offset_fetch": 3,
    "find_coordinator": 1,
    "join_group": 2,
    "heartbeat": 1,
    "leave_group": 1,
    "sync_group": 1,
}
KAFKA_2_6 = {
    "fetch": 11,
    "list_offsets": 5,
    "metadata": 9,
    "offset_commit": 8,
    "offset_fetch": 7,
    "find_coordinator": 3,
    "join_group": 7,
    "heartbeat": 4,
    "leave_group": 4,
    "sync_group": 5,
}
OFFERED = [pytest.param(KAFKA_1_0, id="1.0"), pytest.param(KAFKA_2_6, id="2.6")]
"""The highest versions that these releases of Apache Kafka serve."""
CONSUMER_GROUP_HEARTBEAT = 68


def pretend(monkeypatch: pytest.MonkeyPatch, offered: dict[str, int]) -> None:
    learn = Connection.learn_versions

    async def learn_less(connection: Any, *arguments: Any, **options: Any) -> None:
        await learn(connection, *arguments, **options)
        connection.versions = {
            key: (low, min(high, offered.get(APIS[key].name, high)))
            for key, (low, high) in connection.versions.items()
            if key in APIS and key != CONSUMER_GROUP_HEARTBEAT
        }

    monkeypatch.setattr(Connection, "learn_versions", learn_less)


@pytest.mark.parametrize("offered", OFFERED)
def test_a_group_shares_commits_and_goes_on(
    start_node: Any, monkeypatch: pytest.MonkeyPatch, offered: dict[str, int]
) -> None:
    bootstrap = start_node(QUICK_GROUPS).bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(20)
    rows = pa.table({"value": [b"a", b"b"], "partition": [0, 1]})
    headrace.write(rows, "t", bootstrap=bootstrap, partition="partition")
    pretend(monkeypatch, offered)
    with StreamGroup(bootstrap, "g", "t") as group:
        group.join("one")
        group.until_shared(2)
        group.until_read([b"a", b"b"])
        group.join("two")
        group.until_shared(1, 1)
        begun = time.monotonic()
        group.leave("one")
        group.until_shared(2)
        assert time.monotonic() - begun < 2, "it left, and did not just time out"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    found = consumer.committed([TopicPartition("t", 0), TopicPartition("t", 1)], 20)
    consumer.close()
    assert [each.offset for each in found] == [1, 1]
    headrace.write(rows, "t", bootstrap=bootstrap, partition="partition")
    with headrace.stream("t", bootstrap=bootstrap, group="g", columns=["offset"], **QUICK) as stream:
        offsets: list[int] = []
        while len(offsets) < 2:
            offsets += next(stream)["offset"].to_pylist()
    assert offsets == [1, 1]


def test_a_broker_without_the_new_protocol_is_named(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    pretend(monkeypatch, KAFKA_2_6)
    with pytest.raises(ClientError, match='does not have the KIP-848 protocol; use protocol="classic"'):
        headrace.stream(topic, bootstrap=bootstrap, group="g", protocol="consumer")
