# SPDX-License-Identifier: Apache-2.0
"""The default of headrace.flush: depends on whether the replicas of a topic share a power supply (R23).

On separate hosts (a ZooKeeper cluster), two in-sync replicas survive the power failure of one, and records
are left to the page cache as in Apache Kafka. With one node, or on one host, records are fsynced first.
Read next: min_insync.py, topic_settings.py; docs/decisions/0007 has the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.partition.settings.topic_settings import FLUSH_ACK, FLUSH_OS
from headrace.config import NodeConfig
from headrace.config.coordination_address import ZooKeeperAddress
from headrace.machines.replication.leader import effective_min_insync

NAME, NODE_NAME = "headrace.flush", "headrace.flush.default"
_ASKS_FOR_THE_DISK = ("flush.messages", "flush.ms")


def default_flush(config: NodeConfig, min_insync: int | None, replicas: int) -> str:
    """`min_insync`: as configured. `replicas`: of the topic's first partition."""
    over_hosts = isinstance(config.coordination, ZooKeeperAddress)
    apart = over_hosts and not config["headrace.allow.same.host"]
    return FLUSH_OS if apart and effective_min_insync(min_insync, replicas) >= 2 else FLUSH_ACK


def is_flush_set(config: NodeConfig, altered: Mapping[str, str], overrides: Mapping[str, str]) -> bool:
    """By the topic, by a setting of the nodes, or by Kafka's settings that ask for records on disk."""
    if NAME in overrides or any(name in overrides for name in _ASKS_FOR_THE_DISK):
        return True
    return NODE_NAME in altered or NODE_NAME in config.explicit
