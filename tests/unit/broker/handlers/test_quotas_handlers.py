# SPDX-License-Identifier: Apache-2.0
"""AlterClientQuotas and DescribeClientQuotas, and the quota of changes of partitions (KIP-546, KIP-599)."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.client_quotas import DEFAULT, QuotaEntity
from headrace.errors import ErrorCode
from tests.harness.broker.admin_node import AdminNode, on_a_node

DESCRIBE, ALTER, CREATE, DELETE, ADD = 48, 49, 19, 20, 37
EXACT, DEFAULT_NAME, ANY = 0, 1, 2


def entity(**parts: str | None) -> list[dict[str, Any]]:
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in parts.items()]


async def alter(
    node: AdminNode, *entries: tuple[list[dict[str, Any]], dict[str, float | None]], **more: Any
) -> list[tuple[ErrorCode, str | None]]:
    fields = [
        {
            "entity": parts,
            "ops": [
                {"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()
            ],
        }
        for parts, values in entries
    ]
    request = {"entries": fields, "validate_only": False} | more
    version = request.pop("version", 1)
    reply = await node.call(ALTER, version, **request)
    return [(each.error_code, each.error_message) for each in reply.entries]


async def describe(node: AdminNode, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    fields = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    reply = await node.call(DESCRIBE, 1, components=fields, strict=strict)
    if reply.error_code is not ErrorCode.none:
        return reply.error_code, reply.error_message
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in reply.entries
    }


ALICE, ALICE_APP = (("user", "alice"),), (("user", "alice"), ("client-id", "app"))
EVERYONE, APP, ADDRESS = (("user", None),), (("client-id", "app"),), (("ip", "10.0.0.1"),)
FILTERS: list[tuple[list[tuple[str, int, str | None]], bool, set[Any]]] = [
    ([], False, {ALICE, ALICE_APP, EVERYONE, APP, ADDRESS}),
    ([], True, set()),
    ([("user", EXACT, "alice")], False, {ALICE, ALICE_APP}),
    ([("user", EXACT, "alice")], True, {ALICE}),
    ([("user", DEFAULT_NAME, None)], False, {EVERYONE}),
    ([("user", ANY, None)], False, {ALICE, ALICE_APP, EVERYONE}),
    ([("user", ANY, None)], True, {ALICE, EVERYONE}),
    ([("user", ANY, None), ("client-id", EXACT, "app")], True, {ALICE_APP}),
    ([("client-id", ANY, None)], False, {ALICE_APP, APP}),
    ([("ip", ANY, None)], True, {ADDRESS}),
    ([("user", EXACT, "bob")], False, set()),
]


@pytest.mark.parametrize(("components", "strict", "expected"), FILTERS)
def test_a_filter_finds_exact_default_and_any_names(
    components: list[tuple[str, int, str | None]], strict: bool, expected: set[Any]
) -> None:
    async def scenario(node: AdminNode) -> None:
        rate: dict[str, float | None] = {"producer_byte_rate": 1024}
        outcomes = await alter(
            node,
            (entity(user="alice"), rate),
            (entity(user="alice", client_id="app"), rate),
            (entity(user=None), rate),
            (entity(client_id="app"), rate),
            (entity(ip="10.0.0.1"), {"connection_creation_rate": 5}),
        )
        assert outcomes == [(ErrorCode.none, None)] * 5
        assert set(await describe(node, *components, strict=strict)) == expected

    on_a_node(scenario)


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_added_altered_and_removed_one_by_one(version: int) -> None:
    async def scenario(node: AdminNode) -> None:
        alice = entity(user="alice")
        await alter(node, (alice, {"producer_byte_rate": 10, "request_percentage": 0.5}), version=version)
        assert node.throttles.active
        assert node.throttles.meters_requests
        await alter(node, (alice, {"producer_byte_rate": 20, "request_percentage": None}), version=version)
        assert await describe(node) == {ALICE: {"producer_byte_rate": 20}}
        assert not node.throttles.meters_requests
        await alter(node, (alice, {"producer_byte_rate": None, "consumer_byte_rate": None}), version=version)
        assert await describe(node) == {}
        assert node.cluster.view.client_quotas == {}
        assert not node.throttles.active

    on_a_node(scenario)


def test_validation_alters_nothing() -> None:
    async def scenario(node: AdminNode) -> None:
        change = (entity(user="alice"), {"producer_byte_rate": 10.0})
        assert await alter(node, change, validate_only=True) == [(ErrorCode.none, None)]
        bad = (entity(user="alice"), {"no_such_rate": 10.0})
        ((code, _),) = await alter(node, bad, validate_only=True)
        assert code is ErrorCode.invalid_request
        assert await describe(node) == {}

    on_a_node(scenario)


REFUSED: list[tuple[list[dict[str, Any]], dict[str, float | None], str]] = [
    ([], {"producer_byte_rate": 1}, "empty client quota entity"),
    (entity(user=""), {"producer_byte_rate": 1}, "Empty user not supported"),
    (entity(group="g"), {"producer_byte_rate": 1}, "Unhandled client quota entity type: group"),
    (entity(user="a") * 2, {"producer_byte_rate": 1}, "duplicate entity entry user"),
    (entity(user="a", ip="10.0.0.1"), {"producer_byte_rate": 1}, "client quota entity"),
    (entity(ip="somewhere"), {"connection_creation_rate": 1}, "not a valid IP"),
    (entity(user="a"), {"connection_creation_rate": 1}, "Invalid configuration key"),
    (entity(ip="10.0.0.1"), {"producer_byte_rate": 1}, "Invalid configuration key"),
    (entity(user="a"), {"producer_byte_rate": 1.5}, "must be a Long value"),
    (entity(user="a"), {"producer_byte_rate": -1}, "must be greater than 0"),
    (entity(user="a"), {"request_percentage": float("nan")}, "must be greater than 0"),
    (entity(user="ü" * 300), {"producer_byte_rate": 1}, "too long"),
]


@pytest.mark.parametrize(("parts", "values", "message"), REFUSED)
def test_what_kafka_refuses_is_refused_and_others_are_altered(
    parts: list[dict[str, Any]], values: dict[str, float | None], message: str
) -> None:
    async def scenario(node: AdminNode) -> None:
        good = (entity(user="alice"), {"producer_byte_rate": 10.0})
        (code, text), other = await alter(node, (parts, values), good)
        assert code is ErrorCode.invalid_request
        assert text is not None
        assert message in text
        assert other == (ErrorCode.none, None)
        assert await describe(node) == {ALICE: {"producer_byte_rate": 10}}

    on_a_node(scenario)


def test_filters_that_make_no_sense_are_refused() -> None:
    async def scenario(node: AdminNode) -> None:
        for components in (
            [("", ANY, None)],
            [("user", ANY, None), ("user", EXACT, "a")],
            [("user", EXACT, None)],
            [("user", DEFAULT_NAME, "a")],
            [("user", ANY, "a")],
            [("user", 3, None)],
            [("user", ANY, None), ("ip", ANY, None)],
        ):
            assert (await describe(node, *components))[0] is ErrorCode.invalid_request
        assert (await describe(node, ("group", ANY, None)))[0] is ErrorCode.unsupported_version

    on_a_node(scenario)


def test_names_with_any_characters_are_kept() -> None:
    async def scenario(node: AdminNode) -> None:
        names = ["a/b", "ä_.~%", ".default", "user with spaces", "CN=x,O=y"]
        for name in names:
            await alter(node, (entity(user=name, client_id=name), {"producer_byte_rate": 1}))
        assert set(node.cluster.view.client_quotas) == {QuotaEntity(name, name) for name in names}
        assert QuotaEntity(DEFAULT, DEFAULT) not in node.cluster.view.client_quotas

    on_a_node(scenario)


# Changes of partitions


async def create(node: AdminNode, name: str, partitions: int, version: int) -> tuple[int, ErrorCode]:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    reply = await node.call(
        CREATE,
        version,
        topics=[{**topic, "assignments": [], "configs": []}],
        timeout=1000,
        validate_only=False,
    )
    return reply.throttle_time.total_seconds(), reply.topics[0].error_code


@pytest.mark.parametrize(("version", "strict"), [(5, False), (6, True)])
def test_topics_beyond_the_quota_are_refused_by_newer_versions_and_throttled_by_older(
    version: int, strict: bool
) -> None:
    async def scenario(node: AdminNode) -> None:
        await alter(node, (entity(user="ANONYMOUS"), {"controller_mutation_rate": 1}))
        throttle_s, code = await create(node, "a", 30, version)  # a burst of 11 is allowed, and one more
        assert code is ErrorCode.none
        assert 18 < throttle_s <= 19
        throttle_s, code = await create(node, "b", 1, version)
        assert code is (ErrorCode.throttling_quota_exceeded if strict else ErrorCode.none)
        assert throttle_s > 18
        assert ("b" in node.cluster.view.topics) is not strict

    on_a_node(scenario)


def test_deleted_and_added_partitions_count_too() -> None:
    async def scenario(node: AdminNode) -> None:
        await create(node, "a", 20, 7)
        await alter(node, (entity(client_id="test"), {"controller_mutation_rate": 1}))
        more = [{"name": "a", "count": 32, "assignments": None}]
        reply = await node.call(ADD, 3, topics=more, timeout=1000, validate_only=False)
        assert reply.results[0].error_code is ErrorCode.none
        assert 0 < reply.throttle_time.total_seconds() <= 1
        reply = await node.call(DELETE, 6, topics=[{"name": "a", "topic_id": None}], timeout=1000)
        assert reply.responses[0].error_code is ErrorCode.throttling_quota_exceeded
        reply = await node.call(DELETE, 4, topic_names=["a"], timeout=1000)
        assert reply.responses[0].error_code is ErrorCode.none
        assert 32 < reply.throttle_time.total_seconds() <= 33

    on_a_node(scenario)
