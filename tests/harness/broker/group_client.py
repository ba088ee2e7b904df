# SPDX-License-Identifier: Apache-2.0
"""A member and administrator of groups on a simulated node: requests by name, in any version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.wire.api_table import APIS
from headrace.wire.kio_codec.schema import field_names, message_class
from tests.harness.broker.simulated_node import LONG_MS, SimBroker
from tests.harness.simulation.clients import SimConnection

KEYS = {api.name: api.key for api in APIS.values()}
RANGE = [{"name": "range", "metadata": b"\x00\x01\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x00"}]
"""A subscription to topic `t`."""


class GroupClient:
    def __init__(self, connection: SimConnection, group: str = "g") -> None:
        self.connection = connection
        self.group = group
        self.member_id = ""
        self.generation = -1

    @classmethod
    async def of(cls, node: SimBroker, group: str = "g") -> GroupClient:
        client = cls(await node.connect(), group)
        await client.call("find_coordinator", 6, key_type=0, coordinator_keys=[group])
        return client

    async def call(self, name: str, version: int | None = None, **fields: Any) -> Any:
        """Fields that the version lacks are left out."""
        version = APIS[KEYS[name]].max_version if version is None else version
        known = field_names(message_class(name, version, "request"), ()) or frozenset()
        given = {key: value for key, value in fields.items() if key in known}
        return await self.connection.call(KEYS[name], given, version=version, timeout_ms=LONG_MS)

    # Members

    async def join(self, version: int = 9, instance_id: str | None = None, **fields: Any) -> Any:
        """As often as it takes to be a member."""
        reply = await self._join_once(version, instance_id, **fields)
        if reply.error_code.name == "member_id_required":
            self.member_id = reply.member_id
            reply = await self._join_once(version, instance_id, **fields)
        self.member_id, self.generation = reply.member_id, reply.generation_id
        return reply

    async def _join_once(self, version: int, instance_id: str | None, **fields: Any) -> Any:
        defaults = {
            "group_id": self.group,
            "session_timeout": 10_000,
            "rebalance_timeout": 60_000,
            "member_id": self.member_id,
            "group_instance_id": instance_id,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "reason": None,
        }
        return await self.call("join_group", version, **{**defaults, **fields})

    async def sync(self, assignments: dict[str, bytes] | None = None, version: int = 5) -> Any:
        given = assignments or {}
        return await self.call(
            "sync_group",
            version,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": key, "assignment": value} for key, value in given.items()],
        )

    async def heartbeat(self, version: int = 4) -> Any:
        reply = await self.call(
            "heartbeat",
            version,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
        )
        return reply.error_code

    async def leave(self, version: int = 5) -> Any:
        member = {"member_id": self.member_id, "group_instance_id": None}
        if version >= 5:
            member["reason"] = None
        return await self.call(
            "leave_group", version, group_id=self.group, member_id=self.member_id, members=[member]
        )

    async def beat(self, epoch: int, **fields: Any) -> Any:
        """ConsumerGroupHeartbeat."""
        defaults = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 60_000 if epoch == 0 else -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [] if epoch == 0 else None,
        }
        return await self.call("consumer_group_heartbeat", **{**defaults, **fields})

    # Offsets

    async def commit(
        self, offset: int, partitions: Sequence[int] = (0,), topic: str = "t", **fields: Any
    ) -> dict[int, int]:
        """Error codes by partition."""
        version = fields.pop("version", 9)
        topics = [{**_named(topic, fields.pop("topic_id", None), version), "partitions": [
            _to_commit(index, offset, version) for index in partitions
        ]}]  # fmt: skip
        reply = await self.call(
            "offset_commit",
            version,
            **{
                "group_id": self.group,
                "generation_id_or_member_epoch": self.generation,
                "member_id": self.member_id,
                "group_instance_id": None,
                "retention_time": -1,
                "topics": topics,
                **fields,
            },
        )
        return {part.partition_index: part.error_code for each in reply.topics for part in each.partitions}

    async def committed(self, topic: str = "t") -> dict[int, int]:
        """All that the group has committed for the topic."""
        asked = [{"group_id": self.group, "member_id": None, "member_epoch": -1, "topics": None}]
        reply = await self.call("offset_fetch", 9, groups=asked, require_stable=True)
        assert reply.groups[0].error_code == 0, reply
        return {
            part.partition_index: part.committed_offset
            for each in reply.groups[0].topics
            if each.name == topic
            for part in each.partitions
        }


def _named(topic: str, topic_id: Any, version: int) -> dict[str, Any]:
    return {"topic_id": topic_id} if version >= 10 else {"name": topic}


def _to_commit(index: int, offset: int, version: int) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "partition_index": index,
        "committed_offset": offset,
        "committed_metadata": "",
    }
    if version >= 6:
        asked["committed_leader_epoch"] = -1
    return asked
