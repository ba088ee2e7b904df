# SPDX-License-Identifier: Apache-2.0
"""DescribeConfigs 1-4, AlterConfigs 0-2, IncrementalAlterConfigs 0-1 for topics, nodes and groups.

A node resource with an empty name holds the configs altered for all nodes. Broker logger resources have no
configs: described as an empty list, refused when altered.

Only when they are among the keys asked for, a topic also has entries about each partition N that this node
leads: `headrace.readers.N`, the clients that fetch from it (broker/partition/readers.py), and
`headrace.segments.N`, the oldest segments of its log. In the same way a node has `headrace.clients.N`, the
clients connected to it in pieces of JSON (broker/network/client_list.py).

Gaps: client metrics resources.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from headrace.broker.controller.config_changes import Action, Change, Changes
from headrace.broker.controller.config_entries import (
    NodeLayers,
    Shown,
    default_entries,
    group_entries,
    node_entries,
    status_entry,
    topic_entries,
)
from headrace.broker.controller.controller import Controller
from headrace.broker.controller.topic_rules import check_name
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.readers import ReaderPosition
from headrace.config import NodeConfig
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError
from headrace.types import CLIENTS, READERS, SEGMENTS
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.kio_codec.encoder import EncodedItems


class ResourceType(IntEnum):
    TOPIC = 2
    NODE = 4
    LOGGER = 8
    GROUP = 32


class _Resource(NamedTuple):
    resource_type: int
    resource_name: str


ReadersOfTopic = Callable[[str], Mapping[int, Sequence[ReaderPosition]]]
"""By partition that this node leads."""

SegmentsOfTopic = Callable[[str], Mapping[int, Mapping[str, Any]]]
"""By partition that this node leads."""

ClientsOfNode = Callable[[], Awaitable[Sequence[str]]]
"""Connected to this node, in pieces of JSON."""

_DESCRIBED_PER_YIELD = 5
"""Fewer than usual: a resource has dozens of configs, each with its synonyms."""


class ConfigHandlers:
    """Handlers that describe and alter configs of topics, nodes and groups."""

    def __init__(
        self,
        *,
        cluster: ClusterMetadata,
        controller: Controller,
        config: NodeConfig,
        node_id: int,
        readers: ReadersOfTopic,
        segments: SegmentsOfTopic,
        clients: ClientsOfNode,
    ) -> None:
        self._cluster = cluster
        self._controller = controller
        self._config = config
        self._node_id = node_id
        self._readers = readers
        self._segments = segments
        self._clients = clients

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
            ApiKey.ALTER_CONFIGS: self.alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.incremental_alter_configs,
        }

    async def describe_configs(self, context: RequestContext, request: Any) -> dict[str, Any]:
        shown = Shown(
            synonyms=request.include_synonyms, documentation=getattr(request, "include_documentation", False)
        )
        results = EncodedItems(APIS[context.api_key].name, context.api_version, "response", "results")
        async for resource, wanted in yielding(await _resources(request), _DESCRIBED_PER_YIELD):
            result = self._described(resource, wanted, shown)
            if CLIENTS in wanted and resource == (ResourceType.NODE, str(self._node_id)):
                pieces = enumerate(await self._clients())
                result["configs"] += [status_entry(f"{CLIENTS}.{number}", text) for number, text in pieces]
            results.append(result)
        return {"throttle_time": 0, "results": results}

    def _described(self, resource: _Resource, wanted: Collection[str], shown: Shown) -> dict[str, Any]:
        """The resource's part of the reply; `wanted` empty: all its configs."""
        result = resource._asdict()
        try:
            entries = self._describe(resource, shown)
        except ApiError as refusal:
            return {
                **result,
                "error_code": refusal.code,
                "error_message": refusal.message,
                "configs": [],
            }
        configs = [entry for entry in entries if not wanted or entry["name"] in wanted]
        if resource.resource_type == ResourceType.TOPIC:
            configs += self._entries_of_partitions(resource.resource_name, wanted)
        return {**result, "error_code": ErrorCode.none, "configs": configs}

    def _describe(self, resource: _Resource, shown: Shown) -> list[dict[str, Any]]:
        layers = NodeLayers.of(self._config, self._cluster.view, self._node_id)
        name: str = resource.resource_name
        match resource.resource_type:
            case ResourceType.TOPIC:
                check_name(name)
                topic = self._cluster.view.topics.get(name)
                if topic is None:
                    message = f"The topic '{name}' does not exist."
                    raise ApiError(ErrorCode.unknown_topic_or_partition, message)
                replicas = len(topic.partitions[0].replicas)
                return topic_entries(layers, topic.configs, shown, replicas=replicas)
            case ResourceType.NODE if not name:
                return default_entries(layers, shown)
            case ResourceType.NODE:
                self._check_this_node(name)
                return node_entries(layers, shown)
            case ResourceType.LOGGER:
                self._check_this_node(name)
                return []
            case ResourceType.GROUP:
                if not name:
                    raise _invalid("Group name must not be empty.")
                return group_entries(layers, self._cluster.view.group_configs.get(name, {}), shown)
        raise _unsupported(resource)

    def _entries_of_partitions(self, topic: str, wanted: Collection[str]) -> list[dict[str, Any]]:
        told: dict[str, Callable[[str], Mapping[int, Any]]] = {
            READERS: self._readers,
            SEGMENTS: self._segments,
        }
        return [
            status_entry(f"{key}.{partition}", json.dumps(value))
            for key, of_topic in told.items()
            if key in wanted
            for partition, value in of_topic(topic).items()
        ]

    def _check_this_node(self, name: str) -> None:
        if name != str(self._node_id):
            raise _invalid(f"Unexpected broker id, expected {self._node_id}, but received {name}")

    async def alter_configs(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """The configs in the request replace all configs of the resource."""
        return await self._alter(request, _replacement)

    async def incremental_alter_configs(self, context: RequestContext, request: Any) -> dict[str, Any]:
        return await self._alter(request, _incremental_changes)

    async def _alter(self, request: Any, read: Callable[[Any], Changes]) -> dict[str, Any]:
        times: Counter[_Resource] = Counter()
        async for each in yielding(request.resources):
            times[_Resource(each.resource_type, each.resource_name)] += 1
        responses = []
        async for resource in yielding(request.resources):
            result = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
            try:
                if times[_Resource(resource.resource_type, resource.resource_name)] > 1:
                    raise _invalid("Each resource must appear at most once.")
                await self._alter_resource(resource, read(resource), request.validate_only)
                result |= {"error_code": ErrorCode.none, "error_message": None}
            except ApiError as refusal:
                result |= {"error_code": refusal.code, "error_message": refusal.message}
            responses.append(result)
        return {"throttle_time": 0, "responses": responses}

    async def _alter_resource(self, resource: Any, changes: Changes, validate_only: bool) -> None:
        name: str = resource.resource_name
        match resource.resource_type:
            case ResourceType.TOPIC:
                await self._controller.alter_topic_configs(name, changes, validate_only=validate_only)
            case ResourceType.NODE:
                await self._controller.alter_node_configs(name, changes, validate_only=validate_only)
            case ResourceType.GROUP:
                await self._controller.alter_group_configs(name, changes, validate_only=validate_only)
            case _:
                raise _unsupported(resource)


async def _resources(request: Any) -> list[tuple[_Resource, Collection[str]]]:
    """Each resource once, with the keys that were asked for, none for all: a reply has one answer for it."""
    wanted: dict[_Resource, set[str]] = {}
    whole: set[_Resource] = set()
    async for each in yielding(request.resources):
        resource = _Resource(each.resource_type, each.resource_name)
        wanted.setdefault(resource, set()).update(each.configuration_keys or ())
        if not each.configuration_keys:
            whole.add(resource)
    return [(resource, () if resource in whole else keys) for resource, keys in wanted.items()]


def _replacement(resource: Any) -> Mapping[str, str]:
    _check_names_and_values(resource, [config for config in resource.configs if config.value is None])
    return {config.name: config.value for config in resource.configs}


def _incremental_changes(resource: Any) -> list[Change]:
    actions = [_action(config.config_operation) for config in resource.configs]
    pairs = list(zip(resource.configs, actions, strict=True))
    _check_names_and_values(
        resource, [config for config, action in pairs if config.value is None and action is not Action.DELETE]
    )
    return [Change(name=config.name, action=action, value=config.value or "") for config, action in pairs]


def _check_names_and_values(resource: Any, without_value: list[Any]) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise _invalid("Error due to duplicate config keys")
    if without_value:
        missing = ", ".join(config.name for config in without_value)
        raise _invalid(f"Null value not supported for : {missing}")


def _action(number: int) -> Action:
    try:
        return Action(number)
    except ValueError:
        raise _invalid(f"Unknown operations type {number}") from None


def _unsupported(resource: Any) -> ApiError:
    return _invalid(f"Unsupported resource type {resource.resource_type}")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, message)
