# SPDX-License-Identifier: Apache-2.0
"""From a node's settings to those of the group machines and of `__consumer_offsets`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.broker.controller.topic_rules import NewTopic
from headrace.config import GROUP_SETTINGS
from headrace.machines.groups.classic.rebalance import ClassicGroupSettings
from headrace.machines.groups.consumer.events import ConsumerGroupConfig
from headrace.machines.groups.group import GroupSettings
from headrace.machines.groups.migration import MigrationPolicy
from headrace.machines.groups.offsets import OffsetsSettings

_MINUTE_MS = 60_000


def group_settings(node: Mapping[str, Any]) -> GroupSettings:
    return GroupSettings(
        classic=ClassicGroupSettings(
            min_session_timeout_ms=node["group.min.session.timeout.ms"],
            max_session_timeout_ms=node["group.max.session.timeout.ms"],
            max_size=node["group.max.size"],
            max_bytes=node["headrace.group.max.bytes"],
            initial_rebalance_delay_ms=node["group.initial.rebalance.delay.ms"],
        ),
        consumer=ConsumerGroupConfig(
            session_timeout_ms=node["group.consumer.session.timeout.ms"],
            min_session_timeout_ms=node["group.consumer.min.session.timeout.ms"],
            max_session_timeout_ms=node["group.consumer.max.session.timeout.ms"],
            heartbeat_interval_ms=node["group.consumer.heartbeat.interval.ms"],
            min_heartbeat_interval_ms=node["group.consumer.min.heartbeat.interval.ms"],
            max_heartbeat_interval_ms=node["group.consumer.max.heartbeat.interval.ms"],
            assignment_interval_ms=node["group.consumer.assignment.interval.ms"],
            min_assignment_interval_ms=node["group.consumer.min.assignment.interval.ms"],
            max_assignment_interval_ms=node["group.consumer.max.assignment.interval.ms"],
            regex_refresh_interval_ms=node["group.consumer.regex.refresh.interval.ms"],
            max_size=node["group.consumer.max.size"],
            max_bytes=node["headrace.group.max.bytes"],
            assignors=node["group.consumer.assignors"],
        ),
        offsets=OffsetsSettings(
            metadata_max_bytes=node["offset.metadata.max.bytes"],
            retention_ms=node["offsets.retention.minutes"] * _MINUTE_MS,
        ),
        migration_policy=MigrationPolicy(node["group.consumer.migration.policy"]),
    )


def own_config(config: ConsumerGroupConfig, own: Mapping[str, str]) -> ConsumerGroupConfig:
    """With the settings of a single group."""
    return config.for_group({name: int(value) for name, value in own.items() if name in GROUP_SETTINGS})


def offsets_topic(name: str, node: Mapping[str, Any]) -> NewTopic:
    """As Apache Kafka makes it."""
    return NewTopic(
        name=name,
        partition_count=node["offsets.topic.num.partitions"],
        replication_factor=node["offsets.topic.replication.factor"],
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(node["offsets.topic.segment.bytes"])),
        ),
    )
