# SPDX-License-Identifier: Apache-2.0
"""The classic group machine against Apache Kafka's coordinator: the same requests, the same replies.

Requests that wait must wait in both. Left out: what takes time (time-outs have unit tests), requests repeated
while the first still waits (Kafka never answers the first), and a leader that leaves two or more behind
(Kafka's next leader depends on a hash).
"""

from __future__ import annotations

import random
import select
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.machines.groups.classic.rebalance import ClassicGroupSettings
from headrace.machines.groups.events import (
    ErrorReply,
    JoinGroupReply,
    LeaveGroupReply,
    LeavingMember,
    OffsetCommit,
    OffsetCommitReply,
    OffsetToCommit,
    SyncGroupReply,
)
from headrace.machines.groups.group import Group, GroupSettings
from headrace.machines.machine import ReplyToken
from headrace.types import ClusterView
from headrace.wire.kio_codec.decoder import Budget, message_decoder
from headrace.wire.kio_codec.encoder import message_encoder
from headrace.wire.primitives import skip_tagged_fields, string
from tests.harness.groups.classic_requests import ClassicHarness, protocols, subscription
from tests.harness.live.raw_client import RawClient
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.compat_jvm

JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, COMMIT, FIND_COORDINATOR, CREATE_TOPICS = (
    11,
    12,
    13,
    14,
    15,
    8,
    10,
    19,
)

NAMES = {
    JOIN: ("join_group", 6),
    HEARTBEAT: ("heartbeat", 4),
    LEAVE: ("leave_group", 4),
    SYNC: ("sync_group", 4),
    DESCRIBE: ("describe_groups", 5),
    COMMIT: ("offset_commit", 8),
    FIND_COORDINATOR: ("find_coordinator", 3),
    CREATE_TOPICS: ("create_topics", 5),
}
"""With the first version whose headers have tagged fields."""
NOT_READY = frozenset({14, 15, 16})
GRACE_S = 0.05
"""How long a request that should wait is watched for an answer it should not get."""
STEPS = 60
SESSION_MS = REBALANCE_MS = 300_000


class Pending:
    """One request on a connection of its own, so that it can wait while others go on."""

    def __init__(self, bootstrap: str, key: int, version: int, fields: Mapping[str, Any]) -> None:
        self._name, flexible_from = NAMES[key]
        self._version, self._flexible = version, version >= flexible_from
        frame = bytearray(struct.pack(">ihhi", 0, key, version, 1) + string("client"))
        frame += b"\0" if self._flexible else b""
        message_encoder(self._name, version, "request")(frame, fields)
        struct.pack_into(">i", frame, 0, len(frame) - 4)
        self._client = RawClient(bootstrap, timeout_s=30)
        self._client.send(bytes(frame))

    def is_answered(self) -> bool:
        return bool(select.select([self._client.socket], [], [], 0)[0])

    def reply(self) -> Any:
        body = memoryview(self._client.receive() or b"")
        self._client.socket.close()
        position = skip_tagged_fields(body, 4, len(body)) if self._flexible else 4
        read = message_decoder(self._name, self._version, "response")
        return read(body, position, len(body), Budget(len(body)))[0]


class Ids:
    """Member ids: what Kafka calls a member, and what the machine calls it."""

    def __init__(self) -> None:
        self._ours: dict[str, str] = {"": ""}

    def learn(self, theirs: str, ours: str) -> None:
        assert self._ours.setdefault(theirs, ours) == ours, "one member under two ids"

    def ours(self, theirs: str) -> str:
        return self._ours.get(theirs, theirs)

    def theirs(self, ours: str) -> str:
        return next((theirs for theirs, known in self._ours.items() if known == ours), ours)


class Asked(NamedTuple):
    what: str
    key: int
    pending: Pending


class Pair:
    """One group in both."""

    def __init__(self, bootstrap: str, name: str) -> None:
        settings = GroupSettings(classic=ClassicGroupSettings(initial_rebalance_delay_ms=0))
        self.machine = Group(name, settings, ClusterView(version=1, cluster_id="c"))
        self.harness = ClassicHarness(self.machine)
        self.ids = Ids()
        self.told: list[str] = []
        self._bootstrap, self._name = bootstrap, name
        self._asked: dict[ReplyToken, Asked] = {}

    @property
    def state(self) -> Any:
        return self.machine.classic._group

    def waiting(self, member_id: str) -> bool:
        return member_id in self.state.join_tokens or member_id in self.state.sync_tokens

    def _ask(self, key: int, version: int, fields: Mapping[str, Any]) -> Pending:
        return Pending(self._bootstrap, key, version, {"group_id": self._name, **fields})

    def join(self, member_id: str = "", *, version: int = 9, **changes: Any) -> None:
        chosen = changes.get("protocols", protocols("range", metadata=subscription(["t"])))
        fields = {
            "session_timeout": changes.get("session_timeout_ms", SESSION_MS),
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self.ids.theirs(member_id),
            "group_instance_id": changes.get("group_instance_id"),
            "protocol_type": changes.get("protocol_type", "consumer"),
            "protocols": [{"name": name, "metadata": metadata} for name, metadata in chosen],
            "reason": None,
        }
        pending = self._ask(JOIN, version, fields)
        changes = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS, **changes}
        self._compare(
            JOIN, pending, self.harness.join(member_id, version=version, **changes), f"{member_id} {changes}"
        )

    def sync(self, member_id: str, generation: int, **changes: Any) -> None:
        ours = {
            "protocol_type": self.state.protocol_type or "consumer",
            "protocol": self.state.protocol or "range",
        }
        changes = {**ours, **changes}
        given = changes.get("assignments", ())
        fields = {
            "generation_id": generation,
            "member_id": self.ids.theirs(member_id),
            "group_instance_id": changes.get("group_instance_id"),
            "protocol_type": changes["protocol_type"],
            "protocol_name": changes["protocol"],
            "assignments": [
                {"member_id": self.ids.theirs(member), "assignment": assignment}
                for member, assignment in given
            ],
        }
        pending = self._ask(SYNC, 5, fields)
        token = self.harness.sync(member_id, generation, **changes)
        self._compare(SYNC, pending, token, f"{member_id} {generation} {changes}")

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        fields = {
            "generation_id": generation,
            "member_id": self.ids.theirs(member_id),
            "group_instance_id": instance_id,
        }
        theirs = self._ask(HEARTBEAT, 4, fields).reply().error_code.name
        ours = self.harness.heartbeat(member_id, generation, instance_id).name
        self._agree(f"heartbeat {member_id} {generation} {instance_id}", theirs, ours)

    def leave(self, *members: LeavingMember, version: int = 5) -> None:
        listed = [
            {
                "member_id": self.ids.theirs(member.member_id),
                "group_instance_id": member.group_instance_id,
                "reason": None,
            }
            for member in members
        ]
        fields = {"members": listed} if version >= 3 else {"member_id": listed[0]["member_id"]}
        pending = self._ask(LEAVE, version, fields)
        self.harness.leave(*members, version=version)
        self._compare(LEAVE, pending, max(self.harness.given), f"{members}")

    def commit(self, member_id: str, generation: int, instance_id: str | None, version: int) -> None:
        partition = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        fields = {
            "generation_id_or_member_epoch": generation,
            "member_id": self.ids.theirs(member_id),
            "group_instance_id": instance_id,
            "retention_time": -1,
            "topics": [{"name": "t", "partitions": [partition]}],
        }
        reply = self._ask(COMMIT, version, fields).reply()
        token = self.harness.token()
        self.harness.submit(
            OffsetCommit.of(
                token=token,
                version=version,
                offsets=(OffsetToCommit("t", 0, 1),),
                member_id=member_id,
                group_instance_id=instance_id,
                generation=generation,
            )
        )
        ours = self.harness.reply(token, OffsetCommitReply)
        (error,) = ours.errors or (ours.error,)
        theirs = reply.topics[0].partitions[0].error_code
        self._agree(f"commit {member_id} {generation} {instance_id} v{version}", theirs.name, error.name)

    def _compare(self, key: int, pending: Pending, token: ReplyToken, what: str) -> None:
        self._asked[token] = Asked(f"{NAMES[key][0]} {what}", key, pending)
        self.harness.advance(0)  # the initial delay of 0 ms
        answered = {
            token: self._asked.pop(token) for token in list(self._asked) if token in self.harness.replies
        }
        replies = {token: asked.pending.reply() for token, asked in answered.items()}
        for token, theirs in replies.items():
            ours = self.harness.replies[token]
            if isinstance(ours, JoinGroupReply) and ours.error.name in ("none", "member_id_required"):
                self.ids.learn(theirs.member_id, ours.member_id)
        for token, theirs in replies.items():
            self._agree(answered[token].what, self._tell(theirs), _our_words(self.harness.replies[token]))
        time.sleep(GRACE_S)  # in which a reply that comes too early is seen
        early = [asked.what for asked in self._asked.values() if asked.pending.is_answered()]
        self._agree(f"{what}: who still waits", early, [])
        self._compare_descriptions()

    def _tell(self, theirs: Any) -> dict[str, Any]:
        """Kafka's reply in the machine's words."""
        kind = type(theirs).__name__
        told: dict[str, Any] = {"error": theirs.error_code.name}
        ok = told["error"] == "none"
        if kind == "JoinGroupResponse":
            told["member_id"] = self.ids.ours(theirs.member_id)
            if ok:
                told |= {
                    "generation": int(theirs.generation_id),
                    "protocol": theirs.protocol_name,
                    "leader": self.ids.ours(theirs.leader),
                    "skip": getattr(theirs, "skip_assignment", False),
                    "members": {(self.ids.ours(m.member_id), m.metadata) for m in theirs.members},
                }
        elif kind == "SyncGroupResponse":
            told |= {"assignment": theirs.assignment} if ok else {}
            told |= {"protocol": theirs.protocol_name} if ok else {}
        elif hasattr(theirs, "members"):
            told["members"] = [
                (self.ids.ours(m.member_id), m.group_instance_id, m.error_code.name) for m in theirs.members
            ]
        return told

    def _compare_descriptions(self) -> None:
        fields = {"groups": [self._name], "include_authorized_operations": False}
        (theirs,) = Pending(self._bootstrap, DESCRIBE, 6, fields).reply().groups
        ours = self.machine.describe()
        self._agree(
            "describe",
            (
                theirs.group_state,
                theirs.protocol_type,
                theirs.protocol_data,
                {
                    (self.ids.ours(m.member_id), m.group_instance_id, m.member_metadata, m.member_assignment)
                    for m in theirs.members
                    if self.ids.ours(m.member_id) != m.member_id
                },
            ),
            (
                ours.state,
                ours.protocol_type,
                ours.protocol,
                {
                    (m.member_id, m.group_instance_id, m.metadata, m.assignment)
                    for m in ours.members
                    if self.ids.theirs(m.member_id) != m.member_id
                },
            ),
        )
        self._agree("describe: number of members", len(theirs.members), len(ours.members))

    def _agree(self, what: str, theirs: object, ours: object) -> None:
        self.told.append(f"{what} -> {theirs}")
        assert ours == theirs, "\n".join(self.told)


def _our_words(reply: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"error": reply.error.name}
    ok = told["error"] == "none"
    match reply:
        case JoinGroupReply():
            told["member_id"] = reply.member_id
            if ok:
                told |= {
                    "generation": reply.generation,
                    "protocol": reply.protocol,
                    "leader": reply.leader,
                    "skip": reply.skip_assignment,
                    "members": {(m.member_id, m.metadata) for m in reply.members},
                }
        case SyncGroupReply():
            told |= {"assignment": reply.assignment, "protocol": reply.protocol} if ok else {}
        case LeaveGroupReply():
            told["members"] = [(m.member_id, m.group_instance_id, m.error.name) for m in reply.members]
        case ErrorReply():
            pass
    return told


@pytest.fixture(scope="module")
def bootstrap(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}
    with kafka_engine.start(tmp_path_factory.mktemp("kafka"), settings) as node:
        _make_ready(node.bootstrap)
        yield node.bootstrap


def _make_ready(bootstrap: str) -> None:
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    fields: dict[str, Any] = {"topics": [topic], "timeout": 10_000, "validate_only": False}
    Pending(bootstrap, CREATE_TOPICS, 7, fields).reply()
    probe = {"group_id": "probe", "generation_id": 0, "member_id": "m", "group_instance_id": None}

    def is_ready() -> bool:
        Pending(bootstrap, FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["probe"]}).reply()
        return int(Pending(bootstrap, HEARTBEAT, 4, probe).reply().error_code) not in NOT_READY

    wait_until(is_ready, "a coordinator", timeout_s=60, poll_s=0.2)


def test_bad_input_is_refused_with_the_same_codes(bootstrap: str) -> None:
    pair = Pair(bootstrap, "bad-input")
    for session_ms in (0, 5_999, 1_800_001):
        pair.join(session_timeout_ms=session_ms)
    pair.join("stranger")
    pair.heartbeat("stranger", 0)
    pair.sync("stranger", 0)
    pair.leave(LeavingMember("stranger"), LeavingMember("", "nobody"))
    for version in (8, 9):
        pair.commit("stranger", 1, None, version)
    pair.join(protocols=())
    pair.join(protocol_type="")
    pair.commit("stranger", 1, None, 9)
    pair.join(group_instance_id="i")
    (member,) = pair.state.members
    for generation in (0, 1, 2):
        pair.heartbeat(member, generation, "i")
        pair.commit(member, generation, "i", 8)
    pair.join(protocols=protocols("sticky"))
    pair.join(protocol_type="connect")
    pair.sync(member, 1, group_instance_id="i", protocol_type="connect")
    pair.sync(member, 1, group_instance_id="i", protocol="sticky")
    pair.sync(member, 1, group_instance_id="i", protocol=None)
    pair.sync(member, 2, group_instance_id="i")
    pair.sync(member, 1, group_instance_id="nobody")
    pair.sync("stranger", 1, group_instance_id="i")
    pair.sync(member, 1, group_instance_id="i", assignments=((member, b"A"),))
    for who, generation, instance in (
        (member, 1, "i"),
        (member, 1, None),
        (member, 0, "i"),
        ("", -1, None),
        ("stranger", 1, "i"),
        (member, 1, "nobody"),
        (member, -1, "i"),
    ):
        pair.commit(who, generation, instance, 9)
    pair.leave(LeavingMember("stranger", "i"), LeavingMember(member, "i"))
    pair.commit(member, 1, "i", 9)
    pair.commit("", -1, None, 9)


@pytest.mark.parametrize("seed", range(10))
def test_arbitrary_histories_are_answered_alike(bootstrap: str, seed: int) -> None:
    _History(Pair(bootstrap, f"history-{seed}"), random.Random(seed)).run()


class _History:
    def __init__(self, pair: Pair, chance: random.Random) -> None:
        self._pair, self._chance = pair, chance
        self._seen: list[tuple[str, str | None]] = [("stranger", None), ("stranger", "i1")]

    def run(self) -> None:
        actions = {
            self._new: 4.0,
            self._pending_joins: 4.0,
            self._join_again: 3.0,
            self._all_join: 4.0,
            self._all_sync: 6.0,
            self._sync: 2.0,
            self._heartbeat: 4.0,
            self._commit: 3.0,
            self._leave: 2.0,
        }
        for _ in range(STEPS):
            (action,) = self._chance.choices(list(actions), list(actions.values()))
            action()
            for member in self._pair.state.members.values():
                if (member.member_id, member.instance_id) not in self._seen:
                    self._seen.append((member.member_id, member.instance_id))

    def _any(self) -> tuple[str, str | None]:
        """A member mostly; else anybody who ever was one. Nobody whose id Kafka has yet to tell."""
        now = [(m.member_id, m.instance_id) for m in self._pair.state.members.values()]
        among = now if now and self._chance.random() < 0.8 else self._seen
        known = [
            (member_id, instance)
            for member_id, instance in among
            if member_id == "stranger" or self._pair.ids.theirs(member_id) != member_id
        ]
        return self._chance.choice(known or self._seen[:1])

    def _protocols(self) -> Any:
        names = self._chance.choice([("range",), ("range", "sticky"), ("range", "sticky"), ("sticky",)])
        return protocols(*names, metadata=subscription(self._chance.choice([["t"], ["t", "u"]])))

    def _new(self) -> None:
        if len(self._pair.state.members) < 5:
            instance = self._chance.choice([None, None, "i1", "i2"])
            version = self._chance.choice([9, 9, 8, 5] if instance else [9, 5, 3])
            holder = self._pair.state.instances.get(instance)
            if holder is None or not self._pair.waiting(holder):
                self._pair.join(group_instance_id=instance, protocols=self._protocols(), version=version)

    def _pending_joins(self) -> None:
        for member_id in sorted(self._pair.state.pending):
            self._pair.join(member_id, protocols=self._protocols())

    def _join_again(self) -> None:
        member_id, instance = self._any()
        if not self._pair.waiting(member_id):
            self._pair.join(member_id, group_instance_id=instance, protocols=self._protocols())

    def _all_join(self) -> None:
        for member in list(self._pair.state.members.values()):
            if member.member_id in self._pair.state.members and not self._pair.waiting(member.member_id):
                kept = member.protocols if self._chance.random() < 0.8 else self._protocols()
                self._pair.join(member.member_id, group_instance_id=member.instance_id, protocols=kept)

    def _assignments(self) -> tuple[tuple[str, bytes], ...]:
        return tuple((member_id, b"for " + member_id.encode()) for member_id in self._pair.state.members)

    def _all_sync(self) -> None:
        for member in list(self._pair.state.members.values()):
            if self._pair.ids.theirs(member.member_id) != member.member_id:
                self._sync_as(member.member_id, member.instance_id, self._pair.state.generation)

    def _sync(self) -> None:
        generation = self._pair.state.generation + self._chance.choice([0, 0, 0, -1, 1])
        self._sync_as(*self._any(), generation)

    def _sync_as(self, member_id: str, instance: str | None, generation: int) -> None:
        if not self._pair.waiting(member_id):
            self._pair.sync(
                member_id, generation, group_instance_id=instance, assignments=self._assignments()
            )

    def _heartbeat(self) -> None:
        member_id, instance = self._any()
        generation = self._pair.state.generation + self._chance.choice([0, 0, 0, -1, 1])
        self._pair.heartbeat(member_id, generation, self._chance.choice([instance, instance, "i1", None]))

    def _commit(self) -> None:
        member_id, instance = self._chance.choice([self._any(), self._any(), ("", None)])
        generation = self._pair.state.generation + self._chance.choice([0, 0, -1])
        self._pair.commit(member_id, generation if member_id else -1, instance, self._chance.choice([8, 9]))

    def _leave(self) -> None:
        state = self._pair.state
        member_id, instance = self._any()
        leads_many = member_id == state.leader and len(state.members) > 2
        if leads_many or member_id in state.sync_tokens:
            return
        by_instance = instance is not None and state.instances.get(instance) == member_id
        name = "" if by_instance and self._chance.random() < 0.3 else member_id
        self._pair.leave(LeavingMember(name, instance))
