# SPDX-License-Identifier: Apache-2.0
"""CreateTopics, DeleteTopics and CreatePartitions: the codes and words of Apache Kafka, in every version."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.types import TopicPartition
from tests.harness.broker.admin_node import AdminNode, on_a_node

CREATE, DELETE, ADD = 19, 20, 37


def wanted(name: str, partitions: int = -1, factor: int = -1, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [
            {"partition_index": index, "broker_ids": replicas}
            for index, replicas in more.get("assignments", ())
        ],
        "configs": [{"name": key, "value": value} for key, value in more.get("configs", ())],
    }


async def create(node: AdminNode, *topics: dict[str, Any], version: int = 7, **more: Any) -> Any:
    request = {"timeout": 1000, "validate_only": False, "topics": list(topics)} | more
    return (await node.call(CREATE, version, **request)).topics


async def refusal(node: AdminNode, *topics: dict[str, Any]) -> tuple[ErrorCode, str]:
    result = (await create(node, *topics))[0]
    return result.error_code, result.error_message


async def delete(node: AdminNode, *topics: dict[str, Any], version: int = 6) -> Any:
    if version < 6:
        request: dict[str, Any] = {"topic_names": [topic["name"] for topic in topics]}
    else:
        request = {"topics": [{"name": None, "topic_id": None} | topic for topic in topics]}
    return (await node.call(DELETE, version, timeout=1000, **request)).responses


# CreateTopics


@pytest.mark.parametrize("version", [2, 7])
def test_an_error_that_quotes_a_very_long_request_is_shortened(version: int) -> None:
    """Found by fuzzing: the message did not fit a string of the reply, and the connection was closed."""

    async def scenario(node: AdminNode) -> None:
        missing = [(f"{number}-{'x' * 5000}", None) for number in range(20)]
        (result,) = await create(node, wanted("t", 1, 1, configs=missing), version=version)
        assert result.error_code is ErrorCode.invalid_config
        assert len(result.error_message) <= 1001
        assert result.error_message.endswith("…")

    on_a_node(scenario)


@pytest.mark.row("D3")
@pytest.mark.row("D18")
@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_made_with_the_given_or_the_default_number_of_partitions(version: int) -> None:
    async def scenario(node: AdminNode) -> None:
        results = await create(node, wanted("three", 3, 1), wanted("default"), version=version)
        assert [(each.name, each.error_code) for each in results] == [
            ("three", ErrorCode.none),
            ("default", ErrorCode.none),
        ]
        view = node.cluster.view
        assert len(view.topics["three"].partitions) == 3
        assert len(view.topics["default"].partitions) == 1
        state = view.topics["three"].partitions[0]
        assert (state.replicas, state.leader, state.leader_epoch, state.isr) == ((1,), 1, 0, (1,))
        assert state.controller_epoch == 1
        if version >= 5:
            assert [(each.num_partitions, each.replication_factor) for each in results] == [(3, 1), (1, 1)]
        if version >= 7:
            assert results[0].topic_id == view.topics["three"].topic_id

    on_a_node(scenario)


def test_the_broker_s_default_count_is_a_setting() -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("t"))
        assert len(node.cluster.view.topics["t"].partitions) == 5

    on_a_node(scenario, settings={"num.partitions": "5"})


def test_the_reply_lists_the_settings_of_a_new_topic_with_their_source() -> None:
    async def scenario(node: AdminNode) -> None:
        (result,) = await create(node, wanted("t", configs=[("retention.ms", "1000")]))
        told = {config.name: config for config in result.configs}
        assert list(told) == sorted(told)
        assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("1000", 1)
        assert (told["segment.bytes"].value, told["segment.bytes"].config_source) == ("2097152", 4)
        assert (told["cleanup.policy"].value, told["cleanup.policy"].config_source) == ("delete", 5)
        assert not any(config.read_only or config.is_sensitive for config in result.configs)

    on_a_node(scenario, settings={"log.segment.bytes": "2097152"})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a/b", "contains one or more characters other than ASCII alphanumerics"),
        ("ä", "contains one or more characters other than ASCII alphanumerics"),
        ("a\n", "contains one or more characters other than ASCII alphanumerics"),
        ("x" * 250, "longer than the max allowed length 249"),
    ],
)
def test_illegal_names_are_refused(name: str, words: str) -> None:
    async def scenario(node: AdminNode) -> None:
        code, message = await refusal(node, wanted(name))
        assert code is ErrorCode.invalid_topic_exception
        assert words in message
        assert node.cluster.view.topics == {}

    on_a_node(scenario)


@pytest.mark.parametrize("name", ["x" * 249, "...", "a-b_c.D9"])
def test_legal_names_are_taken(name: str) -> None:
    async def scenario(node: AdminNode) -> None:
        assert (await create(node, wanted(name)))[0].error_code is ErrorCode.none
        assert str(TopicPartition(name, 0))

    on_a_node(scenario)


def test_names_that_differ_in_dots_and_underscores_only_collide() -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("my.topic"))
        code, message = await refusal(node, wanted("my_topic"))
        assert code is ErrorCode.invalid_topic_exception
        assert message == "Topic 'my_topic' collides with existing topic: my.topic"
        await delete(node, {"name": "my.topic"})
        assert (await create(node, wanted("my_topic")))[0].error_code is ErrorCode.none

    on_a_node(scenario)


def test_an_existing_topic_is_refused_with_its_name() -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("t"))
        assert await refusal(node, wanted("t")) == (
            ErrorCode.topic_already_exists,
            "Topic 't' already exists.",
        )

    on_a_node(scenario)


def test_a_name_given_twice_is_refused_once_and_the_others_are_made() -> None:
    async def scenario(node: AdminNode) -> None:
        results = await create(node, wanted("twice"), wanted("once"), wanted("twice"))
        assert [each.error_code for each in results] == [
            ErrorCode.invalid_request,
            ErrorCode.none,
        ]
        assert set(node.cluster.view.topics) == {"once"}

    on_a_node(scenario)


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (wanted("t", 0, 1), ErrorCode.invalid_partitions, "invalid non-positive value"),
        (wanted("t", -2, 1), ErrorCode.invalid_partitions, "invalid non-positive value"),
        (wanted("t", 1, 0), ErrorCode.invalid_replication_factor, "larger than 0, or -1"),
        (wanted("t", 1, -2), ErrorCode.invalid_replication_factor, "larger than 0, or -1"),
        (wanted("t", 1, 2), ErrorCode.invalid_replication_factor, "only 1 broker(s) are registered"),
        (wanted("t", 2**31 - 1, 1), ErrorCode.policy_violation, "Excessively large number of partitions"),
        (wanted("t", configs=[("no.such", "1")]), ErrorCode.invalid_config, "no.such"),
        (wanted("t", configs=[("retention.ms", "soon")]), ErrorCode.invalid_config, "retention.ms"),
        (wanted("t", configs=[("retention.ms", None)]), ErrorCode.invalid_config, "Null value not supported"),
        (wanted("__cluster_metadata"), ErrorCode.invalid_request, "prohibited"),
        (wanted("t", assignments=[(0, [9])]), ErrorCode.invalid_replica_assignment, "no such broker"),
        (wanted("t", assignments=[(0, [])]), ErrorCode.invalid_replica_assignment, "empty replica list"),
        (wanted("t", assignments=[(0, [1, 1])]), ErrorCode.invalid_replica_assignment, "more than once"),
        (wanted("t", assignments=[(1, [1])]), ErrorCode.invalid_replica_assignment, "consecutive 0-based"),
        (wanted("t", 1, -1, assignments=[(0, [1])]), ErrorCode.invalid_request, "numPartitions was not set"),
        (wanted("t", -1, 1, assignments=[(0, [1])]), ErrorCode.invalid_request, "replication factor was not"),
        (
            wanted("t", assignments=[(0, [1]), (0, [1])]),
            ErrorCode.invalid_replica_assignment,
            "multiple manual partition assignments for partition 0",
        ),
    ],
)
def test_topics_are_refused_as_by_apache_kafka(topic: Any, code: ErrorCode, words: str) -> None:
    async def scenario(node: AdminNode) -> None:
        found, message = await refusal(node, topic)
        assert found is code
        assert words in message
        assert node.cluster.view.topics == {}

    on_a_node(scenario)


def test_a_manual_assignment_is_kept_as_given() -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("t", assignments=[(1, [3, 1]), (0, [2, 3])]))
        assert [state.replicas for state in node.cluster.view.topics["t"].partitions] == [(2, 3), (3, 1)]
        code, message = await refusal(node, wanted("u", assignments=[(0, [1, 2]), (1, [1])]))
        assert code is ErrorCode.invalid_replica_assignment
        assert "not consistent with previous partitions, which have 2" in message

    on_a_node(scenario, other_nodes=2)


def test_replicas_are_spread_over_the_nodes_that_are_there() -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("a", 3, 2))
        leaders = Counter(state.leader for state in node.cluster.view.topics["a"].partitions)
        assert leaders == {1: 1, 2: 1, 3: 1}
        await create(node, *(wanted(f"together-{n}", 1, 1) for n in range(9)))
        for n in range(3):
            await create(node, wanted(f"alone-{n}", 1, 1))
        topics = node.cluster.view.topics.values()
        assert Counter(s.leader for t in topics for s in t.partitions) == {1: 5, 2: 5, 3: 5}
        await delete(node, *({"name": name} for name in list(node.cluster.view.topics)))
        await create(node, wanted("again", 3, 1))
        again = node.cluster.view.topics["again"]
        assert [state.leader for state in again.partitions] == [1, 2, 3]

    on_a_node(scenario, other_nodes=2)


def test_validate_only_answers_alike_and_makes_nothing() -> None:
    async def scenario(node: AdminNode) -> None:
        good, bad = await create(node, wanted("good", 4, 1), wanted("bad", 0, 1), validate_only=True)
        assert (good.error_code, good.num_partitions) == (ErrorCode.none, 4)
        assert bad.error_code is ErrorCode.invalid_partitions
        assert node.cluster.view.topics == {}

    on_a_node(scenario)


# DeleteTopics


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name(version: int) -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("a"), wanted("b"))
        results = await delete(node, {"name": "a"}, {"name": "missing"}, version=version)
        assert [(each.name, each.error_code) for each in results] == [
            ("a", ErrorCode.none),
            ("missing", ErrorCode.unknown_topic_or_partition),
        ]
        assert set(node.cluster.view.topics) == {"b"}

    on_a_node(scenario)


def test_topics_are_deleted_by_id_and_answered_with_both() -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("a"))
        topic_id = node.cluster.view.topics["a"].topic_id
        found, missing = await delete(node, {"topic_id": topic_id}, {"topic_id": uuid.uuid4()})
        assert (found.name, found.topic_id, found.error_code) == ("a", topic_id, ErrorCode.none)
        assert (missing.name, missing.error_code) == (None, ErrorCode.unknown_topic_id)
        assert node.cluster.view.topics == {}

    on_a_node(scenario)


def test_unclear_deletions_are_refused_and_delete_nothing() -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("a"), wanted("b"), wanted("c"))
        ids = {name: topic.topic_id for name, topic in node.cluster.view.topics.items()}
        results = await delete(
            node,
            {},
            {"name": "a", "topic_id": ids["a"]},
            {"name": "b"},
            {"name": "b"},
            {"topic_id": ids["c"]},
            {"name": "c"},
        )
        assert [(each.error_code, each.error_message) for each in results] == [
            (ErrorCode.invalid_request, "Neither topic name nor id were specified."),
            (ErrorCode.invalid_request, "You may not specify both topic name and topic id."),
            (ErrorCode.invalid_request, "Duplicate topic name."),
            (ErrorCode.none, None),
            (ErrorCode.invalid_request, "The provided topic name maps to an ID that was already supplied."),
        ]
        assert set(node.cluster.view.topics) == {"a", "b"}

    on_a_node(scenario)


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.invalid_request), (6, ErrorCode.topic_deletion_disabled)]
)
def test_deletion_can_be_switched_off(version: int, code: ErrorCode) -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("a"))
        results = await delete(node, {"name": "a"}, {"name": "missing"}, version=version)
        assert [each.error_code for each in results] == [code, code]
        assert set(node.cluster.view.topics) == {"a"}

    on_a_node(scenario, settings={"delete.topic.enable": "false"})


# CreatePartitions


async def add(node: AdminNode, *topics: dict[str, Any], version: int = 3, validate_only: bool = False) -> Any:
    asked = [{"assignments": None} | topic for topic in topics]
    return (await node.call(ADD, version, topics=asked, timeout=1000, validate_only=validate_only)).results


@pytest.mark.row("D3")
@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_behind_the_present_ones(version: int) -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("t", 2, 1))
        before = node.cluster.view.topics["t"]
        (result,) = await add(node, {"name": "t", "count": 5}, version=version)
        after = node.cluster.view.topics["t"]
        assert result.error_code is ErrorCode.none
        assert after.partitions[:2] == before.partitions
        assert len(after.partitions) == 5
        assert after.topic_id == before.topic_id

    on_a_node(scenario)


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        ({"name": "missing", "count": 2}, ErrorCode.unknown_topic_or_partition, "does not exist"),
        ({"name": "t", "count": 2}, ErrorCode.invalid_partitions, "Topic already has 2 partition(s)."),
        ({"name": "t", "count": 1}, ErrorCode.invalid_partitions, "1 would not be an increase"),
        ({"name": "t", "count": -1}, ErrorCode.invalid_partitions, "would not be an increase"),
        ({"name": "t", "count": 2**31 - 1}, ErrorCode.policy_violation, "excessively large batch"),
        (
            {"name": "t", "count": 4, "assignments": [{"broker_ids": [1]}]},
            ErrorCode.invalid_replica_assignment,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            {"name": "t", "count": 3, "assignments": [{"broker_ids": [5]}]},
            ErrorCode.invalid_replica_assignment,
            "no such broker is registered",
        ),
    ],
)
def test_additions_that_apache_kafka_refuses_are_refused_alike(
    topic: dict[str, Any], code: ErrorCode, words: str
) -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("t", 2, 1))
        (result,) = await add(node, topic)
        assert result.error_code is code
        assert words in result.error_message
        assert len(node.cluster.view.topics["t"].partitions) == 2

    on_a_node(scenario)


def test_validated_additions_add_nothing() -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("t", 2, 1))
        (result,) = await add(node, {"name": "t", "count": 5}, validate_only=True)
        assert result.error_code is ErrorCode.none
        assert len(node.cluster.view.topics["t"].partitions) == 2

    on_a_node(scenario)


def test_a_topic_named_twice_gets_one_refusal() -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, wanted("t", 2, 1))
        results = await add(node, {"name": "t", "count": 3}, {"name": "t", "count": 4})
        assert [(each.error_code, each.error_message) for each in results] == [
            (ErrorCode.invalid_request, "Duplicate topic name.")
        ]

    on_a_node(scenario)
