# SPDX-License-Identifier: Apache-2.0
"""Settings of a node for groups and committed offsets, and those of single groups, as Kafka has them.

node_settings.py gathers them with the others. Read next: broker/groups/coordinator.py (what they mean).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from headrace.config.setting import (
    INT_MAX,
    MIB,
    Allowed,
    Setting,
    Synonym,
    at_least,
    between,
    node_setting,
    one_of,
    some_of,
)
from headrace.errors import ConfigError

_AT_LEAST_ONE_ASSIGNOR = some_of("uniform", "range")
_ASSIGNORS = Allowed(
    text=_AT_LEAST_ONE_ASSIGNOR.text,
    problem=lambda value: _AT_LEAST_ONE_ASSIGNOR.problem(value) if value else "names no assignor",
)

CLASSIC_GROUPS = (
    node_setting(
        "group.initial.rebalance.delay.ms",
        "int",
        3_000,
        "How long the first rebalance of a new group (classic protocol) waits for more members. Not set on a "
        "node that runs alone (without `headrace.coordination`): 0.",
        at_least(0),
        default_alone=0,
    ),
    node_setting(
        "group.min.session.timeout.ms",
        "int",
        6_000,
        "The shortest `session.timeout.ms` that a member may ask for.",
        at_least(0),
    ),
    node_setting(
        "group.max.session.timeout.ms",
        "int",
        1_800_000,
        "The longest `session.timeout.ms` that a member may ask for.",
        at_least(0),
    ),
    node_setting("group.max.size", "int", INT_MAX, "The most members of a classic group.", at_least(1)),
    node_setting(
        "headrace.group.max.bytes",
        "int",
        16 << 20,
        "The most that all members of a group may supply: subscriptions, names and assignments. A member "
        "that would exceed it is refused with GROUP_MAX_SIZE_REACHED.",
        at_least(1024),
    ),
)

CONSUMER_GROUPS = (
    node_setting(
        "group.consumer.session.timeout.ms",
        "int",
        45_000,
        "Without a heartbeat for this long, a member (`group.protocol=consumer`) is removed from its group.",
        at_least(1),
    ),
    node_setting(
        "group.consumer.min.session.timeout.ms",
        "int",
        45_000,
        "The least that a group's own `consumer.session.timeout.ms` may be.",
        at_least(1),
    ),
    node_setting(
        "group.consumer.max.session.timeout.ms", "int", 60_000, "The most that it may be.", at_least(1)
    ),
    node_setting(
        "group.consumer.heartbeat.interval.ms",
        "int",
        5_000,
        "Heartbeat interval that members get from the coordinator.",
        at_least(1),
    ),
    node_setting(
        "group.consumer.min.heartbeat.interval.ms",
        "int",
        5_000,
        "The least that a group's own `consumer.heartbeat.interval.ms` may be.",
        at_least(1),
    ),
    node_setting(
        "group.consumer.max.heartbeat.interval.ms", "int", 15_000, "The most that it may be.", at_least(1)
    ),
    node_setting(
        "group.consumer.assignment.interval.ms",
        "int",
        1_000,
        "A group's target assignment is computed at most this often.",
        at_least(0),
    ),
    node_setting(
        "group.consumer.min.assignment.interval.ms",
        "int",
        0,
        "The least that a group's own `consumer.assignment.interval.ms` may be.",
        at_least(0),
    ),
    node_setting(
        "group.consumer.max.assignment.interval.ms", "int", 15_000, "The most that it may be.", at_least(0)
    ),
    node_setting("group.consumer.max.size", "int", INT_MAX, "The most members of such a group.", at_least(1)),
    node_setting(
        "group.consumer.assignors",
        "list",
        ("uniform", "range"),
        "The assignors that members may choose; the first is for groups whose members choose none.",
        _ASSIGNORS,
    ),
    node_setting(
        "group.consumer.migration.policy",
        "string",
        "bidirectional",
        "Which groups may change their protocol while they have members: classic to consumer (`upgrade`), "
        "back (`downgrade`), both, or none.",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    node_setting(
        "group.consumer.regex.refresh.interval.ms",
        "int",
        600_000,
        "Regular expressions of members are matched against the topics again at least this often.",
        at_least(10_000),
    ),
)

OFFSETS = (
    node_setting(
        "offsets.topic.num.partitions",
        "int",
        50,
        "Partitions of `__consumer_offsets` when it is created. Each group belongs to one of them.",
        at_least(1),
    ),
    node_setting(
        "offsets.topic.replication.factor",
        "short",
        3,
        "Its replicas; as many as there are nodes when these are fewer.",
        at_least(1),
    ),
    node_setting("offsets.topic.segment.bytes", "int", 100 * MIB, "Its segment size.", at_least(1)),
    node_setting(
        "offsets.commit.timeout.ms",
        "int",
        5_000,
        "Timeout of a commit, and of every other group reply that waits for records to be committed.",
        at_least(1),
    ),
    node_setting(
        "offsets.retention.minutes",
        "int",
        10_080,
        "How long the offsets of a group that has become empty are kept.",
        at_least(1),
    ),
    node_setting(
        "offsets.retention.check.interval.ms",
        "long",
        600_000,
        "How often expired offsets are removed.",
        at_least(1),
    ),
    node_setting(
        "offset.metadata.max.bytes",
        "int",
        4_096,
        "The longest metadata that may be committed with an offset.",
        between(0, 32_767),
    ),
)

WRITTEN_DOWN = (
    node_setting(
        "headrace.events.enable",
        "boolean",
        True,
        "Writes events of groups and partitions to `__headrace_events`, for `headrace groups events`.",
    ),
    node_setting(
        "headrace.lag.enable",
        "boolean",
        True,
        "Writes samples of (log end offset, time) of partitions that groups read to `__headrace_lag`, for "
        "lag in seconds.",
    ),
)

GROUPS = (*CLASSIC_GROUPS, *CONSUMER_GROUPS, *OFFSETS, *WRITTEN_DOWN)


def _group_setting(name: str, doc: str) -> Setting:
    """Of a single group; the default and the bounds are the node's."""
    behind = f"group.{name}"
    default = next(setting.default for setting in GROUPS if setting.name == behind)
    return Setting(
        name=name,
        kind="int",
        default=default,
        doc=doc,
        scope="group",
        validator=at_least(0 if name == "consumer.assignment.interval.ms" else 1),
        dynamic=True,
        synonyms=(Synonym(name=behind),),
    )


GROUP_SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        setting.name: setting
        for setting in (
            _group_setting(
                "consumer.session.timeout.ms",
                "Without a heartbeat for this long, a member is removed from the group.",
            ),
            _group_setting(
                "consumer.heartbeat.interval.ms", "Heartbeat interval that members get from the coordinator."
            ),
            _group_setting(
                "consumer.assignment.interval.ms",
                "The group's target assignment is computed at most this often.",
            ),
        )
    }
)
"""For groups of the consumer protocol; classic members bring their own."""


def validate_group_overrides(node: Mapping[str, Any], overrides: Mapping[str, str]) -> None:
    """Checks each override against the node's bounds, and pairs against each other. Raises ConfigError."""
    values = {name: node[setting.synonyms[0].name] for name, setting in GROUP_SETTINGS.items()}
    for name, text in overrides.items():
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            raise ConfigError(f"Unknown group config name: {name}")
        values[name] = value = setting.parse(text)
        behind = name.removeprefix("consumer.")
        low, high = f"group.consumer.min.{behind}", f"group.consumer.max.{behind}"
        if value < node[low]:
            raise ConfigError(f"{name} must be greater than or equal to {low}")
        if value > node[high]:
            raise ConfigError(f"{name} must be less than or equal to {high}")
    if values["consumer.session.timeout.ms"] <= values["consumer.heartbeat.interval.ms"]:
        raise ConfigError("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")
