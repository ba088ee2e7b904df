"""DescribeConfigs 1–4, AlterConfigs 0–2, IncrementalAlterConfigs 0–1 for topics, nodes and groups.

Node settings: those of this node, or under the empty name those altered for all nodes. Loggers have no
settings here: described as an empty list, refused when altered. Gap: client metrics resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from headrace.broker.config_changes import Action, Change, Changes
from headrace.broker.config_entries import (
    NodeLayers,
    Shown,
    default_entries,
    group_entries,
    node_entries,
    topic_entries,
)
from headrace.broker.context import Handler, RequestContext
from headrace.broker.topic_rules import check_name
from headrace.broker.turns import in_turns
from headrace.errors import ApiError
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker


class ResourceType(IntEnum):
    TOPIC = 2
    NODE = 4
    LOGGER = 8
    GROUP = 32


_DESCRIBED_PER_TURN = 5
"""A resource has dozens of settings, each with its sources."""


async def describe_configs(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    shown = Shown(
        synonyms=request.include_synonyms, documentation=getattr(request, "include_documentation", False)
    )
    results = []
    async for resource in in_turns(request.resources, _DESCRIBED_PER_TURN):
        answer = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            entries = _described(broker, resource, shown)
            wanted = set(resource.configuration_keys or ())
            answer["error_code"] = ErrorCode.none
            answer["configs"] = [entry for entry in entries if not wanted or entry["name"] in wanted]
        except ApiError as refusal:
            answer |= {"error_code": refusal.code, "error_message": refusal.message, "configs": []}
        results.append(answer)
    return {"throttle_time": 0, "results": results}


def _described(broker: Broker, resource: Any, shown: Shown) -> list[dict[str, Any]]:
    layers = NodeLayers.of(broker.config, broker.cluster.view, broker.node_id)
    name: str = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_name(name)
            topic = broker.cluster.view.topics.get(name)
            if topic is None:
                raise ApiError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
            replicas = len(topic.partitions[0].replicas)
            return topic_entries(layers, topic.configs, shown, replicas=replicas)
        case ResourceType.NODE if not name:
            return default_entries(layers, shown)
        case ResourceType.NODE:
            _check_this_node(broker, name)
            return node_entries(layers, shown)
        case ResourceType.LOGGER:
            _check_this_node(broker, name)
            return []
        case ResourceType.GROUP:
            if not name:
                raise _invalid("Group name must not be empty.")
            return group_entries(layers, broker.cluster.view.group_configs.get(name, {}), shown)
    raise _unsupported(resource)


def _check_this_node(broker: Broker, name: str) -> None:
    if name != str(broker.node_id):
        raise _invalid(f"Unexpected broker id, expected {broker.node_id}, but received {name}")


async def alter_configs(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    """The given settings replace all that the resource has."""
    return await _alter(broker, request, _whole_mapping)


async def incremental_alter_configs(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    return await _alter(broker, request, _single_changes)


async def _alter(broker: Broker, request: Any, read: Callable[[Any], Changes]) -> dict[str, Any]:
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    responses = []
    async for resource in in_turns(request.resources):
        answer = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise _invalid("Each resource must appear at most once.")
            await _alter_resource(broker, resource, read(resource), request.validate_only)
            answer |= {"error_code": ErrorCode.none, "error_message": None}
        except ApiError as refusal:
            answer |= {"error_code": refusal.code, "error_message": refusal.message}
        responses.append(answer)
    return {"throttle_time": 0, "responses": responses}


async def _alter_resource(broker: Broker, resource: Any, changes: Changes, validate_only: bool) -> None:
    name: str = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            await broker.controller.alter_topic_configs(name, changes, validate_only=validate_only)
        case ResourceType.NODE:
            await broker.controller.alter_node_configs(name, changes, validate_only=validate_only)
        case ResourceType.GROUP:
            await broker.controller.alter_group_configs(name, changes, validate_only=validate_only)
        case _:
            raise _unsupported(resource)


def _whole_mapping(resource: Any) -> Mapping[str, str]:
    _check_once_and_given(resource, [config for config in resource.configs if config.value is None])
    return {config.name: config.value for config in resource.configs}


def _single_changes(resource: Any) -> list[Change]:
    actions = [_action(config.config_operation) for config in resource.configs]
    pairs = list(zip(resource.configs, actions, strict=True))
    _check_once_and_given(
        resource, [config for config, action in pairs if config.value is None and action is not Action.DELETE]
    )
    return [Change(name=config.name, action=action, value=config.value or "") for config, action in pairs]


def _check_once_and_given(resource: Any, without_value: list[Any]) -> None:
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


HANDLERS: dict[int, Handler] = {32: describe_configs, 33: alter_configs, 44: incremental_alter_configs}
