# SPDX-License-Identifier: Apache-2.0
"""The effective settings of one topic: its overrides, else the node's setting, else the default.

Pure. The broker calls `resolve_topic` when a topic or a node setting changes, the controller the checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.config.node_config import NodeConfig
from headrace.config.node_settings import NODE_SETTINGS
from headrace.config.not_served import explain_unknown, nearest
from headrace.config.setting import LONG_MAX, Setting, Synonym
from headrace.config.topic_settings import TOPIC_SETTINGS
from headrace.errors import ConfigError


def resolve_topic(
    node: NodeConfig, dynamic_default: Mapping[str, str], overrides: Mapping[str, str]
) -> dict[str, Any]:
    """Typed values of every topic setting. `dynamic_default`: node settings altered while running."""
    return {
        name: setting.parse(overrides[name])
        if name in overrides
        else _from_node(setting, node, dynamic_default)
        for name, setting in TOPIC_SETTINGS.items()
    }


def validate_topic_override(name: str, text: str) -> Any:
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        raise ConfigError(f"Unknown topic config name: {name}{nearest(name, TOPIC_SETTINGS)}")
    return setting.parse(text)


def validate_topic_overrides(
    node: NodeConfig, dynamic_default: Mapping[str, str], overrides: Mapping[str, str]
) -> None:
    """Checks each override, then pairs that contradict each other."""
    for name, text in overrides.items():
        validate_topic_override(name, text)
    values = resolve_topic(node, dynamic_default, overrides)
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({values['min.compaction.lag.ms']}) > "
            f"max.compaction.lag.ms ({values['max.compaction.lag.ms']})"
        )
    if values["headrace.partitioner"] == "enforce" and not values["headrace.partitioner.ranges"]:
        raise ConfigError(
            "headrace.partitioner=enforce needs key ranges: set headrace.partitioner.ranges, "
            "or headrace.partitioner=client"
        )
    for name in ("flush.messages", "flush.ms"):
        if values[name] != LONG_MAX and values["headrace.flush"] != "ack":
            raise ConfigError(
                f"{name}={values[name]} asks for records on disk, but "
                f"headrace.flush={values['headrace.flush']} promises less: set headrace.flush=ack, "
                f"or leave {name} out"
            )


def validate_node_override(name: str, text: str) -> Any:
    """For a node setting that is altered while nodes run."""
    setting = NODE_SETTINGS.get(name)
    if setting is None:
        raise ConfigError(explain_unknown(name))
    if not setting.dynamic:
        raise ConfigError(f"Cannot update these configs dynamically: {name} is read when the node starts")
    return setting.parse(text)


def _from_node(setting: Setting, node: NodeConfig, dynamic_default: Mapping[str, str]) -> Any:
    for synonym in setting.synonyms:
        text = dynamic_default.get(synonym.name)
        value = node[synonym.name] if text is None else NODE_SETTINGS[synonym.name].parse(text)
        if value is not None:
            return _scaled(value, synonym)
    return setting.default


def _scaled(value: Any, synonym: Synonym) -> Any:
    if synonym.factor == 1:
        return value
    return value * synonym.factor if value >= 0 else -1
