# SPDX-License-Identifier: Apache-2.0
"""Values shared by all layers: identifiers and the immutable view of the cluster.

Read next: coordination/projection.py (builds a ClusterView).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.acls import AclBinding
from headrace.client_quotas import Quotas
from headrace.scram_credential import UserCredentials

TopicId = uuid.UUID

NO_TOPIC_ID = uuid.UUID(int=0)
NO_NODE = -1

EVENTS_TOPIC = "__headrace_events"
EVENTS_VERSION = 2
"""Of the events in that topic; fields may be added without a new version, older versions stay readable."""
LAG_TOPIC = "__headrace_lag"
LAG_VERSION = 1
"""Of its values; the first ones had no number."""
PIPELINES_TOPIC = "__headrace_pipelines"
"""Where drivers of Spark queries report their progress, on any Kafka: client/tools/pipeline_reports.py."""
READERS = "headrace.readers"
"""Key under which a topic's configs list the clients that fetch from it, only when asked for."""
SEGMENTS = "headrace.segments"
"""Key under which they list the segments of its partitions, only when asked for."""
CLIENTS = "headrace.clients"
"""Key under which a node's configs list the clients that are connected to it, only when asked for."""
OWN_TOPICS = frozenset({EVENTS_TOPIC, LAG_TOPIC})
"""Internal topics that Apache Kafka does not have."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"}) | OWN_TOPICS


class TopicPartition(NamedTuple):
    """A partition of a topic; equal to the tuple `(topic, partition)`."""

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
    """Id of its data directory, which one process locks: a successor knows that it is dead (R10)."""
    lossless: bool = True
    """It restarted with every record it ever reported (R21)."""
    new_disk: bool = False
    """Its data directory was empty: it holds nothing of what its predecessor reported (R20)."""
    leaving: bool = False
    """It is shutting down and must not become leader (R22)."""
    full: bool = False
    """Its disk is full (R25): other replicas lead and form the ISR, if there are any."""
    offline: frozenset[tuple[TopicId, int]] = frozenset()
    """Partitions whose log is damaged on this node (R27)."""
    offline_epochs: frozenset[tuple[TopicId, int, int]] = frozenset()
    """Of those that this process has fetched for: the leader epoch in which it did so last. Their logs begin
    anew in a later one only."""
    slow: frozenset[int] = frozenset()
    """Nodes that this one finds slow to acknowledge, perhaps itself (R16b)."""
    logs_in: bool = False
    """It proves its identity to the other nodes (S3); nodes of earlier releases do not."""
    session_ms: int = 0
    """How long its session outlives it; 0: not known, a node of an earlier release."""
    transaction_versions: tuple[int, int] = (0, 0)
    """Lowest and highest `transaction.version` it serves; 0 alone (earlier releases): no transactions."""

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((e for e in self.endpoints if e.listener == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Replicas, ISR and leader of a partition. Written only by the controller (R4)."""

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
    """A reassignment of a partition from the original to the target replicas."""

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
    """Partitions with a reassignment in progress."""

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizedFeatures:
    """Levels that the controller has finalized, by feature; each change has a higher epoch."""

    epoch: int = -1
    """-1: nothing was ever finalized."""
    levels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """An immutable, versioned view of the cluster, on which decisions are based."""

    version: int
    cluster_id: str
    controller_id: int = NO_NODE
    controller_epoch: int = 0
    nodes: Mapping[int, Node] = field(default_factory=dict)
    """The live nodes."""
    joining: Mapping[int, Node] = field(default_factory=dict)
    """Registered, but not yet admitted by the controller (R20)."""
    fenced: Mapping[int, Node] = field(default_factory=dict)
    """Registered, but fenced by the controller: they must register again."""
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topic_names: Mapping[TopicId, str] = field(default_factory=dict)
    node_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic settings by node id as text; "" has the cluster-wide defaults."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of groups, by group id."""
    client_quotas: Quotas = field(default_factory=dict)
    """Quotas of users, client ids and addresses."""
    node_login_required: bool = False
    """Requests between nodes need a login (S3): set for good once every registered node logs in."""
    users: Mapping[str, UserCredentials] = field(default_factory=dict, repr=False)
    """SCRAM credentials by user."""
    acls: Mapping[str, AclBinding] = field(default_factory=dict)
    """All ACLs, by the key of their entry; the same object as long as none has changed."""
    finalized_features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
    transaction_version: int = 0
    """The `transaction.version` in effect: finalized, and served by every registered node; 0: none is."""

    @property
    def registered(self) -> Mapping[int, Node]:
        """All registered nodes: live, joining and fenced."""
        return {**self.nodes, **self.joining, **self.fenced}

    def topic_by_id(self, topic_id: TopicId) -> Topic | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)
