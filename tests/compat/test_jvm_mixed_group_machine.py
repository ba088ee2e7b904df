# SPDX-License-Identifier: Apache-2.0
"""Members of both protocols in one group, against Apache Kafka's coordinator: every reply is the same.

Left out: what the machine does better on purpose (heads of migration.py and classic_members.py).
Read next: mixed_group_pair.py.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.machines.groups.events import JoinProtocol, LeavingMember
from headrace.wire.coordinator.consumer_protocol import assigned_partitions
from headrace.wire.coordinator.group_records import GroupRecord, decode, encode
from headrace.wire.records import Record as LogRecord
from headrace.wire.records import build_batch
from tests.compat.mixed_group_pair import PARTITIONS, Pair, Pending
from tests.harness.groups.classic_requests import assignment
from tests.harness.groups.consumer_groups import topic_id
from tests.harness.groups.mixed_groups import MixedHarness
from tests.harness.waiting import poll, wait_until

pytestmark = pytest.mark.compat_jvm

NOT_READY = frozenset({14, 15, 16})
METADATA_DELAY_S = 0.4
"""The coordinator learns of topics a little later than others."""
STEPS = 70


# --- the broker ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bootstrap(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.assignors": "range,uniform",
        "offsets.topic.num.partitions": "5",
    }
    with kafka_engine.start(tmp_path_factory.mktemp("kafka"), settings) as node:
        yield node.bootstrap


@pytest.fixture
def pair(bootstrap: str, request: pytest.FixtureRequest) -> Pair:
    topic = "".join(letter for letter in request.node.name if letter.isalnum())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    wanted = {"topics": [{"topic_id": None, "name": topic}], "allow_auto_topic_creation": False}
    fields = {**wanted, "include_topic_authorized_operations": False}
    found = poll(
        lambda: Pending(bootstrap, "metadata", fields, None).reply().topics[0],
        lambda topic: len(topic.partitions) == PARTITIONS,
        poll_s=0.2,
    )
    wait_until(lambda: _is_ready(bootstrap, f"group-{topic}"), "a coordinator", poll_s=0.2)
    time.sleep(METADATA_DELAY_S)  # the coordinator hears of the topic unobserved
    return Pair(bootstrap, topic, found.topic_id)


def _is_ready(bootstrap: str, group: str) -> bool:
    Pending(bootstrap, "find_coordinator", {"key_type": 0, "coordinator_keys": [group]}, None).reply()
    probe = {"group_id": group, "generation_id": 0, "member_id": "m", "group_instance_id": None}
    return int(Pending(bootstrap, "heartbeat", probe, None).reply().error_code) not in NOT_READY


def two_classic_members(pair: Pair) -> tuple[str, str]:
    first, second = pair.join(), pair.join()
    pair.join(first)
    pair.join(second)
    pair.join(first)
    give(pair, {first: [0, 1], second: [2, 3]})
    return first, second


def give(pair: Pair, partitions: Mapping[str, Sequence[int]]) -> None:
    """Everyone in a classic group asks for this assignment: so the leader does, whoever that is."""
    given = [(member, assignment({pair.topic: numbers})) for member, numbers in partitions.items()]
    generation = pair.machine.group.classic.membership.generation
    for member, _ in given:
        pair.sync(member, generation, assignments=tuple(given))
    pair.compare()


# --- the cases -------------------------------------------------------------------------------------------


def test_upgrade_mixed_rebalances_and_downgrade(pair: Pair) -> None:
    first, second = two_classic_members(pair)
    pair.commit(first, 2)
    epoch, _ = pair.beat_join("kip-1", rack_id="r")
    for generation in (epoch - 1, epoch, epoch + 1):
        for member in (first, second, "kip-1", "nobody"):
            pair.heartbeat(member, generation)
            pair.sync(member, generation)
            for version in (8, 9):
                pair.commit(member, generation, version)
    pair.beat("kip-1", epoch)
    pair.join(second, protocols=pair.protocols(rack="r2"))
    pair.sync(second, epoch)
    _, early = pair.beat("kip-1", epoch)
    pair.join(first)
    pair.sync(first, epoch, protocol="sticky")
    pair.sync(first, epoch, protocol_type="connect")
    pair.sync(first, epoch)
    _, late = pair.beat("kip-1", epoch)
    given = late or early
    assert given, "which of the two gave something up depends on their ids"
    pair.join(first, protocols=(JoinProtocol("range", b"?"),))
    third = pair.join(version=3)
    pair.heartbeat(first, epoch)
    pair.leave(LeavingMember(third), LeavingMember("nobody"), LeavingMember("", "nobody"))
    pair.beat("kip-1", epoch, given)
    pair.beat("kip-1", -1)
    assert pair.machine.protocol == "Classic"
    for member in (first, second):
        pair.heartbeat(member, epoch)
        pair.heartbeat(member, epoch + 1)
        pair.heartbeat(member, epoch + 2)
    pair.join(first)
    pair.join(second)
    give(pair, {first: [0, 1], second: [2, 3]})


def test_the_same_records_are_written(bootstrap: str, pair: Pair) -> None:
    """In order; only members of one group may change places, which Kafka keeps by hash."""
    first, second = two_classic_members(pair)
    pair.commit(first, 2)
    epoch, _ = pair.beat_join("kip", rack_id="r")
    pair.join(first)
    pair.join(second)
    pair.commit(second, epoch)
    pair.leave(LeavingMember(second))
    pair.beat("kip", epoch)
    pair.beat("kip", -1)
    pair.join(first)
    give(pair, {first: [0, 1, 2, 3]})
    ours = [_kind(record) for record in pair.machine.records]
    assert _in_any_order_of_members(_kafka_records(bootstrap, pair)) == _in_any_order_of_members(ours)


def test_kafka_reads_the_records(kafka_engine: KafkaEngine, tmp_path: Path) -> None:
    group = MixedHarness({"t": PARTITIONS})
    required = group.joined(group.join())
    member = group.joined(group.join(required.member_id))
    group.sync(member.member_id, member.generation, assignments=((member.member_id, assignment({"t": [0]})),))
    group.beat_join("kip", "t", rack_id="r")
    group.beat("kip", -1)
    written = [
        LogRecord(offset, 0, *encode(cast(GroupRecord, record)), ())
        for offset, record in enumerate(group.records)
    ]
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(build_batch(written))
    printed = kafka_engine.tool("dump-log", "--offsets-decoder", "--files", str(segment))
    assert printed.returncode == 0, printed.output
    assert printed.stdout.count("| offset:") == printed.stdout.count('key: {"type"') == len(written)
    assert printed.stdout.count('"classicMemberMetadata":null') == 1
    assert printed.stdout.count('"classicMemberMetadata":{"sessionTimeoutMs":10000,') == 1


def _kafka_records(bootstrap: str, pair: Pair) -> list[tuple[str, str, bool]]:
    """What Kafka wrote for the group, read by the machine's codec and written again to the same bytes."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    partitions = consumer.list_topics("__consumer_offsets").topics["__consumer_offsets"].partitions
    consumer.assign([TopicPartition("__consumer_offsets", number, 0) for number in partitions])
    found, at_end = [], 0
    while at_end < len(partitions):
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            at_end += 1
            continue
        key, value = message.key(), message.value()
        record = decode(key, value)
        if record is not None and record.group_id == pair.group:
            assert encode(record) == (key, value), record
            found.append(_kind(record))
    consumer.close()
    return found


def _kind(record: Any) -> tuple[str, str, bool]:
    return type(record).__name__, getattr(record, "member_id", ""), record.value is None


def _in_any_order_of_members(records: list[tuple[str, str, bool]]) -> list[Any]:
    """Runs of records of one kind, each sorted."""
    runs = groupby(records, key=lambda record: (record[0], record[2]))
    return [(kind, sorted(member for _, member, _ in run)) for kind, run in runs]


def test_cooperative_members_give_up_before_others_get(pair: Pair) -> None:
    cooperative = ("cooperative-sticky", "range")
    member = pair.join(protocols=pair.protocols(names=cooperative))
    pair.join(member, protocols=pair.protocols(names=cooperative))
    given = ((member, assignment({pair.topic: [0, 1, 2, 3]})),)
    pair.sync(member, 1, protocol=cooperative[0], assignments=given)
    pair.compare()
    epoch, _ = pair.beat_join("kip")
    pair.join(member, protocols=pair.protocols(0, 1, 2, 3, names=cooperative))
    pair.sync(member, 1, protocol=cooperative[0])
    pair.heartbeat(member, 1)
    pair.commit(member, 1)
    pair.beat("kip", epoch)
    kept = sorted(pair.machine.group.consumer.state.target[member][topic_id(pair.topic)])
    pair.join(member, protocols=pair.protocols(*kept, names=cooperative))
    pair.sync(member, epoch, protocol=cooperative[0])
    pair.commit(member, 1)
    pair.beat("kip", epoch)
    pair.join(protocols=pair.protocols(names=("sticky",)))
    pair.join(protocol_type="connect")
    pair.join(protocols=())


def test_static_members_replace_each_other_across_protocols(pair: Pair) -> None:
    old = pair.join(group_instance_id="i")
    pair.sync(old, 1, "i", assignments=((old, assignment({pair.topic: [0, 1, 2, 3]})),))
    pair.compare()
    pair.beat_join("kip", instance_id="i")
    pair.heartbeat(old, 1, "i")
    pair.sync(old, 1, "i")
    pair.join(old, group_instance_id="i")
    pair.join("stranger", group_instance_id="j")
    pair.beat_join("kip-2", instance_id="i")
    back = pair.join(group_instance_id="i")
    assert pair.machine.protocol == "Classic"
    pair.heartbeat(back, 1, "i")
    pair.sync(back, 1, "i")
    epoch, _ = pair.beat_join("kip-3")
    pair.join(back, group_instance_id="i")
    pair.sync(back, epoch, "i")
    pair.beat("kip-3", epoch)
    again = pair.join(group_instance_id="i")
    pair.sync(again, epoch, "i")
    pair.heartbeat(back, epoch, "i")
    pair.leave(LeavingMember("stranger", "i"), LeavingMember("", "i"))
    pair.beat("kip-3", epoch)
    pair.beat("kip-3", -1)
    pair.heartbeat(again, epoch, "i")


def test_impossible_upgrades_are_refused_with_the_same_messages(pair: Pair) -> None:
    member = pair.join(protocol_type="connect")
    pair.join(member, protocol_type="connect")
    pair.sync(member, 1, protocol_type="connect", assignments=((member, b"A"),))
    pair.compare()
    pair.beat_join("kip")
    pair.beat("kip", 3)
    pair.beat("kip", -1)
    pair.leave(LeavingMember(member))
    member = pair.join()
    pair.join(member)
    pair.sync(member, pair.machine.group.classic.membership.generation, assignments=((member, b"A"),))
    pair.compare()
    pair.beat_join("kip")
    pair.join(member)
    mine = assignment({pair.topic: [0]})[:-4] + b"\0\0\0\x01!"
    pair.sync(member, pair.machine.group.classic.membership.generation, assignments=((member, mine),))
    pair.compare()
    pair.beat_join("kip")


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
@pytest.mark.parametrize("seed", range(5))
def test_arbitrary_histories_are_answered_alike(pair: Pair, seed: int, cooperative: bool) -> None:
    _History(pair, random.Random(seed), cooperative=cooperative).run()


class _Kip:
    def __init__(self, pair: Pair, member_id: str) -> None:
        self._pair, self.member_id = pair, member_id
        self.epoch, assigned = pair.beat_join(member_id)
        self.owned = self.assigned = assigned or []

    def beat(self) -> None:
        self.epoch, assigned = self._pair.beat(self.member_id, self.epoch, tuple(self.owned))
        if assigned is not None:
            self.assigned = assigned
            if set(self.owned) <= set(assigned):
                self.owned = assigned

    def process(self) -> None:
        self.owned = self.assigned


class _History:
    """Classic and KIP-848 members that come and go; requests in and out of turn.

    Cooperative members say in JoinGroup what they own, and give up what SyncGroup does not name.
    """

    def __init__(self, pair: Pair, chance: random.Random, *, cooperative: bool) -> None:
        self._pair, self._chance, self._cooperative = pair, chance, cooperative
        self._owned: dict[str, list[int]] = {}
        self._classic: dict[str, int] = {}
        """Generation by member id, as the member last heard."""
        self._kip: list[_Kip] = []
        self._names = 0

    def run(self) -> None:
        actions = {
            self._new_classic: 3.0,
            self._new_kip: 3.0,
            self._kip_beats: 6.0,
            self._kip_processes: 4.0,
            self._rejoin: 6.0,
            self._sync: 5.0,
            self._heartbeat: 5.0,
            self._commit: 3.0,
            self._classic_leaves: 1.5,
            self._kip_leaves: 2.0,
        }
        for _ in range(STEPS):
            if self._pair.machine.group.classic.membership.exists:
                self._finish_rebalance()
            (action,) = self._chance.choices(list(actions), list(actions.values()))
            action()

    @property
    def _is_classic(self) -> bool:
        return self._pair.machine.protocol == "Classic"

    def _finish_rebalance(self) -> None:
        """Whatever a classic group waits for; its leader differs, so all go through it together."""
        state = self._pair.machine.group.classic.state
        for member_id in list(self._classic):
            if state.state.value == "PreparingRebalance" and member_id not in state.join_tokens:
                self._join(member_id)
        if state.state.value == "CompletingRebalance":
            members = list(state.members)
            given = {m: list(range(n, PARTITIONS, len(members))) for n, m in enumerate(members)}
            give(self._pair, given)
            self._owned = dict(given)
        self._classic = dict.fromkeys(state.members, state.generation)

    def _join(self, member_id: str) -> None:
        if not self._cooperative:
            self._owned.pop(member_id, None)
        self._pair.join(member_id, protocols=self._pair.protocols(*self._owned.get(member_id, ())))

    def _new_classic(self) -> None:
        if len(self._classic) + len(self._kip) < 5:
            member_id = self._pair.join()
            self._join(member_id)
            self._hear(member_id)

    def _hear(self, member_id: str) -> None:
        member = self._pair.machine.group.consumer.state.members.get(member_id)
        self._classic[member_id] = -1 if member is None else member.member_epoch

    def _new_kip(self) -> None:
        if len(self._classic) + len(self._kip) < 5:
            self._names += 1
            self._kip.append(_Kip(self._pair, f"kip-{self._names}"))

    def _kip_beats(self) -> None:
        if self._kip:
            self._chance.choice(self._kip).beat()

    def _kip_processes(self) -> None:
        if self._kip:
            self._chance.choice(self._kip).process()

    def _any_classic(self) -> tuple[str, int]:
        return self._chance.choice([*self._classic.items(), *self._classic.items(), ("stranger", 1)])

    def _rejoin(self) -> None:
        if self._classic and not self._is_classic:
            member_id = self._chance.choice(list(self._classic))
            self._join(member_id)
            self._hear(member_id)

    def _sync(self) -> None:
        if not self._is_classic:
            member_id, generation = self._any_classic()
            answer = self._pair.sync(member_id, generation + self._chance.choice([0, 0, 0, 1, -1]))
            if answer is not None and answer.error.name == "none":
                self._owned[member_id] = [*assigned_partitions(answer.assignment).get(self._pair.topic, ())]

    def _heartbeat(self) -> None:
        member_id, generation = self._any_classic()
        self._pair.heartbeat(member_id, generation + self._chance.choice([0, 0, 0, 1, -1]))

    def _commit(self) -> None:
        member_id, generation = self._any_classic()
        version = self._chance.choice([8, 9])
        self._pair.commit(member_id, generation + self._chance.choice([0, 0, 1, -1]), version)

    def _classic_leaves(self) -> None:
        if self._classic:
            member_id = self._chance.choice(list(self._classic))
            del self._classic[member_id]
            self._pair.leave(LeavingMember(member_id))

    def _kip_leaves(self) -> None:
        if self._kip:
            member = self._kip.pop(self._chance.randrange(len(self._kip)))
            self._pair.beat(member.member_id, -1)
