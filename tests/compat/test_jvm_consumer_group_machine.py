# SPDX-License-Identifier: Apache-2.0
"""The KIP-848 machine against Apache Kafka's coordinator: the same heartbeats, and every reply is the same.

With the range assignor, so that targets can be compared too. Left out: a member that joins with no topics,
after which Kafka 4.3 may leave partitions without an owner (it takes the group for homogeneous).
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.wire.kio_codec.decoder import Budget, message_decoder
from headrace.wire.kio_codec.encoder import message_encoder
from headrace.wire.primitives import skip_tagged_fields, string
from tests.harness.groups.consumer_groups import GroupDriver, topic_id
from tests.harness.live.raw_client import RawClient
from tests.harness.waiting import poll

pytestmark = pytest.mark.compat_jvm

HEARTBEAT, CREATE_TOPICS, CREATE_PARTITIONS, FIND_COORDINATOR = 68, 19, 37, 10
COORDINATOR_NOT_READY = frozenset({14, 15, 16})
METADATA_DELAY_S = 0.4
STEPS = 100


class Answer(NamedTuple):
    error: str
    message: str | None
    member_id: str | None
    epoch: int
    assignment: Mapping[str, list[int]] | None


class KafkaCoordinator:
    """Speaks just enough of the protocol; every request used here is flexible."""

    def __init__(self, bootstrap: str) -> None:
        self._client = RawClient(bootstrap, timeout_s=30)
        self._calls = 0
        self._ids: dict[str, Any] = {}

    def call(self, key: int, name: str, version: int, fields: Mapping[str, Any]) -> Any:
        self._calls += 1
        frame = bytearray(struct.pack(">ihhi", 0, key, version, self._calls) + string("client") + b"\0")
        message_encoder(name, version, "request")(frame, fields)
        struct.pack_into(">i", frame, 0, len(frame) - 4)
        self._client.send(bytes(frame))
        reply = memoryview(self._client.receive() or b"")
        position = skip_tagged_fields(reply, 4, len(reply))
        read = message_decoder(name, version, "response")
        return read(reply, position, len(reply), Budget(len(reply)))[0]

    def make_coordinator(self) -> None:
        self.call(FIND_COORDINATOR, "find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["any"]})

    def create(self, name: str, partitions: int) -> None:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        fields = {"topics": [{**topic, "assignments": [], "configs": []}], "timeout": 10_000}
        reply = self.call(CREATE_TOPICS, "create_topics", 7, {**fields, "validate_only": False})
        assert int(reply.topics[0].error_code) == 0
        self._ids[name] = reply.topics[0].topic_id
        time.sleep(METADATA_DELAY_S)  # its coordinator hears of it unobserved

    def grow(self, name: str, partitions: int) -> None:
        topic = {"name": name, "count": partitions, "assignments": None}
        fields = {"topics": [topic], "timeout": 10_000, "validate_only": False}
        reply = self.call(CREATE_PARTITIONS, "create_partitions", 3, fields)
        assert int(reply.results[0].error_code) == 0
        time.sleep(3 * METADATA_DELAY_S)  # members are there: one that comes too early sees the old picture

    def heartbeat(self, group: str, member_id: str, epoch: int, fields: Mapping[str, Any]) -> Answer:
        owned = fields.get("owned_partitions")
        request = {
            "group_id": group,
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": fields.get("instance_id"),
            "rack_id": fields.get("rack_id"),
            "rebalance_timeout": fields.get("rebalance_timeout_ms", -1),
            "subscribed_topic_names": fields.get("subscribed_topic_names"),
            "subscribed_topic_regex": fields.get("subscribed_topic_regex"),
            "server_assignor": fields.get("server_assignor"),
            "topic_partitions": None
            if owned is None
            else [{"topic_id": self._ids[name], "partitions": numbers} for name, numbers in owned.items()],
        }
        reply = poll(
            lambda: self.call(HEARTBEAT, "consumer_group_heartbeat", 1, request),
            lambda reply: int(reply.error_code) not in COORDINATOR_NOT_READY,
            poll_s=0.2,
        )
        names = {identity: name for name, identity in self._ids.items()}
        assignment = reply.assignment and {
            names[topic.topic_id]: sorted(topic.partitions) for topic in reply.assignment.topic_partitions
        }
        return Answer(
            reply.error_code.name, reply.error_message, reply.member_id, int(reply.member_epoch), assignment
        )


class Pair:
    """One group in both; `group` is the machine's name for it."""

    def __init__(self, kafka: KafkaCoordinator, counts: Mapping[str, int], **config: Any) -> None:
        self._kafka = kafka
        self.machine = GroupDriver(counts, **config)
        self._name = f"group-{next(iter(counts))}"
        self.told: list[str] = []

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> Answer:
        theirs = self._kafka.heartbeat(self._name, member_id, epoch, fields)
        ours = self._ask_machine(member_id, epoch, dict(fields))
        self.told.append(f"{member_id} {epoch} {fields} -> {theirs}")
        assert ours == theirs, "\n".join(self.told)
        return theirs

    def _ask_machine(self, member_id: str, epoch: int, fields: dict[str, Any]) -> Answer:
        if (owned := fields.get("owned_partitions")) is not None:
            fields["owned_partitions"] = {
                topic_id(name): frozenset(numbers) for name, numbers in owned.items()
            }
        reply = self.machine.heartbeat(member_id, epoch, **fields)
        names = {topic_id(name): name for name in self.machine.counts}
        assignment = None
        if reply.assignment is not None:
            assignment = {names[topic]: sorted(numbers) for topic, numbers in reply.assignment.items()}
        message = reply.error_message and reply.error_message.replace("roup group", f"roup {self._name}")
        return Answer(reply.error.name, message, reply.member_id, reply.member_epoch, assignment)

    def grow(self, name: str) -> None:
        counts = {**self.machine.counts, name: self.machine.counts[name] + 1}
        self._kafka.grow(name, counts[name])
        self.machine.set_topics(counts)


class Member:
    def __init__(self, pair: Pair, member_id: str, topics: list[str], instance_id: str | None) -> None:
        self._pair, self.member_id, self.topics, self.instance_id = pair, member_id, topics, instance_id
        self.forget()

    def forget(self) -> None:
        self.epoch = 0
        self.owned: Mapping[str, list[int]] = {}
        self.assignment: Mapping[str, list[int]] = {}
        self._reported: Mapping[str, list[int]] | None = None

    def beat(self, *, lose_reply: bool = False) -> None:
        fields: dict[str, Any] = {"instance_id": self.instance_id}
        if self._reported is None:
            fields.update(
                subscribed_topic_names=self.topics, rebalance_timeout_ms=60_000, server_assignor="range"
            )
        if self._reported != self.owned:
            fields["owned_partitions"] = self.owned
        reported = self.owned
        answer = self._pair.heartbeat(self.member_id, self.epoch, **fields)
        if lose_reply:
            self._reported = None
        elif answer.error != "none":
            self.forget()
        else:
            self._reported, self.epoch = reported, answer.epoch
            self._take(answer.assignment)

    def _take(self, assignment: Mapping[str, list[int]] | None) -> None:
        if assignment is not None:
            self.assignment = assignment
            if all(set(numbers) <= set(assignment.get(name, ())) for name, numbers in self.owned.items()):
                self.owned = assignment

    def process(self) -> None:
        self.owned = self.assignment

    def resubscribe(self, topics: list[str]) -> None:
        self.topics, self._reported = topics, None

    def leave(self, epoch: int) -> None:
        self._pair.heartbeat(self.member_id, epoch, instance_id=self.instance_id)


@pytest.fixture(scope="module", params=[0, 15_000], ids=["interval-0", "interval-15s"])
def interval_ms(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def kafka(
    kafka_engine: KafkaEngine, interval_ms: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCoordinator]:
    settings = {
        "group.consumer.assignment.interval.ms": str(interval_ms),
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "5",
    }
    with kafka_engine.start(tmp_path_factory.mktemp("kafka"), settings) as node:
        coordinator = KafkaCoordinator(node.bootstrap)
        coordinator.make_coordinator()
        yield coordinator


def test_bad_input_is_refused_with_the_same_codes_and_messages(
    kafka: KafkaCoordinator, interval_ms: int
) -> None:
    kafka.create("bad", 2)
    pair = Pair(kafka, {"bad": 2}, assignment_interval_ms=interval_ms)
    join: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["bad"],
        "owned_partitions": {},
    }
    pair.heartbeat("x", 5)
    pair.heartbeat("x", -1)
    pair.heartbeat("x", -2, instance_id="i")
    for change in (
        {"instance_id": ""},
        {"rack_id": " "},
        {"rebalance_timeout_ms": -1},
        {"owned_partitions": None},
        {"owned_partitions": {"bad": [0]}},
        {"subscribed_topic_names": None},
        {"server_assignor": "mine"},
    ):
        pair.heartbeat("x", 0, **{**join, **change})
    for member_id, epoch in (("", 0), (" ", 0), ("x", -2), ("x", -3)):
        pair.heartbeat(member_id, epoch, **join)
    pair.heartbeat("x", 0, server_assignor="range", instance_id="i", **join)
    for epoch in (1, 2, 3, 99):
        pair.heartbeat("x", epoch, instance_id="i", owned_partitions={})
        pair.heartbeat("stranger", epoch)
        pair.heartbeat("stranger", epoch, instance_id="i")
        pair.heartbeat("stranger", epoch, instance_id="nobody")
    pair.heartbeat("other", 0, instance_id="i", **join)
    assert len(pair.told) > 25


@pytest.mark.parametrize("seed", range(8))
def test_arbitrary_histories_are_answered_alike(kafka: KafkaCoordinator, interval_ms: int, seed: int) -> None:
    topics = [f"history-{seed}-{letter}" for letter in "ab"]
    for topic in topics:
        kafka.create(topic, 3)
    pair = Pair(kafka, dict.fromkeys(topics, 3), assignment_interval_ms=interval_ms)
    _History(pair, topics, random.Random(seed)).run()


class _History:
    def __init__(self, pair: Pair, topics: list[str], chance: random.Random) -> None:
        self._pair, self._topics, self._chance = pair, topics, chance
        self._members: list[Member] = []
        self._names = 0

    def run(self) -> None:
        actions = {
            self._join: 3.0,
            self._beat: 12.0,
            self._process: 6.0,
            self._all_keep_up: 4.0,
            self._bad: 2.0,
            self._leave: 1.0,
            self._restart: 1.0,
            self._resubscribe: 1.0,
            self._grow: 0.3,
        }
        for _ in range(STEPS):
            (action,) = self._chance.choices(list(actions), list(actions.values()))
            if self._members or action == self._join:
                action()

    def _new(self, topics: list[str], instance_id: str | None) -> Member:
        self._names += 1
        self._members.append(Member(self._pair, f"m{self._names:03}", topics, instance_id))
        return self._members[-1]

    def _any(self) -> Member:
        return self._chance.choice(self._members)

    def _join(self) -> None:
        if len(self._members) < 5:
            topics = self._chance.choice([self._topics, self._topics, self._topics[:1]])
            self._new(topics, self._chance.choice([None, None, "i1", "i2"])).beat()

    def _beat(self) -> None:
        self._any().beat(lose_reply=self._chance.random() < 0.2)

    def _process(self) -> None:
        self._any().process()

    def _all_keep_up(self) -> None:
        for member in self._members:
            member.beat()
            member.process()

    def _bad(self) -> None:
        self._pair.heartbeat(
            self._chance.choice(["m001", "m002", "stranger", self._any().member_id]),
            self._chance.choice([1, 2, 3, 5, 99, -1, -3, self._any().epoch or 1]),
            instance_id=self._chance.choice([None, "i1", "nobody"]),
            owned_partitions=self._chance.choice([None, {}, {self._topics[0]: [0]}]),
            server_assignor=self._chance.choice([None, None, "mine"]),
        )

    def _leave(self) -> None:
        member = self._any()
        self._members.remove(member)
        member.leave(-1)

    def _restart(self) -> None:
        member = self._any()
        if member.instance_id is not None:
            self._members.remove(member)
            member.leave(-2)
            self._new(member.topics, member.instance_id).beat()

    def _resubscribe(self) -> None:
        self._any().resubscribe(self._chance.choice([self._topics, self._topics[:1], self._topics[1:], []]))

    def _grow(self) -> None:
        topic = self._chance.choice(self._topics)
        if self._pair.machine.counts[topic] < 6:
            self._pair.grow(topic)


def test_regular_expressions_are_resolved_alike(kafka: KafkaCoordinator, interval_ms: int) -> None:
    if interval_ms:
        pytest.skip("the topics of an expression are assigned only after the interval")
    counts = {"regex-1": 2, "regex-2": 1}
    for name, count in counts.items():
        kafka.create(name, count)
    pair = Pair(kafka, counts, assignment_interval_ms=interval_ms)
    join: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "owned_partitions": {},
        "server_assignor": "range",
        "subscribed_topic_regex": "regex-.*",
    }
    pair.heartbeat("a", 0, **join)
    time.sleep(METADATA_DELAY_S)  # it looks at the topics' names unobserved
    pair.machine.answer_regex({"regex-.*": set(counts)})
    first = pair.heartbeat("a", 1)
    assert first.assignment == {"regex-1": [0, 1], "regex-2": [0]}
    pair.heartbeat("b", 0, **join)
    pair.heartbeat("a", first.epoch, owned_partitions=first.assignment)
    pair.heartbeat("a", first.epoch, owned_partitions={"regex-1": [0], "regex-2": [0]})
    pair.heartbeat("b", first.epoch + 1)
    pair.heartbeat("b", first.epoch + 1, subscribed_topic_regex="", subscribed_topic_names=["regex-2"])
    pair.heartbeat("b", first.epoch + 1, owned_partitions={})
    pair.heartbeat("a", first.epoch + 1)
    pair.heartbeat("a", -1)
    pair.heartbeat("b", -1)
