# SPDX-License-Identifier: Apache-2.0
"""Changes of the cluster under faults: topics come and go, ACLs and client quotas are set and removed.

An acknowledged change is known by every live node at that moment (decision 25), and is never lost. Each actor
repeats a request until it is acknowledged, so that its model is exact. Read next: cluster.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from headrace.acls import Operation, PatternType, Permission, ResourceType
from headrace.broker.controller.change_propagation import LIMIT_MS
from headrace.client.errors import ClientError
from headrace.client_quotas import QuotaEntity
from headrace.types import ClusterView
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.simulation.clients import BrokenPromise, SimConnection, TryAgain, awake
from tests.harness.simulation.cluster import SimCluster

Known = Callable[[ClusterView], bool]
_RATE = "consumer_byte_rate"
SHORT_LIVED = "short-lived-"
"""How names of topics begin that come and go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`refusals`: codes that mean that an earlier attempt, whose answer was lost, was carried out.

    Or that the node asked does not know of the last change: it had not answered when that was acknowledged.
    """

    what: str
    api_key: ApiKey
    fields: dict[str, Any]
    code: Callable[[Any], ErrorCode]
    known: Known
    version: int | None = None
    refusals: tuple[ErrorCode, ...] = ()


class ChangeWriter:
    def __init__(self, cluster: SimCluster, random: Random) -> None:
        self.stopping = False
        self.awake = awake()
        self.progress = ""
        self.changes = 0
        self.cluster = cluster
        self.random = random

    async def run(self) -> None:
        """Until told to stop."""
        raise NotImplementedError

    async def carry_out(self, change: Change) -> bool:
        """Until it is acknowledged. True when the first attempt was: others may be carried out later."""
        attempts = 0
        while True:
            attempts += 1
            try:
                await self.cluster.with_any(lambda connection: self._attempt(connection, change))
            except (ClientError, TryAgain, OSError) as error:
                self.progress = f"{change.what}: {type(error).__name__}: {error}"
                await asyncio.sleep(self.random.uniform(0.05, 0.5))
            else:
                self.changes += 1
                return attempts == 1

    async def _attempt(self, connection: SimConnection, change: Change) -> None:
        loop = asyncio.get_running_loop()
        began, live = loop.time(), self._live()
        reply = await connection.call(
            change.api_key, change.fields, version=change.version, timeout_ms=30_000
        )
        code = change.code(reply)
        in_store = change.known(self.cluster.invariants.view)
        if code in change.refusals and in_store:
            return
        if code is not ErrorCode.none:
            raise TryAgain(code.name)
        if not in_store:
            raise BrokenPromise(f"{change.what} was acknowledged, and the store does not have it")
        if loop.time() - began < LIMIT_MS / 1000 - 0.5:
            self._check_known(change, live)

    def _live(self) -> dict[int, int]:
        return {node.node_id: node.epoch for node in self.cluster.invariants.view.nodes.values()}

    def _check_known(self, change: Change, live: dict[int, int]) -> None:
        """By those that were live all the time; a new process reads the store as it starts."""
        after = self._live()
        for number, node in enumerate(self.cluster.nodes):
            if node.broker is None or node.world is None or live.get(number) != after.get(number, -1):
                continue
            if not change.known(node.broker.cluster.view):
                raise BrokenPromise(f"{change.what} was acknowledged, and node {number} does not know it")

    async def rest(self) -> None:
        await self.awake.wait()
        await asyncio.sleep(self.random.uniform(0.1, 1.0))


class RuleWriter(ChangeWriter):
    """Sets and removes ACLs and quotas, one after the other; in the end every node knows them all.

    A name is used again only while nothing that was asked for it can still be on its way.
    """

    def __init__(self, cluster: SimCluster, random: Random) -> None:
        super().__init__(cluster, random)
        self._quotas: dict[str, float] = {}
        self._allowed: set[str] = set()
        self._uncertain: set[str] = set()
        self._names = 0

    async def run(self) -> None:
        while not self.stopping:
            await self.rest()
            if self.random.random() < 0.5:
                await self._set_quota(self._name(self._quotas))
            else:
                await self._set_acl(self._name(self._allowed))

    def _name(self, used: Collection[str]) -> str:
        certain = sorted(set(used) - self._uncertain)
        if certain and self.random.random() < 0.6:
            return self.random.choice(certain)
        self._names += 1
        return f"User:{self._names}"

    async def _carry_out(self, name: str, change: Change) -> None:
        if not await self.carry_out(change):
            self._uncertain.add(name)

    async def _set_quota(self, client: str) -> None:
        remove = client in self._quotas and self.random.random() < 0.4
        value = float(self.random.randint(1_000_000, 9_000_000))
        entity = QuotaEntity(client_id=client)
        wanted = {} if remove else {_RATE: value}
        operation = {"key": _RATE, "value": value, "remove": remove}
        parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        await self._carry_out(
            client,
            Change(
                what=f"quota of {client} {wanted}",
                api_key=ApiKey.ALTER_CLIENT_QUOTAS,
                fields={"entries": [{"entity": parts, "ops": [operation]}], "validate_only": False},
                code=lambda reply: reply.entries[0].error_code,
                known=lambda view: dict(view.client_quotas.get(entity, {})) == wanted,
            ),
        )
        self._quotas.pop(client, None)
        if not remove:
            self._quotas[client] = value

    async def _set_acl(self, principal: str) -> None:
        remove = principal in self._allowed
        binding: dict[str, Any] = {
            "resource_type": ResourceType.TOPIC,
            "resource_name": "topic",
            "principal": principal,
            "host": "*",
            "operation": Operation.READ,
            "permission_type": Permission.ALLOW,
        }
        literal = PatternType.LITERAL
        if remove:
            api_key, pattern = (
                ApiKey.DELETE_ACLS,
                {
                    "resource_type_filter": binding["resource_type"],
                    "resource_name_filter": binding["resource_name"],
                    "pattern_type_filter": literal,
                    "principal_filter": principal,
                    "host_filter": "*",
                    "operation": binding["operation"],
                    "permission_type": binding["permission_type"],
                },
            )
            fields: dict[str, Any] = {"filters": [pattern]}
        else:
            api_key, fields = (
                ApiKey.CREATE_ACLS,
                {"creations": [{**binding, "resource_pattern_type": literal}]},
            )
        await self._carry_out(
            principal,
            Change(
                what=f"ACL of {principal} {'removed' if remove else 'created'}",
                api_key=api_key,
                fields=fields,
                version=3,
                code=self._code_of_removal if remove else lambda reply: reply.results[0].error_code,
                known=lambda view: (principal in _principals(view)) != remove,
                refusals=(ErrorCode.resource_not_found,),
            ),
        )
        self._allowed.symmetric_difference_update({principal})

    def _code_of_removal(self, reply: Any) -> ErrorCode:
        """A node that does not know the ACL finds nothing to remove, and says so."""
        (result,) = reply.filter_results
        codes: list[ErrorCode] = [result.error_code, *(each.error_code for each in result.matching_acls)]
        failures = [code for code in codes if code is not ErrorCode.none]
        if failures:
            return failures[0]
        return ErrorCode.none if result.matching_acls else ErrorCode.resource_not_found

    def knows_all(self, view: ClusterView) -> bool:
        found = {str(entity.client_id): values.get(_RATE) for entity, values in view.client_quotas.items()}
        for name in self._uncertain:
            found.pop(name, None)
        expected = {name: value for name, value in self._quotas.items() if name not in self._uncertain}
        allowed = self._allowed - self._uncertain
        return found == expected and _principals(view) - self._uncertain == allowed


def _principals(view: ClusterView) -> set[str]:
    return {binding.principal for binding in view.acls.values()}


class TopicWriter(ChangeWriter):
    """Creates topics, writes to them, reads them back and deletes them; names come again with other ids."""

    def __init__(self, cluster: SimCluster, random: Random, *, configs: dict[str, str]) -> None:
        super().__init__(cluster, random)
        self._configs = configs
        self._ids: set[UUID] = set()
        self._names = 0

    async def run(self) -> None:
        name = self._next_name()
        while not self.stopping:
            await self.rest()
            if not await self._create(name):
                name = self._next_name()  # it may be created once more; its deletion would prove nothing
                continue
            topic = self.cluster.invariants.view.topics[name]
            if topic.topic_id in self._ids:
                raise BrokenPromise(f"{name} was created again with the id of a deleted topic")
            self._ids.add(topic.topic_id)
            await self.rest()
            if not await self._delete(name) or self.random.random() < 0.3:
                name = self._next_name()

    def _next_name(self) -> str:
        self._names += 1
        return f"{SHORT_LIVED}{self._names}"

    async def _create(self, name: str) -> bool:
        topic = {
            "name": name,
            "num_partitions": self.random.choice((1, 2)),
            "replication_factor": 3,
            "configs": [{"name": key, "value": value} for key, value in self._configs.items()],
        }
        return await self.carry_out(
            Change(
                what=f"topic {name}",
                api_key=ApiKey.CREATE_TOPICS,
                fields={"topics": [topic], "timeout": 10_000},
                code=lambda reply: reply.topics[0].error_code,
                known=lambda view: name in view.topics,
                refusals=(ErrorCode.topic_already_exists,),
            )
        )

    async def _delete(self, name: str) -> bool:
        return await self.carry_out(
            Change(
                what=f"deletion of topic {name}",
                api_key=ApiKey.DELETE_TOPICS,
                fields={"topic_names": [name], "timeout": 10_000},
                version=3,
                code=lambda reply: reply.responses[0].error_code,
                known=lambda view: name not in view.topics,
                refusals=(ErrorCode.unknown_topic_or_partition,),
            )
        )
