# SPDX-License-Identifier: Apache-2.0
"""All scenes, in the order in which the demo plays them."""

from __future__ import annotations

from headrace.demo.scene import Scene
from headrace.demo.scenes import (
    acks,
    cores,
    failover,
    group,
    keys,
    listeners,
    log,
    move,
    order,
    partitions,
    pipelines,
    positions,
    program,
    ranges,
    records,
    send,
    sizing,
    timeline,
    topics,
    topics_and_groups,
    two_groups,
    zookeeper,
)

_LOG = (log, records, partitions, keys, ranges, send)
_GROUPS = (group, two_groups, topics_and_groups, positions, timeline, order, sizing, program)
_NODES = (topics, acks, failover, zookeeper, cores, listeners)

SCENES: tuple[Scene, ...] = tuple(module.SCENE for module in (*_LOG, *_GROUPS, *_NODES, pipelines))
KAFKA_SCENES = (*SCENES, move.SCENE)
"""With Apache Kafka as the engine."""
