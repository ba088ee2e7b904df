# SPDX-License-Identifier: Apache-2.0
"""Range and round robin against what Apache Kafka 4.3.0 itself answered (kafka_assignments.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.assignors import range as range_assignor
from headrace.assignors import round_robin
from headrace.assignors.subscriptions import Subscriber, in_kafka_order

CASES = json.loads((Path(__file__).parent / "kafka_assignments.json").read_text())
ASSIGNORS = {"range": range_assignor.assign, "roundrobin": round_robin.assign}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['assignor']}-{len(case['members'])}")
def test_equal_to_kafka(case: dict[str, Any]) -> None:
    members = [
        Subscriber(member_id=member_id, instance_id=instance_id, topics=topics)
        for member_id, instance_id, topics in case["members"]
    ]
    assert ASSIGNORS[case["assignor"]](members, case["partitions"]) == case["assignment"]


def test_names_are_those_clients_send() -> None:
    assert (range_assignor.NAME, round_robin.NAME) == ("range", "roundrobin")


def test_static_members_come_first_by_instance_id() -> None:
    members = [
        Subscriber(member_id="a", topics=["t"]),
        Subscriber(member_id="z", instance_id="2", topics=["t"]),
        Subscriber(member_id="y", instance_id="1", topics=["t"]),
    ]
    assert [member.member_id for member in in_kafka_order(members)] == ["y", "z", "a"]


def test_ids_are_compared_by_utf16_units_as_java_does() -> None:
    beyond_the_base_plane, private_use = "\U00010000", "\ue000"
    members = [Subscriber(member_id=text, topics=["t"]) for text in (private_use, beyond_the_base_plane)]
    assert in_kafka_order(members)[0].member_id == beyond_the_base_plane


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_a_topic_that_does_not_exist_is_passed_over(assign: Any) -> None:
    assert assign([Subscriber(member_id="m", topics=["gone", "t"])], {"t": 1}) == {"m": {"t": [0]}}


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_nobody_gets_nothing(assign: Any) -> None:
    assert assign([], {"t": 3}) == {}
