# SPDX-License-Identifier: Apache-2.0
"""min.insync.replicas of a topic as configured: leaders and the controller must use the same value.

What is set for a single node does not count, since the next leader would have another value. The replica
count caps it, and decides where it is not configured: machines/replication/leader.py `effective_min_insync`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.config import NodeConfig
from headrace.types import ClusterView, Topic

NAME = "min.insync.replicas"


def configured_min_insync(config: NodeConfig, view: ClusterView, topic: Topic) -> int | None:
    return most_specific_min_insync(config, view.node_configs.get("", {}), topic.configs)


def most_specific_min_insync(
    config: NodeConfig, of_all_nodes: Mapping[str, str], of_topic: Mapping[str, str]
) -> int | None:
    """None when it is configured neither for the topic nor for all nodes."""
    text = of_topic.get(NAME, of_all_nodes.get(NAME))
    if text is not None:
        return int(text)
    return int(config[NAME]) if NAME in config.explicit else None
