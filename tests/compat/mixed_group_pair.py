# SPDX-License-Identifier: Apache-2.0
"""One group in Apache Kafka and in the machine, asked the same by either protocol, reply by reply.

The machine is given the member ids that Kafka chose, so that targets of the range assignor can be compared.
Not compared: who leads a classic group, for Kafka's first leader after a downgrade depends on a hash.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace.machines.groups.events import (
    ErrorReply,
    JoinGroupReply,
    JoinProtocol,
    LeaveGroupReply,
    LeavingMember,
    SyncGroupReply,
)
from headrace.machines.machine import ReplyToken
from headrace.wire.coordinator.consumer_protocol import assigned_partitions
from tests.harness.groups.consumer_groups import topic_id
from tests.harness.groups.mixed_groups import MixedHarness, subscription
from tests.harness.groups.wire import read_reply, request
from tests.harness.live.raw_client import RawClient
from tests.harness.waiting import poll

GRACE_S = 0.03
"""How long a request that should wait is watched for an answer it should not get."""
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
            time.sleep(GRACE_S)  # in which a reply that comes too early is seen
        early = [asked.what for asked in self._asked.values() if asked.pending.is_answered()]
        self._agree("answered too early", early, [])
        self._compare_descriptions()

    def _compare_descriptions(self) -> None:
        """Kafka describes what is committed, which may take it a moment longer than its reply."""
        self._agree("describe", *poll(self._descriptions, lambda both: both[0] == both[1], timeout_s=2))

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
