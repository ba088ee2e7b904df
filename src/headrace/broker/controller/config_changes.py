# SPDX-License-Identifier: Apache-2.0
"""Changes of topic, node and group configs: works out the new configs and validates them.

Pure: present configs and changes in, new configs or an ApiError out. Read next: controller.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from headrace.config import (
    GROUP_SETTINGS,
    NODE_SETTINGS,
    TOPIC_SETTINGS,
    NodeConfig,
    Setting,
    resolve_topic,
    validate_group_overrides,
    validate_node_override,
    validate_topic_overrides,
)
from headrace.errors import ApiError, ConfigError
from headrace.key_ranges import parse_ranges
from headrace.wire.error_codes import ErrorCode

KEY_RANGES = "headrace.partitioner.ranges"


class Action(IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    name: str
    action: Action
    value: str = ""


Changes = Iterable[Change] | Mapping[str, str]
"""Single changes, or the whole new mapping (the older API)."""
_EffectiveList = Callable[[str], tuple[str, ...]]


def altered_topic_configs(
    present: Mapping[str, str], changes: Changes, node: NodeConfig, node_altered: Mapping[str, str]
) -> dict[str, str]:
    def effective(name: str) -> tuple[str, ...]:
        values: tuple[str, ...] = resolve_topic(node, node_altered, present)[name]
        return values

    return _altered(present, changes, TOPIC_SETTINGS, effective)


def check_topic_configs(
    configs: Mapping[str, str], node: NodeConfig, node_altered: Mapping[str, str]
) -> None:
    try:
        validate_topic_overrides(node, node_altered, configs)
    except ConfigError as error:
        raise ApiError(ErrorCode.invalid_config, str(error)) from error


def check_key_ranges(configs: Mapping[str, str], partitions: int) -> None:
    """Refuses another number of ranges than of partitions; the configs are valid by themselves."""
    text = configs.get(KEY_RANGES)
    if text and (count := len(parse_ranges(text))) != partitions:
        raise ApiError(
            ErrorCode.invalid_config,
            f"{KEY_RANGES} has {count} key ranges for {partitions} partitions: give one for each",
        )


def altered_node_configs(present: Mapping[str, str], changes: Changes, node: NodeConfig) -> dict[str, str]:
    """Invalid configs are answered with INVALID_REQUEST, as Kafka does for nodes (KAFKA-13609)."""

    def effective(name: str) -> tuple[str, ...]:
        if name in present:
            parsed: tuple[str, ...] = NODE_SETTINGS[name].parse(present[name])
            return parsed
        return node[name] or ()

    altered = _altered(present, changes, NODE_SETTINGS, effective)
    try:
        for name, text in altered.items():
            if present.get(name) != text:
                validate_node_override(name, text)
        validate_topic_overrides(node, altered, {})
    except ConfigError as error:
        raise ApiError(ErrorCode.invalid_request, str(error)) from error
    return altered


def altered_group_configs(present: Mapping[str, str], changes: Changes, node: NodeConfig) -> dict[str, str]:
    altered = _altered(present, changes, GROUP_SETTINGS, lambda name: ())
    try:
        validate_group_overrides(node, altered)
    except ConfigError as error:
        raise ApiError(ErrorCode.invalid_config, str(error)) from error
    return altered


def _altered(
    present: Mapping[str, str],
    changes: Changes,
    settings: Mapping[str, Setting],
    effective: _EffectiveList,
) -> dict[str, str]:
    if isinstance(changes, Mapping):
        return dict(changes)
    altered = dict(present)
    for change in changes:
        if change.action is Action.DELETE:
            altered.pop(change.name, None)
        elif change.action is Action.SET:
            altered[change.name] = change.value
        else:
            altered[change.name] = _list_change(change, settings.get(change.name), effective)
    return altered


def _list_change(change: Change, setting: Setting | None, effective: _EffectiveList) -> str:
    """Applied to the value in effect, not to Kafka's default: APPEND must not undo the node's setting."""
    if setting is None or setting.kind != "list":
        raise ApiError(
            ErrorCode.invalid_config,
            f"Can't {change.action.name} to key {change.name} because its type is not LIST.",
        )
    named = [item.strip() for item in change.value.split(",")]
    before = effective(change.name)
    if change.action is Action.APPEND:
        return ",".join((*before, *(item for item in named if item not in before)))
    return ",".join(item for item in before if item not in named)
