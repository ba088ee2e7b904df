# SPDX-License-Identifier: Apache-2.0
"""Groups as coordinators describe them: both protocols, other protocol types, older versions; patience."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.client.kafka_errors import code_error
from headrace.client.tools import group_calls
from headrace.client.tools.group_calls import (
    GroupListing,
    committed_offsets,
    describe_groups,
    list_groups,
    with_retries,
)
from headrace.types import TopicPartition


def assignment(topic: str, *partitions: int) -> bytes:
    entry = struct.pack(f">h{len(topic)}si", len(topic), topic.encode(), len(partitions))
    return struct.pack(">hi", 1, 1) + entry + struct.pack(f">{len(partitions)}i", *partitions)


def classic(protocol_type: str = "consumer", **other: Any) -> SimpleNamespace:
    member = {"member_id": "m-1", "client_id": "app", "client_host": "/10.0.0.7"}
    members = [SimpleNamespace(**member, member_assignment=assignment("orders", 1, 0))]
    fields = {"error_code": 0, "group_id": "g", "group_state": "Stable", "protocol_data": "range"}
    return SimpleNamespace(**{**fields, "protocol_type": protocol_type, "members": members, **other})


def modern() -> SimpleNamespace:
    topics = [SimpleNamespace(topic_name="orders", partitions=[1, 0])]
    member = SimpleNamespace(
        member_id="m-1",
        instance_id="i-1",
        client_id="app",
        client_host="/10.0.0.7",
        assignment=SimpleNamespace(topic_partitions=topics),
    )
    fields = {"error_code": 0, "group_id": "k", "group_state": "Reconciling", "group_epoch": 4}
    return SimpleNamespace(**fields, assignor_name="uniform", members=[member])


class FakeBrokers:
    """Two nodes that answer from a table; says what it was asked."""

    def __init__(self, replies: dict[int, Any]) -> None:
        self.replies = replies
        self.asked: list[tuple[int | None, int]] = []

    def __call__(self, bootstrap: str) -> FakeBrokers:
        return self

    async def __aenter__(self) -> FakeBrokers:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def node_ids(self) -> list[int]:
        return [1, 2]

    async def call_any(self, api_key: int, fields: Any) -> Any:
        self.asked.append((None, api_key))
        return self.replies[api_key]

    async def call_node(self, node_id: int, api_key: int, fields: Any, *, newest: int | None = None) -> Any:
        self.asked.append((node_id, api_key))
        return self.replies[api_key]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(replies: dict[int, Any]) -> FakeBrokers:
        brokers = FakeBrokers(replies)
        monkeypatch.setattr(group_calls, "Brokers", brokers)
        return brokers

    return use


def listing(group_id: str, group_type: str, node_id: int = 1) -> GroupListing:
    return GroupListing(
        group_id=group_id, protocol_type="consumer", group_type=group_type, state="Stable", node_id=node_id
    )


def test_every_node_lists_its_own_groups_and_older_ones_know_no_types(answering: Any) -> None:
    old = SimpleNamespace(group_id="g", protocol_type="consumer")
    answering({16: SimpleNamespace(error_code=0, groups=[old])})
    found = asyncio.run(list_groups("b"))
    assert [(group.node_id, group.group_type, group.state) for group in found] == [
        (1, "classic", ""),
        (2, "classic", ""),
    ]


def test_each_coordinator_is_asked_about_its_groups_in_their_own_protocol(answering: Any) -> None:
    brokers = answering({15: SimpleNamespace(groups=[classic()]), 69: SimpleNamespace(groups=[modern()])})
    found = asyncio.run(describe_groups("b", [listing("g", "classic"), listing("k", "consumer", 2)]))
    assert brokers.asked == [(1, 15), (2, 69)]
    both = (TopicPartition("orders", 0), TopicPartition("orders", 1))
    assert found["g"].members[0].assigned == found["k"].members[0].assigned == both
    assert found["g"].members[0].host == "10.0.0.7"
    assert (found["k"].state, found["k"].epoch) == ("Reconciling", 4)
    assert found["k"].members[0].instance_id == "i-1"
    assert found["g"].active
    assert found["g"].assigned[both[0]].member_id == "m-1"


def test_assignments_of_connect_are_not_decoded(answering: Any) -> None:
    answering({15: SimpleNamespace(groups=[classic("connect")])})
    found = asyncio.run(describe_groups("b", [listing("g", "classic")]))
    assert found["g"].members[0].assigned == ()


def test_a_group_that_ended_meanwhile_is_missing(answering: Any) -> None:
    dead = classic(group_id="a", group_state="Dead", members=[])
    unknown = classic(group_id="b", error_code=69)
    answering({15: SimpleNamespace(groups=[dead, unknown])})
    assert asyncio.run(describe_groups("b", [listing("a", "classic"), listing("b", "classic")])) == {}


def test_a_refusal_is_raised(answering: Any) -> None:
    answering({15: SimpleNamespace(groups=[classic(error_code=30)])})
    with pytest.raises(ClientError, match="no ACL allows you to do this to group 'g'"):
        asyncio.run(describe_groups("b", [listing("g", "classic")]))


@pytest.mark.parametrize("old", [True, False])
def test_committed_offsets_of_new_and_old_brokers(answering: Any, old: bool) -> None:
    entries = [(1, 7, 0), (0, 5, 0), (2, -1, 0), (3, 9, 3)]
    partitions = [
        SimpleNamespace(partition_index=index, committed_offset=offset, error_code=error)
        for index, offset, error in entries
    ]
    topics = [SimpleNamespace(name="orders", partitions=partitions)]
    answer = SimpleNamespace(error_code=0, group_id="g", topics=topics)
    coordinator = SimpleNamespace(error_code=0, node_id=2)
    new_replies = {10: SimpleNamespace(coordinators=[coordinator]), 9: SimpleNamespace(groups=[answer])}
    brokers = answering({10: coordinator, 9: answer} if old else new_replies)
    found = asyncio.run(committed_offsets("b", {"g": None}))
    assert found == {"g": {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 7}}
    assert brokers.asked == [(None, 10), (2, 9)]
    asyncio.run(committed_offsets("b", {"g": 1}))
    assert brokers.asked[2:] == [(1, 9)], "a coordinator that is known is not looked for"


def test_a_coordinator_that_is_not_ready_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_calls, "_RETRY_MS", 0)
    answers = ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"]

    async def ask() -> str:
        if answers:
            raise code_error(answers.pop(), name="g", kind="group")
        return "ready"

    assert asyncio.run(with_retries(ask)) == "ready"


def test_any_other_failure_is_final() -> None:
    async def ask() -> None:
        raise code_error("GROUP_AUTHORIZATION_FAILED", name="g", kind="group")

    with pytest.raises(ClientError, match="no ACL allows"):
        asyncio.run(with_retries(ask))
