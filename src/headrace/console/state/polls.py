# SPDX-License-Identifier: Apache-2.0
"""What brokers answered, as plain values. Folded into a snapshot by folding.py and group_folding.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.console.state.model import GroupState, NodeState, TopicState
from headrace.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPoll:
    cluster_id: str
    controller: int | None
    nodes: Mapping[int, NodeState]
    topics: Mapping[str, TopicState]
    whole: bool
    """Whether all topics were asked for, so that one that is missing does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskPoll:
    sizes: Mapping[TopicPartition, int]
    total_bytes: int | None
    free_bytes: int | None
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsPoll:
    """Groups as their coordinators describe them. `silent`: coordinators that did not answer."""

    groups: Mapping[str, GroupState]
    silent: frozenset[int] = frozenset()


Offsets = Mapping[TopicPartition, int]
