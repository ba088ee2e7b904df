# SPDX-License-Identifier: Apache-2.0
"""From a node's settings to those of transactional ids and of `__transaction_state`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.broker.controller.topic_rules import NewTopic
from headrace.broker.partition.settings.min_insync import NAME as MIN_INSYNC
from headrace.config import NodeConfig
from headrace.machines.transactions.transactional_id import TransactionSettings

_MIN_ISR = "transaction.state.log.min.isr"


def transaction_settings(node: Mapping[str, Any]) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=node["transaction.max.timeout.ms"],
        id_expiration_ms=node["transactional.id.expiration.ms"],
    )


def transactions_topic(name: str, node: NodeConfig) -> NewTopic:
    """As Apache Kafka makes it, but for min.insync.replicas: unless that is set, the replicas decide."""
    configs = [
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed"),
        ("segment.bytes", str(node["transaction.state.log.segment.bytes"])),
        ("unclean.leader.election.enable", "false"),
    ]
    if _MIN_ISR in node.explicit:
        configs.append((MIN_INSYNC, str(node[_MIN_ISR])))
    return NewTopic(
        name=name,
        partition_count=node["transaction.state.log.num.partitions"],
        replication_factor=node["transaction.state.log.replication.factor"],
        configs=tuple(configs),
    )
