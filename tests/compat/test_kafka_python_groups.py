# SPDX-License-Identifier: Apache-2.0
"""kafka-python, unmodified: members of groups with their listeners, commits, static members, group admin."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import MemberToRemove, NewTopic, OffsetSpec
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import FencedInstanceIdError, NoError, UnknownMemberIdError
from kafka.structs import OffsetAndMetadata

from tests.harness.groups.polled_consumers import QUICK_GROUPS
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import wait_until

TIMEOUT_S = 20
MakeTopic = Callable[..., str]
MakeConsumer = Callable[..., KafkaConsumer]


class Member(ConsumerRebalanceListener):
    """A consumer polled by a thread of its own, as applications do; writes down what its listener hears."""

    def __init__(self, consumer: KafkaConsumer, **subscription: Any) -> None:
        self.rebalances: list[tuple[str, list[int]]] = []
        self.owned: set[TopicPartition] = set()
        self.failure: Exception | None = None
        self.consumer = consumer
        self._ending = threading.Event()
        consumer.subscribe(listener=self, **subscription)
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self) -> None:
        try:
            while not self._ending.is_set():
                self.consumer.poll(200)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.failure = error

    def stop_polling(self) -> None:
        self._ending.set()
        self._thread.join()

    def leave(self) -> None:
        self.stop_polling()
        self.consumer.close()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.owned -= set(revoked)
        self._record("revoked", revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.owned |= set(assigned)
        self._record("assigned", assigned)

    def on_partitions_lost(self, lost: Any) -> None:
        self.owned -= set(lost)
        self._record("lost", lost)

    def _record(self, kind: str, partitions: Any) -> None:
        if partitions:
            self.rebalances.append((kind, sorted(each.partition for each in partitions)))

    def kinds(self) -> list[tuple[str, int]]:
        return [(kind, len(partitions)) for kind, partitions in self.rebalances]


Join = Callable[..., Member]


@pytest.fixture(scope="module")
def group_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """kafka-python may get stuck when it leads a group before it knows the partitions: so it has a second."""
    given = os.environ.get("HEADRACE_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    settings = {**QUICK_GROUPS, "group.initial.rebalance.delay.ms": "1000"}
    with NodeProcess(tmp_path_factory.mktemp("kafka-python"), settings=settings) as node:
        yield node.bootstrap


@pytest.fixture
def admin(group_bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=group_bootstrap)
    yield client
    client.close()


@pytest.fixture
def make_topic(admin: KafkaAdminClient, topic: str) -> MakeTopic:
    def make(partitions: int = 1, *, suffix: str = "") -> str:
        admin.create_topics([NewTopic(topic + suffix, partitions, 1)])
        return topic + suffix

    return make


@pytest.fixture
def make_consumer(group_bootstrap: str, topic: str) -> Iterator[MakeConsumer]:
    consumers: list[KafkaConsumer] = []

    def make(**options: Any) -> KafkaConsumer:
        settings = {
            "group_id": f"group {topic}",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 6000,
        }
        consumers.append(KafkaConsumer(bootstrap_servers=group_bootstrap, **{**settings, **options}))
        return consumers[-1]

    yield make
    for consumer in consumers:
        consumer.close()


@pytest.fixture
def join(make_consumer: MakeConsumer) -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def start(*topics: str, pattern: str | None = None, **options: Any) -> Member:
        subscription = {"pattern": pattern} if pattern else {"topics": topics}
        members.append(Member(make_consumer(**options), **subscription))
        return members[-1]

    yield start
    for member in members:
        member.leave()


def wait_for(holds: Callable[[], bool], *members: Member) -> None:
    wait_until(
        holds, lambda: [(member.rebalances, member.failure) for member in members], timeout_s=TIMEOUT_S
    )


def wait_for_sizes(sizes: dict[Member, int]) -> None:
    wait_for(lambda: all(len(member.owned) == size for member, size in sizes.items()), *sizes)


def read(consumer: KafkaConsumer, count: int) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(records) < count and time.monotonic() < deadline:
        for batch in consumer.poll(500).values():
            records += batch
    assert len(records) == count
    return records


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(count):
        producer.send(topic, str(number).encode())
    producer.flush(TIMEOUT_S)
    producer.close()


# -- members -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor])
def test_eager_listeners_get_all_partitions(make_topic: MakeTopic, join: Join, assignor: type) -> None:
    topic = make_topic(4)
    one = join(topic, partition_assignment_strategy=[assignor])
    wait_for_sizes({one: 4})
    two = join(topic, partition_assignment_strategy=[assignor])
    wait_for_sizes({one: 2, two: 2})
    two.leave()
    wait_for_sizes({one: 4})
    assert one.kinds() == [
        ("assigned", 4),
        ("revoked", 4),
        ("assigned", 2),
        ("revoked", 2),
        ("assigned", 4),
    ]
    assert two.kinds() == [("assigned", 2), ("revoked", 2)]


def test_cooperative_listeners_get_only_moved_partitions(make_topic: MakeTopic, join: Join) -> None:
    topic = make_topic(4)
    one = join(topic, partition_assignment_strategy=[CooperativeStickyAssignor])
    wait_for_sizes({one: 4})
    two = join(topic, partition_assignment_strategy=[CooperativeStickyAssignor])
    wait_for_sizes({one: 2, two: 2})
    assert one.kinds() == [("assigned", 4), ("revoked", 2)]
    assert two.kinds() == [("assigned", 2)]
    assert one.rebalances[1][1] == two.rebalances[0][1]


def test_a_removed_member_gets_the_lost_callback(
    admin: KafkaAdminClient, make_topic: MakeTopic, join: Join
) -> None:
    topic = make_topic(2)
    one = join(topic)
    wait_for_sizes({one: 2})
    group = f"group {topic}"
    (member,) = admin.describe_groups([group])[group]["members"]
    removed = admin.remove_group_members(group, [MemberToRemove(member_id=member["member_id"])])
    assert list(removed.values()) == [NoError]
    wait_for(lambda: len(one.rebalances) == 3, one)
    assert one.kinds() == [("assigned", 2), ("lost", 2), ("assigned", 2)]


def test_a_pattern_finds_the_topics_that_match(make_topic: MakeTopic, join: Join, topic: str) -> None:
    make_topic(2, suffix="-eu")
    make_topic(2, suffix="-other")
    make_topic(1, suffix="-us")
    one = join(pattern=f"^{topic}-(eu|us)$")
    wait_for_sizes({one: 3})
    assert {each.topic for each in one.owned} == {f"{topic}-eu", f"{topic}-us"}


def test_commits_wait_or_call_back_and_carry_metadata(
    group_bootstrap: str, make_topic: MakeTopic, make_consumer: MakeConsumer
) -> None:
    topic = make_topic()
    produce(group_bootstrap, topic, 10)
    partition, called = TopicPartition(topic, 0), []
    consumer = make_consumer()
    consumer.subscribe([topic])
    read(consumer, 10)
    assert consumer.committed(partition) is None
    consumer.commit()
    assert consumer.committed(partition) == 10
    offsets = {partition: OffsetAndMetadata(4, "by hand", -1)}
    consumer.commit_async(offsets, callback=lambda given, result: called.append(given))
    deadline = time.monotonic() + TIMEOUT_S
    while not called and time.monotonic() < deadline:
        consumer.poll(100)
    assert called == [offsets]
    committed = consumer.committed(partition, metadata=True)
    assert (committed.offset, committed.metadata) == (4, "by hand")
    consumer.close()
    successor = make_consumer()
    successor.subscribe([topic])
    assert [record.offset for record in read(successor, 6)] == [4, 5, 6, 7, 8, 9]


def test_a_simple_consumer_commits_without_being_a_member(
    make_topic: MakeTopic, make_consumer: MakeConsumer
) -> None:
    partition = TopicPartition(make_topic(), 0)
    consumer = make_consumer()
    consumer.assign([partition])
    consumer.commit({partition: OffsetAndMetadata(3, "", -1)})
    assert consumer.committed(partition) == 3


def test_a_returning_static_member_causes_no_rebalance(make_topic: MakeTopic, join: Join) -> None:
    topic = make_topic(4)
    one = join(topic, group_instance_id="instance-1")
    wait_for_sizes({one: 4})
    two = join(topic, group_instance_id="instance-2")
    wait_for_sizes({one: 2, two: 2})
    before, rebalances = set(two.owned), list(one.rebalances)
    two.leave()
    again = join(topic, group_instance_id="instance-2")
    wait_for_sizes({again: 2})
    assert again.owned == before
    assert one.rebalances == rebalances


def test_a_second_instance_of_one_name_fences_the_first(make_topic: MakeTopic, join: Join) -> None:
    topic = make_topic()
    one = join(topic, group_instance_id="the-instance")
    wait_for_sizes({one: 1})
    two = join(topic, group_instance_id="the-instance")
    wait_for_sizes({two: 1})
    one.stop_polling()
    with pytest.raises(FencedInstanceIdError):
        one.consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})


# -- admin -------------------------------------------------------------------------------------------------


@pytest.fixture
def group(make_topic: MakeTopic, join: Join, topic: str) -> tuple[str, Member]:
    """A group of one member over two partitions, and the member; group and topic have one name."""
    member = join(make_topic(2), client_id="member", group_id=topic)
    wait_for_sizes({member: 2})
    return topic, member


def test_groups_are_listed_and_described(admin: KafkaAdminClient, group: tuple[str, Member]) -> None:
    name, _ = group
    listed = {found["group_id"]: found for found in admin.list_groups(states_filter=["Stable"])}
    assert listed[name]["protocol_type"] == "consumer"
    assert name not in {found["group_id"] for found in admin.list_groups(states_filter=["Empty"])}
    assert name not in {found["group_id"] for found in admin.list_groups(types_filter=["consumer"])}
    described = admin.describe_groups([name])[name]
    assert (described["group_state"], described["protocol_type"]) == ("Stable", "consumer")
    (member,) = described["members"]
    assert member["client_id"] == "member"
    (assigned,) = member["member_assignment"]["assigned_partitions"]
    assert (assigned["topic"], sorted(assigned["partitions"])) == (name, [0, 1])


def test_an_empty_group_is_deleted_and_one_with_members_is_not(
    admin: KafkaAdminClient, group: tuple[str, Member]
) -> None:
    name, member = group
    assert admin.delete_groups([name]) == {name: "NonEmptyGroupError"}
    member.leave()
    assert admin.delete_groups([name]) == {name: "OK"}
    assert admin.delete_groups([name]) == {name: "GroupIdNotFoundError"}


def test_offsets_of_an_empty_group_are_altered_reset_listed_and_deleted(
    admin: KafkaAdminClient, group_bootstrap: str, group: tuple[str, Member]
) -> None:
    name, member = group
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    wanted = {first: OffsetAndMetadata(3, "altered", -1), second: OffsetAndMetadata(0, "", -1)}
    assert set(admin.alter_group_offsets(name, wanted).values()) == {UnknownMemberIdError}
    member.leave()
    produce(group_bootstrap, name, 20)
    assert set(admin.alter_group_offsets(name, wanted).values()) == {NoError}
    listed = admin.list_group_offsets({name: None})[name]
    assert {each: (found.offset, found.metadata) for each, found in listed.items()} == {
        first: (3, "altered"),
        second: (0, ""),
    }
    reset = admin.reset_group_offsets(name, {first: OffsetSpec.EARLIEST})
    assert reset[first] == {"error": NoError, "offset": 0}
    assert set(admin.delete_group_offsets(name, [first]).values()) == {NoError}
    left = admin.list_group_offsets({name: None})[name]
    assert [each for each, found in left.items() if found.offset >= 0] == [second]
