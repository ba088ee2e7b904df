# SPDX-License-Identifier: Apache-2.0
"""Bad input, groups: members nobody knows, stale generations, illegal time-outs, too much metadata (T16).

Raw requests against a live node; the codes are Apache Kafka's. The group's honest member works on after each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.wire.error_codes import ErrorCode
from tests.harness.groups import wire as wire
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient
from tests.harness.waiting import wait_until

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "60000",
    "group.max.size": "2",
    "group.consumer.max.size": "2",
    "offset.metadata.max.bytes": "100",
}
TOPIC = "bad-input"
SESSION_MS = 30_000


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("HEADRACE_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with NodeProcess(tmp_path_factory.mktemp("bad-groups"), settings=SETTINGS) as node:
        yield node.bootstrap


@dataclass
class Peer:
    """A connection that says anything."""

    client: RawClient
    group: str

    def ask(self, name: str, fields: Mapping[str, Any], *, version: int | None = None) -> Any:
        self.client.send(wire.request(name, fields, version=version))
        frame = self.client.receive()
        assert frame is not None, "the node closed the connection"
        return wire.read_reply(name, frame, version=version)

    def join(self, member_id: str = "", **changes: Any) -> Any:
        fields = wire.join_fields(self.group, member_id, [TOPIC], session_ms=SESSION_MS)
        return self.ask("join_group", {**fields, **changes})

    def heartbeat(self, member_id: str, generation: int, **changes: Any) -> ErrorCode:
        fields = {"group_id": self.group, "generation_id": generation, "member_id": member_id, **changes}
        return self.ask("heartbeat", fields).error_code

    def sync(self, member_id: str, generation: int, **changes: Any) -> ErrorCode:
        fields = wire.sync_fields(self.group, member_id, generation, {member_id: b""})
        return self.ask("sync_group", {**fields, **changes}).error_code

    def commit(
        self,
        member_id: str,
        epoch: int,
        *,
        topic: str = TOPIC,
        note: str = "",
        version: int = 9,
        **changes: Any,
    ) -> ErrorCode:
        fields = wire.commit_fields(self.group, member_id, epoch, topic, {0: 1}, note)
        reply = self.ask("offset_commit", {**fields, **changes}, version=version)
        return reply.topics[0].partitions[0].error_code

    def beat(self, member_id: str, epoch: int, /, **changes: Any) -> Any:
        """A ConsumerGroupHeartbeat; joins when the epoch is 0."""
        joining = {
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [],
        }
        fields = {"group_id": self.group, "member_id": member_id, "member_epoch": epoch}
        return self.ask("consumer_group_heartbeat", {**fields, **(joining if epoch == 0 else {}), **changes})


@pytest.fixture(scope="module", autouse=True)
def _ready(bootstrap: str) -> None:
    """A topic to read, and a coordinator: the first who asks for one makes the topic that it needs."""
    with RawClient(bootstrap) as client:
        client.create_topic(TOPIC, 2)
        peer = Peer(client, "any")
        wanted = {"key_type": 0, "coordinator_keys": [peer.group]}

        def is_found() -> bool:
            found = peer.ask("find_coordinator", wanted).coordinators[0]
            return found.error_code is ErrorCode.none

        wait_until(is_found, "a group coordinator")


@pytest.fixture
def peer(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[Peer]:
    with RawClient(bootstrap) as client:
        yield Peer(client, request.node.name)


@dataclass
class Honest:
    """The member of a group that must not suffer."""

    member_id: str
    generation: int


@pytest.fixture
def honest(peer: Peer) -> Iterator[Honest]:
    required = peer.join()
    assert required.error_code is ErrorCode.member_id_required
    joined = peer.join(required.member_id)
    assert joined.error_code is ErrorCode.none
    member = Honest(joined.member_id, joined.generation_id)
    assert peer.sync(member.member_id, member.generation) is ErrorCode.none
    yield member
    assert peer.heartbeat(member.member_id, member.generation) is ErrorCode.none
    assert peer.commit(member.member_id, member.generation) is ErrorCode.none


@pytest.fixture
def modern(peer: Peer) -> Iterator[Honest]:
    joined = peer.beat("honest-member", 0)
    assert joined.error_code is ErrorCode.none
    yield Honest("honest-member", joined.member_epoch)
    assert peer.beat("honest-member", joined.member_epoch).error_code is ErrorCode.none
    assert peer.commit("honest-member", joined.member_epoch) is ErrorCode.none


# -- classic -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout": 5_999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout": 60_001}, ErrorCode.invalid_session_timeout),
        ({"session_timeout": -1}, ErrorCode.invalid_session_timeout),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
    ],
    ids=["no group", "short session", "long session", "negative session", "no protocols", "no protocol type"],
)
def test_a_join_that_cannot_be(peer: Peer, changes: dict[str, Any], code: ErrorCode) -> None:
    required = peer.join()
    assert required.error_code is ErrorCode.member_id_required
    assert peer.join(required.member_id, **changes).error_code is code


def test_a_join_of_an_unknown_member(peer: Peer, honest: Honest) -> None:
    assert peer.join("nobody").error_code is ErrorCode.unknown_member_id


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": [{"name": "another", "metadata": b""}]},
        {"protocols": []},
    ],
    ids=["another type", "nothing in common", "no protocols"],
)
def test_a_join_with_inconsistent_protocols(peer: Peer, honest: Honest, changes: dict[str, Any]) -> None:
    assert peer.join(**changes).error_code is ErrorCode.inconsistent_group_protocol


def test_an_unknown_member(peer: Peer, honest: Honest) -> None:
    assert peer.heartbeat("nobody", honest.generation) is ErrorCode.unknown_member_id
    assert peer.sync("nobody", honest.generation) is ErrorCode.unknown_member_id
    assert peer.commit("nobody", honest.generation) is ErrorCode.unknown_member_id
    left = peer.ask("leave_group", {"group_id": peer.group, "members": [{"member_id": "nobody"}]})
    assert left.members[0].error_code is ErrorCode.unknown_member_id


@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_stale_or_future_generation(peer: Peer, honest: Honest, off_by: int) -> None:
    generation = honest.generation + off_by
    assert peer.heartbeat(honest.member_id, generation) is ErrorCode.illegal_generation
    assert peer.sync(honest.member_id, generation) is ErrorCode.illegal_generation
    assert peer.commit(honest.member_id, generation) is ErrorCode.illegal_generation


def test_a_sync_with_another_protocol(peer: Peer, honest: Honest) -> None:
    for changes in ({"protocol_type": "connect"}, {"protocol_name": "another"}):
        code = peer.sync(honest.member_id, honest.generation, **changes)
        assert code is ErrorCode.inconsistent_group_protocol


def test_an_unknown_group(peer: Peer) -> None:
    assert peer.heartbeat("nobody", 1) is ErrorCode.unknown_member_id
    assert peer.sync("nobody", 1) is ErrorCode.unknown_member_id
    assert peer.commit("nobody", 1, version=8) is ErrorCode.illegal_generation
    assert peer.commit("nobody", 1, version=9) is ErrorCode.group_id_not_found
    assert peer.beat("nobody", 1).error_code is ErrorCode.group_id_not_found
    deleted = peer.ask("delete_groups", {"groups_names": [peer.group]})
    assert deleted.results[0].error_code is ErrorCode.group_id_not_found


def test_a_simple_consumer_may_not_commit_for_a_group_with_members(peer: Peer, honest: Honest) -> None:
    assert peer.commit("", -1) is ErrorCode.unknown_member_id


def test_commits_with_too_much_metadata_or_for_no_topic(peer: Peer, honest: Honest) -> None:
    def commit(**changes: Any) -> ErrorCode:
        return peer.commit(honest.member_id, honest.generation, **changes)

    assert commit(note="m" * 100) is ErrorCode.none
    assert commit(note="m" * 101) is ErrorCode.offset_metadata_too_large
    assert commit(topic="no-such-topic") is ErrorCode.unknown_topic_or_partition


def test_a_static_member_with_the_id_of_another_is_fenced(peer: Peer) -> None:
    joined = peer.join(group_instance_id="instance")
    assert joined.error_code is ErrorCode.none, "static members need no second try"
    generation = joined.generation_id
    assert peer.sync(joined.member_id, generation, group_instance_id="instance") is ErrorCode.none
    for ask in (peer.heartbeat, peer.sync, peer.commit):
        assert ask("nobody", generation, group_instance_id="instance") is ErrorCode.fenced_instance_id
        assert ask(joined.member_id, generation, group_instance_id="other") is ErrorCode.unknown_member_id
    assert peer.join("nobody", group_instance_id="instance").error_code is ErrorCode.fenced_instance_id


def test_offsets_of_subscribed_topics_are_not_deleted(peer: Peer, honest: Honest) -> None:
    wanted = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    deleted = peer.ask("offset_delete", {"group_id": peer.group, "topics": wanted})
    assert deleted.topics[0].partitions[0].error_code is ErrorCode.group_subscribed_to_topic
    removed = peer.ask("delete_groups", {"groups_names": [peer.group]})
    assert removed.results[0].error_code is ErrorCode.non_empty_group


# -- KIP-848 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.invalid_request),
        ({"member_id": ""}, ErrorCode.invalid_request),
        ({"rebalance_timeout": -1}, ErrorCode.invalid_request),
        ({"subscribed_topic_names": None}, ErrorCode.invalid_request),
        ({"topic_partitions": None}, ErrorCode.invalid_request),
        ({"instance_id": ""}, ErrorCode.invalid_request),
        ({"server_assignor": "no-such-assignor"}, ErrorCode.unsupported_assignor),
        ({"subscribed_topic_regex": "(unbalanced"}, ErrorCode.invalid_regular_expression),
        ({"subscribed_topic_regex": "(?!look-ahead)"}, ErrorCode.invalid_regular_expression),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_kip_848_join_that_cannot_be(peer: Peer, changes: dict[str, Any], code: ErrorCode) -> None:
    assert peer.beat("member", 0, **changes).error_code is code


def test_an_unknown_kip_848_member(peer: Peer, modern: Honest) -> None:
    assert peer.beat("nobody", modern.generation).error_code is ErrorCode.unknown_member_id
    assert peer.beat("nobody", -1).error_code is ErrorCode.unknown_member_id
    assert peer.commit("nobody", modern.generation) is ErrorCode.unknown_member_id
    assert peer.heartbeat("nobody", 1) is ErrorCode.unknown_member_id


def test_a_stale_or_future_member_epoch(peer: Peer, modern: Honest) -> None:
    future = modern.generation + 1
    assert peer.beat(modern.member_id, future).error_code is ErrorCode.fenced_member_epoch
    assert peer.commit(modern.member_id, future) is ErrorCode.stale_member_epoch
    fetched = peer.ask(
        "offset_fetch",
        wire.fetch_fields(peer.group, TOPIC, [0], member_id=modern.member_id, epoch=future),
    )
    assert fetched.groups[0].error_code is ErrorCode.stale_member_epoch


def test_an_instance_id_that_is_in_use(peer: Peer) -> None:
    first = peer.beat("first", 0, instance_id="instance")
    assert first.error_code is ErrorCode.none
    assert peer.beat("second", 0, instance_id="instance").error_code is ErrorCode.unreleased_instance_id
    assert peer.beat("first", first.member_epoch).error_code is ErrorCode.none


def test_a_full_group_accepts_no_member(peer: Peer) -> None:
    for name in ("one", "two"):
        assert peer.beat(name, 0).error_code is ErrorCode.none
    assert peer.beat("three", 0).error_code is ErrorCode.group_max_size_reached
