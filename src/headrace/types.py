"""Values that every layer shares: identifiers and the frozen picture of the cluster.

Knows no bytes, no disk, no network. Read next: coordination/cluster.py (who makes a ClusterView).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

TopicId = uuid.UUID

NO_TOPIC_ID = uuid.UUID(int=0)
NO_NODE = -1

EVENTS_TOPIC = "__headrace_events"
LAG_TOPIC = "__headrace_lag"
OWN_TOPICS = frozenset({EVENTS_TOPIC, LAG_TOPIC})
"""What a node writes about itself: Apache Kafka has nothing like them."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"}) | OWN_TOPICS


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address under which a node's listener is advertised to clients."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A registered node. `epoch` is its incarnation: a restart gets a higher one (R3)."""

    node_id: int
    epoch: int
    host_id: str
    hostname: str
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    directory_id: str = ""
    """Of its data directory, which one process holds: the next one on it knows its predecessor dead (R10)."""
    lossless: bool = True
    """It came back with all it ever reported (R21)."""
    leaving: bool = False
    """It is about to stop, and wants to lead nothing more (R22)."""
    full: bool = False
    """Its disk has no room for records (R25): others lead and count as in sync, where there are others."""
    offline: frozenset[tuple[TopicId, int]] = frozenset()
    """Partitions whose log is damaged there (R27)."""

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((e for e in self.endpoints if e.listener == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Who holds a partition. One writer: the controller (R4)."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int = 0
    controller_epoch: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A partition on its way from the original to the target replicas."""

    original: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(node for node in self.target if node not in self.original)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(node for node in self.original if node not in self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    topic_id: TopicId
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    moves: Mapping[int, Move] = field(default_factory=dict)
    """Partitions that are being moved to other replicas."""

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One immutable, versioned picture of the cluster; decisions are made on it."""

    version: int
    cluster_id: str
    controller_id: int = NO_NODE
    controller_epoch: int = 0
    nodes: Mapping[int, Node] = field(default_factory=dict)
    """The live ones."""
    joining: Mapping[int, Node] = field(default_factory=dict)
    """Registered, and not yet let in by the controller (R20)."""
    fenced: Mapping[int, Node] = field(default_factory=dict)
    """Registered, and given up by the controller: they have to register anew."""
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topic_names: Mapping[TopicId, str] = field(default_factory=dict)
    node_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic settings by node id as text; "" holds the cluster-wide defaults."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of single groups, by group id."""

    def topic_by_id(self, topic_id: TopicId) -> Topic | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)
