"""Members of both protocols in one group, against Apache Kafka's coordinator: every reply is the same.

The machine is given the member ids that Kafka chose, so that targets of the range assignor can be compared.
Left out: who leads a classic group (Kafka's first leader after a downgrade depends on a hash), and what the
machine does better on purpose (heads of migration.py and consumer_classic.py).
"""

from __future__ import annotations

import random
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.machines.consumer_protocol import assigned_partitions
from headrace.machines.group_events import (
    ErrorReply,
    JoinGroupReply,
    JoinProtocol,
    LeaveGroupReply,
    LeavingMember,
    SyncGroupReply,
)
from headrace.machines.group_records import decode, encode
from headrace.machines.machine import ReplyToken
from headrace.testing.classic_harness import assignment
from headrace.testing.consumer_groups import topic_id
from headrace.testing.group_wire import read_reply, request
from headrace.testing.mixed_groups import MixedHarness, subscription
from headrace.testing.rawclient import RawClient

pytestmark = pytest.mark.compat_jvm

NOT_READY = frozenset({14, 15, 16})
GRACE_S = 0.03
"""How long a request that should wait is watched for an answer it should not get."""
METADATA_DELAY_S = 0.4
"""The coordinator learns of topics a little later than others."""
STEPS = 70
SESSION_MS = REBALANCE_MS = 300_000
PARTITIONS = 4


class Pending:
    """One request on a connection of its own, so that it can wait while others go on."""

    def __init__(self, bootstrap: str, name: str, fields: Mapping[str, Any], version: int | None) -> None:
        self._name, self._version = name, version
        self._client = RawClient(bootstrap, timeout_s=30)
        self._client.send(request(name, fields, version=version, client_id="client"))

    def is_answered(self) -> bool:
        return bool(select.select([self._client.socket], [], [], 0)[0])

    def reply(self) -> Any:
        with self._client as client:
            return read_reply(self._name, client.receive() or b"", version=self._version)


class Asked(NamedTuple):
    what: str
    pending: Pending


class Pair:
    """One group in both: `topic` has four partitions."""

    def __init__(self, bootstrap: str, topic: str, identity: Any, **config: Any) -> None:
        self.topic = topic
        self.machine = MixedHarness(
            {topic: PARTITIONS}, assignors=("range", "uniform"), session_timeout_ms=SESSION_MS, **config
        )
        self.told: list[str] = []
        self._bootstrap, self.group, self._identity = bootstrap, f"group-{topic}", identity
        self._asked: dict[ReplyToken, Asked] = {}

    # --- the classic protocol ----------------------------------------------------------------------------

    def join(self, member_id: str = "", **changes: Any) -> str:
        """The id of the member, where both know it by now."""
        instance_id, version = changes.get("group_instance_id"), changes.get("version", 9)
        chosen = changes.get("protocols", self.protocols())
        fields = {
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": member_id,
            "group_instance_id": instance_id,
            "protocol_type": changes.get("protocol_type", "consumer"),
            "protocols": [{"name": name, "metadata": metadata} for name, metadata in chosen],
            "reason": None,
        }
        pending = self._ask("join_group", fields, version)
        early = None if member_id else pending.reply()
        chosen_id = early.member_id if early is not None else member_id
        ours = {
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocols": chosen,
            "version": version,
            **changes,
        }
        token = self.machine.join(member_id, fresh_member_id=chosen_id or "unnamed", **ours)
        what = f"join {member_id} {instance_id} {changes}"
        if early is not None:
            self._agree(what, self._words(early), _our_words(self.machine.replies[token]))
        else:
            self._asked[token] = Asked(what, pending)
        self.compare()
        return str(chosen_id)

    def protocols(self, *owned: int, names: Sequence[str] = ("range",), rack: str | None = None) -> Any:
        metadata = subscription([self.topic], {self.topic: owned} if owned else {}, rack_id=rack)
        return tuple(JoinProtocol(name, metadata) for name in names)

    def sync(
        self, member_id: str, generation: int, instance_id: str | None = None, **changes: Any
    ) -> SyncGroupReply | None:
        """The answer; None when it has to wait, or when there is more to ask before comparing."""
        given = changes.get("assignments", ())
        protocol = {"protocol_type": "consumer", "protocol": "range", **changes}
        fields = {
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": instance_id,
            "protocol_type": protocol["protocol_type"],
            "protocol_name": protocol["protocol"],
            "assignments": [{"member_id": member, "assignment": raw} for member, raw in given],
        }
        pending = self._ask("sync_group", fields)
        token = self.machine.sync(member_id, generation, group_instance_id=instance_id, **protocol)
        self._asked[token] = Asked(f"sync {member_id} {generation} {changes}", pending)
        if given:
            return None
        self.compare()
        answer = self.machine.replies.get(token)
        return answer if isinstance(answer, SyncGroupReply) else None

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> str:
        fields = {"generation_id": generation, "member_id": member_id, "group_instance_id": instance_id}
        theirs = self._ask("heartbeat", fields).reply().error_code.name
        ours = self.machine.heartbeat(member_id, generation, instance_id).name
        self._agree(f"heartbeat {member_id} {generation} {instance_id}", theirs, ours)
        return ours

    def leave(self, *members: LeavingMember) -> None:
        listed = [{"member_id": m.member_id, "group_instance_id": m.group_instance_id} for m in members]
        fields = {"members": [{**member, "reason": None} for member in listed]}
        theirs = self._ask("leave_group", fields).reply()
        self._agree(f"leave {members}", self._words(theirs), _our_words(self.machine.leave(*members)))
        self.compare()

    def commit(self, member_id: str, generation: int, version: int = 9) -> None:
        partition = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        fields = {
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "group_instance_id": None,
            "topics": [{"name": self.topic, "partitions": [partition]}],
        }
        reply = self._ask("offset_commit", fields, version).reply()
        theirs = reply.topics[0].partitions[0].error_code.name
        ours = self.machine.commit(member_id, generation, version=version, topic=self.topic).name
        self._agree(f"commit {member_id} {generation} v{version}", theirs, ours)

    # --- KIP-848 -----------------------------------------------------------------------------------------

    def beat(
        self, member_id: str, epoch: int, owned: Sequence[int] | None = None, **fields: Any
    ) -> tuple[int, list[int] | None]:
        """The member's epoch, and its assignment if it was given one."""
        partitions = None if owned is None else [{"topic_id": self._identity, "partitions": list(owned)}]
        theirs = {
            "group_id": self.group,
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": fields.get("instance_id"),
            "rack_id": fields.get("rack_id"),
            "rebalance_timeout": fields.get("rebalance_timeout_ms", -1),
            "subscribed_topic_names": fields.get("subscribed_topic_names"),
            "subscribed_topic_regex": None,
            "server_assignor": fields.get("server_assignor"),
            "topic_partitions": partitions if owned != () else [],
        }
        reply = self._ask("consumer_group_heartbeat", theirs).reply()
        held = None if owned is None else {topic_id(self.topic): frozenset(owned)} if owned else {}
        ours = self.machine.beat(member_id, epoch, owned_partitions=held, **fields)
        mine = None if ours.assignment is None else sorted(ours.assignment.get(topic_id(self.topic), ()))
        assigned = reply.assignment and reply.assignment.topic_partitions
        given = None if assigned is None else sorted(p for topic in assigned for p in topic.partitions)
        message = ours.error_message and ours.error_message.replace("roup g ", f"roup {self.group} ")
        self._agree(
            f"beat {member_id} {epoch} {owned} {fields}",
            (reply.error_code.name, reply.error_message, int(reply.member_epoch), given),
            (ours.error.name, message, ours.member_epoch, mine),
        )
        self.compare()
        return ours.member_epoch, mine

    def beat_join(self, member_id: str, **fields: Any) -> tuple[int, list[int] | None]:
        full = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": [self.topic]}
        return self.beat(member_id, 0, (), server_assignor="range", **{**full, **fields})

    # --- comparing ---------------------------------------------------------------------------------------

    def _ask(self, name: str, fields: Mapping[str, Any], version: int | None = None) -> Pending:
        return Pending(self._bootstrap, name, {"group_id": self.group, **fields}, version)

    def compare(self) -> None:
        answered = {
            token: self._asked.pop(token) for token in list(self._asked) if token in self.machine.replies
        }
        for token, asked in answered.items():
            theirs = self._words(asked.pending.reply())
            self._agree(asked.what, theirs, _our_words(self.machine.replies[token]))
        if self._asked:
            time.sleep(GRACE_S)
        early = [asked.what for asked in self._asked.values() if asked.pending.is_answered()]
        self._agree("answered too early", early, [])
        self._compare_descriptions()

    def _compare_descriptions(self) -> None:
        """Kafka describes what is committed, which may take it a moment longer than its reply."""
        deadline = time.monotonic() + 2
        while (found := self._descriptions())[0] != found[1] and time.monotonic() < deadline:
            time.sleep(0.05)
        self._agree("describe", *found)

    def _descriptions(self) -> tuple[object, object]:
        ours = self.machine.group.describe_consumer_group()
        if ours is None:
            fields = {"groups": [self.group], "include_authorized_operations": False}
            (classic,) = Pending(self._bootstrap, "describe_groups", fields, 6).reply().groups
            state = self.machine.group.describe()
            return (
                (classic.group_state, {m.member_id for m in classic.members}),
                (state.state, {m.member_id for m in state.members}),
            )
        fields = {"group_ids": [self.group], "include_authorized_operations": False}
        (theirs,) = Pending(self._bootstrap, "consumer_group_describe", fields, None).reply().groups
        return (
            (theirs.group_state, int(theirs.group_epoch), int(theirs.assignment_epoch), _members(theirs)),
            (ours.state, ours.group_epoch, ours.assignment_epoch, self._our_members(ours)),
        )

    def _our_members(self, ours: Any) -> list[Any]:
        return [
            (
                m.member_id,
                m.instance_id,
                m.rack_id,
                m.member_epoch,
                m.subscribed_topic_names,
                list(m.assignment.get(self.topic, ())),
                list(m.target.get(self.topic, ())),
                m.member_type,
            )
            for m in ours.members
        ]

    def _words(self, theirs: Any) -> dict[str, Any]:
        """Kafka's reply in words that the machine has too; a leader is told only in classic groups."""
        told: dict[str, Any] = {"error": theirs.error_code.name}
        ok = told["error"] == "none"
        match type(theirs).__name__:
            case "JoinGroupResponse":
                told["member_id"] = theirs.member_id
                told |= (
                    {"generation": int(theirs.generation_id), "protocol": theirs.protocol_name} if ok else {}
                )
            case "SyncGroupResponse" if ok:
                told |= _assigned(theirs.assignment) | {"protocol": theirs.protocol_name}
            case "LeaveGroupResponse":
                told["members"] = [
                    (m.member_id, m.group_instance_id, m.error_code.name) for m in theirs.members
                ]
        return told

    def _agree(self, what: str, theirs: object, ours: object) -> None:
        self.told.append(f"{what} -> {theirs}")
        assert ours == theirs, "\n".join(self.told)


def _members(theirs: Any) -> list[Any]:
    return sorted(
        (
            m.member_id,
            m.instance_id,
            m.rack_id,
            int(m.member_epoch),
            tuple(m.subscribed_topic_names),
            sorted(p for topic in m.assignment.topic_partitions for p in topic.partitions),
            sorted(p for topic in m.target_assignment.topic_partitions for p in topic.partitions),
            int(m.member_type),
        )
        for m in theirs.members
    )


def _our_words(reply: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"error": reply.error.name}
    ok = told["error"] == "none"
    match reply:
        case JoinGroupReply():
            told["member_id"] = reply.member_id
            told |= {"generation": reply.generation, "protocol": reply.protocol} if ok else {}
        case SyncGroupReply() if ok:
            told |= _assigned(reply.assignment) | {"protocol": reply.protocol}
        case LeaveGroupReply():
            told["members"] = [(m.member_id, m.group_instance_id, m.error.name) for m in reply.members]
        case ErrorReply():
            pass
    return told


def _assigned(raw: bytes) -> dict[str, Any]:
    found = assigned_partitions(bytes(raw))
    return {"version": raw[:2], "assigned": {topic: sorted(numbers) for topic, numbers in found.items()}}


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
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        fields = {**wanted, "include_topic_authorized_operations": False}
        (found,) = Pending(bootstrap, "metadata", fields, None).reply().topics
        if len(found.partitions) == PARTITIONS and _is_ready(bootstrap, f"group-{topic}"):
            time.sleep(METADATA_DELAY_S)
            return Pair(bootstrap, topic, found.topic_id)
        time.sleep(0.2)
    raise TimeoutError("no topic or no coordinator within half a minute")


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


def test_what_cannot_be_upgraded_is_refused_in_the_same_words(pair: Pair) -> None:
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
