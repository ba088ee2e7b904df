# SPDX-License-Identifier: Apache-2.0
"""confluent-kafka's AdminClient on groups: list, describe, delete, read and alter their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove

from tests.harness.groups.polled_consumers import PolledGroup

TIMEOUT_S = 20
TYPES = {"classic": ConsumerGroupType.CLASSIC, "consumer": ConsumerGroupType.CONSUMER}
with_both_protocols = pytest.mark.parametrize("protocol", list(TYPES))
StartGroup = Callable[[str], PolledGroup]


@pytest.fixture
def admin(group_bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": group_bootstrap})


@pytest.fixture
def start_group(group_bootstrap: str, admin: AdminClient, topic: str) -> Iterator[StartGroup]:
    """Two members over four partitions; topic and group have one name."""
    crowds: list[PolledGroup] = []

    def start(protocol: str) -> PolledGroup:
        admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(TIMEOUT_S)
        settings: dict[str, Any] = {"group_protocol": protocol}
        if protocol == "classic":
            settings |= {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
        polled_group = PolledGroup(group_bootstrap, topic, **settings)
        crowds.append(polled_group)
        polled_group.join("one", [topic], group_instance_id="instance-1")
        polled_group.join("two", [topic])
        polled_group.wait_until_stable(*((topic, partition) for partition in range(4)))
        return polled_group

    yield start
    for polled_group in crowds:
        polled_group.__exit__()


def commit(bootstrap: str, group: str, topic: str, offset: int, metadata: str = "") -> None:
    """As a simple consumer, without being a member."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    partition = TopicPartition(topic, 0, offset, metadata=metadata)
    consumer.commit(offsets=[partition], asynchronous=False)
    consumer.close()


def offsets_of(admin: AdminClient, group: str, *keys: TopicPartition) -> list[TopicPartition]:
    asked = ConsumerGroupTopicPartitions(group, list(keys) or None)
    return admin.list_consumer_group_offsets([asked])[group].result(TIMEOUT_S).topic_partitions


def refusal(call: Callable[[], Any]) -> int:
    with pytest.raises(KafkaException) as raised:
        call()
    return int(raised.value.args[0].code())


@with_both_protocols
def test_groups_are_listed_by_state_and_type(
    admin: AdminClient, start_group: StartGroup, topic: str, protocol: str
) -> None:
    def listed(**filters: Any) -> dict[str, Any]:
        result = admin.list_consumer_groups(request_timeout=TIMEOUT_S, **filters).result(TIMEOUT_S)
        assert not result.errors
        return {group.group_id: group for group in result.valid}

    polled_group = start_group(protocol)
    found = listed()[topic]
    assert (found.state, found.type) == (ConsumerGroupState.STABLE, TYPES[protocol])
    assert not found.is_simple_consumer_group
    assert topic in listed(states={ConsumerGroupState.STABLE})
    assert topic not in listed(states={ConsumerGroupState.EMPTY})
    for name, kind in TYPES.items():
        assert (topic in listed(types={kind})) is (name == protocol)
    polled_group.leave("two")
    assert listed()[topic].state is not ConsumerGroupState.EMPTY, "one is still there"


@with_both_protocols
def test_a_group_is_described_with_its_members_and_what_they_have(
    admin: AdminClient, start_group: StartGroup, topic: str, protocol: str
) -> None:
    polled_group = start_group(protocol)
    described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert described.state is ConsumerGroupState.STABLE
    assert described.type is TYPES[protocol]
    assert described.partition_assignor == ("range" if protocol == "classic" else "uniform")
    assert described.coordinator.port == _bootstrap_port(admin)
    members = {member.client_id: member for member in described.members}
    assert {
        name: {(each.topic, each.partition) for each in member.assignment.topic_partitions}
        for name, member in members.items()
    } == polled_group.owned()
    assert members["one"].group_instance_id == "instance-1"
    assert not members["two"].group_instance_id
    assert "127.0.0.1" in members["two"].host
    assert members["one"].member_id != members["two"].member_id


def _bootstrap_port(admin: AdminClient) -> int:
    (broker,) = admin.list_topics(timeout=TIMEOUT_S).brokers.values()
    return broker.port


def test_an_unknown_group_is_dead(admin: AdminClient) -> None:
    described = admin.describe_consumer_groups(["nobody"])["nobody"].result(TIMEOUT_S)
    assert described.state is ConsumerGroupState.DEAD


@with_both_protocols
def test_a_group_is_deleted_once_it_is_empty(
    admin: AdminClient, start_group: StartGroup, group_bootstrap: str, topic: str, protocol: str
) -> None:
    def delete() -> None:
        admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)

    polled_group = start_group(protocol)
    polled_group.members["two"].consumer.commit(
        offsets=[TopicPartition(topic, polled_group.members["two"].partitions[0], 0)], asynchronous=False
    )
    assert refusal(delete) == KafkaError.NON_EMPTY_GROUP
    polled_group.leave("two")
    remove_static(group_bootstrap, topic, "instance-1")
    polled_group.leave("one")
    delete()
    assert refusal(delete) == KafkaError.GROUP_ID_NOT_FOUND
    assert not [each for each in offsets_of(admin, topic) if each.offset >= 0]


def remove_static(bootstrap: str, group: str, instance: str) -> None:
    """librdkafka's admin cannot; a static member stays in its group when it is closed."""
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    client.remove_group_members(group, [MemberToRemove(group_instance_id=instance)])
    client.close()


def test_offsets_of_an_empty_group_are_listed_and_altered(
    admin: AdminClient, group_bootstrap: str, topic: str
) -> None:
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(TIMEOUT_S)
    commit(group_bootstrap, topic, topic, 5, "five")
    assert [(each.offset, each.metadata) for each in offsets_of(admin, topic)] == [(5, "five")]
    asked = offsets_of(admin, topic, TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert [each.offset for each in asked] == [5, -1001], "nothing is committed for partition 1"
    wanted = [TopicPartition(topic, 0, 2), TopicPartition(topic, 1, 8)]
    altered = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(topic, wanted)])
    assert [each.error for each in altered[topic].result(TIMEOUT_S).topic_partitions] == [None, None]
    assert [each.offset for each in offsets_of(admin, topic)] == [2, 8]


@with_both_protocols
def test_offsets_of_a_group_with_members_are_not_altered(
    admin: AdminClient, start_group: StartGroup, topic: str, protocol: str
) -> None:
    start_group(protocol)
    wanted = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 2)])
    answer = admin.alter_consumer_group_offsets([wanted])[topic]
    (partition,) = answer.result(TIMEOUT_S).topic_partitions
    assert partition.error is not None
    assert partition.error.code() == KafkaError.UNKNOWN_MEMBER_ID
