# SPDX-License-Identifier: Apache-2.0
"""A group's story from two looks at it, and the forms in which members, samples and events are written."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.groups.event_text import sentence
from headrace.client.tools.group_calls import GroupDescription, GroupMember, read_assignment
from headrace.client.tools.group_events import GroupEvent, Look, differences, read_event
from headrace.client.tools.lag import Sample
from headrace.client.tools.lag_samples import read_samples
from headrace.types import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def group(state: str = "Stable", **held: tuple[TopicPartition, ...]) -> GroupDescription:
    members = tuple(
        GroupMember(member_id=name, instance_id=None, client_id=name, host="h", assigned=partitions)
        for name, partitions in held.items()
    )
    return GroupDescription(
        group_id="g",
        protocol_type="consumer",
        group_type="classic",
        state=state,
        assignor="range",
        epoch=None,
        node_id=1,
        members=members,
    )


def look(seen: GroupDescription | None, **committed: int) -> Look:
    offsets = {TopicPartition("orders", int(name[1:])): offset for name, offset in committed.items()}
    return Look(at_ms=7, group=seen, committed=offsets)


def kinds(events: list[GroupEvent]) -> list[str]:
    return [event.kind for event in events]


@pytest.mark.row("D21")
def test_a_consumer_joins_and_takes_from_the_other() -> None:
    told = differences(look(group(a=(P0, P1)), p0=5), look(group(a=(P0,), b=(P1,)), p0=9))
    assert kinds(told) == ["join", "assigned", "commit"]
    assert told[1].details == {
        "members": 2,
        "moved_count": 1,
        "moved": [("orders-1", "a", "b")],
        "given": 0,
        "taken": 0,
    }
    assert told[2].details == {"partitions": 1, "offsets": [("orders", 0, 9)], "records": 4}
    assert {event.at_ms for event in told} == {7}


def test_a_consumer_leaves_and_the_group_changes_its_state() -> None:
    told = differences(look(group(a=(P0,), b=(P1,))), look(group("PreparingRebalance", a=(P0,))))
    assert kinds(told) == ["leave", "state", "assigned"]
    assert told[1].details == {"from": "Stable", "to": "PreparingRebalance"}


def test_the_first_poll_reports_members_and_no_commits() -> None:
    assert kinds(differences(None, look(group(a=(P0,)), p0=5))) == ["present", "state", "assigned"]
    assert differences(None, look(None)) == []


def test_nothing_happened() -> None:
    assert differences(look(group(a=(P0,)), p0=5), look(group(a=(P0,)), p0=5)) == []


def test_a_group_is_deleted() -> None:
    assert kinds(differences(look(group("Empty")), look(None))) == ["state"]


def test_the_assignment_of_a_classic_consumer() -> None:
    topic = struct.pack(">h", 6) + b"orders" + struct.pack(">iii", 2, 1, 0)
    data = struct.pack(">hi", 1, 1) + topic + struct.pack(">i", -1)
    assert read_assignment(data) == (P0, P1)
    assert read_assignment(b"") == ()


@given(st.binary(max_size=200))
def test_an_undecodable_assignment_is_empty(data: bytes) -> None:
    assert isinstance(read_assignment(data), tuple)


def test_a_record_of_samples() -> None:
    key, value = b'{"topic":"orders","partition":0}', b'{"samples":[[1,10],[5,20]],"rate_in":2.5}'
    assert read_samples(key, value) == (P0, (Sample(1, 10), Sample(5, 20)))
    for wrong in (None, b"", b"{}", b"[]", b'{"samples":[1]}', b"\xff"):
        assert read_samples(key, wrong) is None


def test_a_written_event() -> None:
    value = b'{"at":5,"kind":"join","group":"g","details":{"member_id":"a"}}'
    assert read_event(value) == GroupEvent(at_ms=5, kind="join", details={"member_id": "a"})
    assert read_event(b'{"at":5,"kind":"join"}') == GroupEvent(at_ms=5, kind="join", details={})
    for wrong in (None, b"", b"{}", b"[]", b"\xff"):
        assert read_event(wrong) is None


@pytest.mark.row("D21")
def test_events_of_every_version_up_to_ours_are_read() -> None:
    before_versions = b'{"at":7,"kind":"commit","group":"g","details":{"member_id":"m","partitions":3}}'
    ours = (
        b'{"version":2,"at":7,"kind":"commit","group":"g",'
        b'"details":{"member_id":"m","partitions":1,"offsets":[["t",0,5]]}}'
    )
    sentences = [sentence(event) for event in map(read_event, (before_versions, ours)) if event]
    assert sentences == ["m committed 3 partitions", "m committed t-0 at 5"]
    assert read_event(ours.replace(b'"version":2', b'"version":3')) is None
