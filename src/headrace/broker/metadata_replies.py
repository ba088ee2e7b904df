"""What a client is told of the cluster, seen through the listener it came in on, and kept as encoded bytes.

Knows views and bytes, no requests and no log. A new view drops whole replies; the bytes of topics that did
not change stay, so one created topic among thousands costs one. Read next: wire/metadata_reply.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from headrace.broker.context import EncodedReply
from headrace.broker.live_nodes import DamagedLogs, damaged_logs
from headrace.types import NO_NODE, ClusterView, Endpoint, Node, PartitionState, Topic
from headrace.wire.error_codes import ErrorCode
from headrace.wire.metadata_reply import (
    NOT_ASKED,
    MetadataPartition,
    MetadataTopic,
    encode_broker,
    encode_metadata_reply,
    encode_topic,
)

TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
"""All that can be done to a topic: what Apache Kafka answers where nothing is forbidden."""
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))

_MOST_REPLIES = 256
_MOST_REPLY_BYTES = 16 * 1024 * 1024
_LISTENER_ERROR_FROM = 6
"""Older clients are told LEADER_NOT_AVAILABLE where the leader lacks their listener."""


class Reach(NamedTuple):
    """The nodes as one listener shows them: a node without this listener is known but out of reach."""

    known: frozenset[int]
    endpoints: Mapping[int, Endpoint]
    damaged: DamagedLogs

    def offline(self, topic: Topic, index: int) -> tuple[int, ...]:
        """Replicas on nodes out of reach, or in logs that are damaged (R27)."""
        damaged = self.damaged.get((topic.topic_id, index), ())
        replicas = topic.partitions[index].replicas
        return tuple(node for node in replicas if node not in self.endpoints or node in damaged)

    def leader(self, state: PartitionState) -> int:
        return state.leader if state.leader in self.endpoints else NO_NODE


def reach(view: ClusterView, listener: str) -> Reach:
    found = {node_id: node.endpoint(listener) for node_id, node in sorted(view.nodes.items())}
    endpoints = {node_id: endpoint for node_id, endpoint in found.items() if endpoint is not None}
    return Reach(frozenset(view.nodes), endpoints, damaged_logs(view))


def controller_id(view: ClusterView, seen: Reach) -> int:
    """Where admin requests go: the controller, or any node while that one is out of reach."""
    if view.controller_id in seen.endpoints:
        return view.controller_id
    return next(iter(seen.endpoints), NO_NODE)


def describe_topic(topic: Topic, seen: Reach, version: int, operations: int = NOT_ASKED) -> MetadataTopic:
    partitions = [
        _describe_partition(index, state, seen, version, seen.offline(topic, index))
        for index, state in enumerate(topic.partitions)
    ]
    return MetadataTopic(0, topic.name, topic.topic_id, topic.internal, partitions, operations)


def _describe_partition(
    partition_index: int, state: PartitionState, seen: Reach, version: int, offline: tuple[int, ...]
) -> MetadataPartition:
    replicas, isr = state.replicas, state.isr
    if version == 0 and offline:  # such clients know no offline replicas: they are not shown
        replicas = tuple(node_id for node_id in replicas if node_id not in offline)
        isr = tuple(node_id for node_id in isr if node_id not in offline)
    leader = seen.leader(state)
    error = ErrorCode.none
    if leader == NO_NODE:
        lacks_listener = state.leader in seen.known and version >= _LISTENER_ERROR_FROM
        error = ErrorCode.listener_not_found if lacks_listener else ErrorCode.leader_not_available
    elif len(replicas) < len(state.replicas):
        error = ErrorCode.replica_not_available
    return MetadataPartition(int(error), partition_index, leader, state.leader_epoch, replicas, isr, offline)


class _Shape(NamedTuple):
    """What the bytes of a topic depend on besides the topic."""

    version: int
    listener: str
    with_operations: bool


class _Encoded:
    """Bytes of brokers and topics in one shape, as long as the nodes stay the same."""

    def __init__(self, shape: _Shape, seen: Reach) -> None:
        self.seen = seen
        self._shape = shape
        self._topics: dict[str, tuple[Topic, bytes]] = {}

    def topic(self, topic: Topic) -> bytes:
        kept = self._topics.get(topic.name)
        if kept is not None and kept[0] is topic:
            return kept[1]
        version = self._shape.version
        operations = TOPIC_OPERATIONS if self._shape.with_operations else NOT_ASKED
        encoded = encode_topic(version, describe_topic(topic, self.seen, version, operations))
        self._topics[topic.name] = (topic, encoded)
        return encoded

    def forget_deleted(self, view: ClusterView) -> None:
        if len(self._topics) > len(view.topics):
            self._topics = {name: kept for name, kept in self._topics.items() if name in view.topics}


class MetadataReplies:
    """One per node."""

    def __init__(self) -> None:
        self._departed: dict[int, Node] = {}
        self._view: ClusterView | None = None
        self._replies: dict[Hashable, EncodedReply] = {}
        self._reply_bytes = 0
        self._encoded: dict[_Shape, _Encoded] = {}

    def departed(self, node: Node) -> None:
        """Still shown among the nodes, leading nothing, until `forget`.

        librdkafka drops a node that is missing, and with it, for a second, the partitions that it is about to
        look for elsewhere.
        """
        self._departed[node.node_id] = node
        self._drop_replies()

    def forget(self, node: Node) -> None:
        if self._departed.get(node.node_id) is node:
            del self._departed[node.node_id]
            self._drop_replies()

    def kept(self, view: ClusterView, key: Hashable) -> EncodedReply | None:
        """The reply to the same request, when the cluster has not changed since."""
        if view is not self._view:
            self._view = view
            self._drop_replies()
        return self._replies.get(key)

    def keep(self, view: ClusterView, key: Hashable, reply: EncodedReply) -> None:
        if view is not self._view:
            return
        if len(self._replies) >= _MOST_REPLIES or self._reply_bytes + len(reply) > _MOST_REPLY_BYTES:
            self._drop_replies()
        if len(reply) <= _MOST_REPLY_BYTES:
            self._replies[key] = reply
            self._reply_bytes += len(reply)

    def _drop_replies(self) -> None:
        self._replies.clear()
        self._reply_bytes = 0

    def build(
        self,
        view: ClusterView,
        version: int,
        listener: str,
        topics: Iterable[Topic | MetadataTopic],
        *,
        topic_operations: bool = False,
        cluster_operations: bool = False,
    ) -> EncodedReply:
        """Topics of the view, and ready-made ones for those that are not in it (with their error)."""
        encoded = self._encoded_for(view, _Shape(version, listener, topic_operations))
        seen = encoded.seen
        return EncodedReply(
            encode_metadata_reply(
                version,
                brokers=[
                    encode_broker(version, node.node_id, address.host, address.port, node.rack)
                    for node, address in self._shown(view, seen, listener)
                ],
                cluster_id=view.cluster_id,
                controller_id=controller_id(view, seen),
                topics=[
                    encoded.topic(topic) if isinstance(topic, Topic) else encode_topic(version, topic)
                    for topic in topics
                ],
                cluster_authorized_operations=CLUSTER_OPERATIONS if cluster_operations else NOT_ASKED,
            )
        )

    def _shown(self, view: ClusterView, seen: Reach, listener: str) -> Iterable[tuple[Node, Endpoint]]:
        for node_id, address in seen.endpoints.items():
            yield view.nodes[node_id], address
        for node_id, node in self._departed.items():
            endpoint = None if node_id in view.nodes else node.endpoint(listener)
            if endpoint is not None:
                yield node, endpoint

    def _encoded_for(self, view: ClusterView, shape: _Shape) -> _Encoded:
        seen = reach(view, shape.listener)
        encoded = self._encoded.get(shape)
        if encoded is None or encoded.seen != seen:
            encoded = self._encoded[shape] = _Encoded(shape, seen)
        encoded.forget_deleted(view)
        return encoded
