# SPDX-License-Identifier: Apache-2.0
"""A node with an authorizer in the simulated world, and connections of any principal.

There are the topics `mine` and `theirs`; ACLs are created by real requests of a super user.
Read next: simulated_node.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headrace.acls import Operation, PatternType, Permission, ResourceType
from headrace.config.security.acl_settings import STANDARD_AUTHORIZER
from headrace.principal import Principal, user
from headrace.wire.api_key import ApiKey
from tests.harness.broker.simulated_node import LONG_MS, SimBroker, on_a_node
from tests.harness.simulation.clients import SimConnection

ANA = "User:ana"
MINE, THEIRS = "mine", "theirs"
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}


class Client:
    """A connection of one principal."""

    def __init__(self, connection: SimConnection) -> None:
        self.connection = connection

    async def call(self, api_key: int, version: int, **fields: Any) -> Any:
        return await self.connection.call(api_key, fields, version=version, timeout_ms=LONG_MS)


class AclNode:
    def __init__(self, node: SimBroker) -> None:
        self.node = node
        self.admin: Client
        self.ana: Client

    async def client(self, principal: Principal) -> Client:
        """As if it had logged in."""
        connections = self.node.broker.connections._connections
        before = set(connections)
        client = Client(await self.node.connect())
        (mine,) = set(connections) - before
        mine.principal = principal
        mine.forget_requests()
        return client

    async def start(self) -> None:
        self.admin, self.ana = await self.client(user("admin")), await self.client(user("ana"))
        topics = [
            {
                "name": name,
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            for name in (MINE, THEIRS)
        ]
        reply = await self.admin.call(
            ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=5000, validate_only=False
        )
        assert not any(topic.error_code for topic in reply.topics)

    async def allow(
        self,
        operation: Operation,
        kind: ResourceType = ResourceType.TOPIC,
        name: str = MINE,
        *,
        principal: str = ANA,
        permission: Permission = Permission.ALLOW,
        pattern: PatternType = PatternType.LITERAL,
    ) -> None:
        creation = {
            "resource_type": kind,
            "resource_name": name,
            "resource_pattern_type": pattern,
            "principal": principal,
            "host": "*",
            "operation": operation,
            "permission_type": permission,
        }
        reply = await self.admin.call(ApiKey.CREATE_ACLS, 3, creations=[creation])
        assert reply.results[0].error_code == 0, reply

    async def deny(
        self, operation: Operation, kind: ResourceType = ResourceType.TOPIC, name: str = MINE
    ) -> None:
        await self.allow(operation, kind, name, permission=Permission.DENY)

    async def remove_all(self) -> None:
        reply = await self.admin.call(ApiKey.DELETE_ACLS, 3, filters=[ANY_ACL])
        assert reply.filter_results[0].error_code == 0

    def topic_id(self, name: str) -> Any:
        return self.node.broker.cluster.view.topics[name].topic_id


ANY_ACL: Mapping[str, Any] = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


def with_acls(
    scenario: Callable[[AclNode], Awaitable[None]], *, settings: Mapping[str, str] | None = None
) -> None:
    async def main(node: SimBroker) -> None:
        acl_node = AclNode(node)
        await acl_node.start()
        await scenario(acl_node)

    on_a_node(main, settings={**SETTINGS, **(settings or {})})
