# SPDX-License-Identifier: Apache-2.0
"""DescribeUserScramCredentials and AlterUserScramCredentials through the wire format, with Kafka's codes."""

from __future__ import annotations

from typing import Any

from headrace.scram_credential import credential_of
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.admin_node import AdminNode, on_a_node

DESCRIBE, ALTER = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
    salted = bytes(32 if mechanism == 1 else 64)
    credential = {"salt": b"salt", "salted_password": salted}
    return {"name": name, "mechanism": mechanism, "iterations": iterations, **credential}


async def alter(
    node: AdminNode, upsertions: list[dict[str, Any]], deletions: list[dict[str, Any]] | None = None
) -> dict[str, ErrorCode]:
    reply = await node.call(ALTER, 0, upsertions=upsertions, deletions=deletions or [])
    return {result.user: result.error_code for result in reply.results}


async def describe(node: AdminNode, *names: str) -> dict[str, Any]:
    users = [{"name": name} for name in names] if names else None
    reply = await node.call(DESCRIBE, 0, users=users)
    assert reply.error_code is ErrorCode.none
    return {
        result.user: [(info.mechanism, info.iterations) for info in result.credential_infos]
        if result.error_code is ErrorCode.none
        else result.error_code
        for result in reply.results
    }


def test_users_are_made_described_and_deleted() -> None:
    async def scenario(node: AdminNode) -> None:
        assert await describe(node) == {}
        made = await alter(node, [upsertion("ann"), upsertion("ann", 2, 8192), upsertion("Bö/b,=")])
        assert made == {"ann": ErrorCode.none, "Bö/b,=": ErrorCode.none}
        assert await describe(node) == {"Bö/b,=": [(1, 4096)], "ann": [(1, 4096), (2, 8192)]}
        assert await describe(node, "ann") == {"ann": [(1, 4096), (2, 8192)]}
        stored = node.cluster.view.users["ann"]["SCRAM-SHA-256"]
        assert stored == credential_of("sha256", bytes(32), b"salt", 4096)
        gone = [{"name": "ann", "mechanism": 1}, {"name": "ann", "mechanism": 2}]
        assert await alter(node, [], gone) == {"ann": ErrorCode.none}
        assert "ann" not in node.cluster.view.users

    on_a_node(scenario, other_nodes=1)


def test_one_wrong_change_does_not_affect_other_users() -> None:
    async def scenario(node: AdminNode) -> None:
        outcomes = await alter(
            node,
            [upsertion("ann"), upsertion("bob", iterations=1), upsertion("eve"), upsertion("eve")],
            [{"name": "zoe", "mechanism": 1}],
        )
        assert outcomes == {
            "ann": ErrorCode.none,
            "bob": ErrorCode.unacceptable_credential,
            "eve": ErrorCode.duplicate_resource,
            "zoe": ErrorCode.resource_not_found,
        }
        assert list(node.cluster.view.users) == ["ann"]

    on_a_node(scenario)


def test_a_description_names_missing_and_repeated_users() -> None:
    async def scenario(node: AdminNode) -> None:
        await alter(node, [upsertion("ann")])
        assert await describe(node, "ann", "ann", "bob") == {
            "ann": ErrorCode.duplicate_resource,
            "bob": ErrorCode.resource_not_found,
        }

    on_a_node(scenario)


def test_more_users_than_fit_into_one_commit_are_stored() -> None:
    async def scenario(node: AdminNode) -> None:
        outcomes = await alter(node, [upsertion(f"user-{number}") for number in range(1_500)])
        assert set(outcomes.values()) == {ErrorCode.none}
        assert len(node.cluster.view.users) == 1_500

    on_a_node(scenario)


def test_a_node_that_is_not_the_controller_refuses_for_each_user() -> None:
    async def scenario(node: AdminNode) -> None:
        node.cluster._controllership = None
        assert await alter(node, [upsertion("ann")]) == {"ann": ErrorCode.not_controller}

    on_a_node(scenario)
