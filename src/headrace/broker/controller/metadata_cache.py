# SPDX-License-Identifier: Apache-2.0
"""Cache of encoded Metadata replies, and the cluster view as clients of one listener see it.

Depends on the cluster view only, not on requests or logs. A new view invalidates whole replies; the bytes of
unchanged topics are reused, so that a new topic among thousands costs one encoding.
Read next: wire/requests/metadata_reply.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import NamedTuple

from headrace.broker.network.request_context import EncodedReply
from headrace.broker.network.yielding import yielding_by_size
from headrace.broker.replication.live_nodes import DamagedLogs, damaged_logs
from headrace.types import NO_NODE, ClusterView, Endpoint, Node, PartitionState, Topic
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.metadata_reply import (
    NOT_ASKED,
    MetadataPartition,
    MetadataTopic,
    encode_broker,
    encode_metadata_reply,
    encode_topic,
)

_MAX_REPLIES = 256
_MAX_REPLY_BYTES = 16 * 1024 * 1024
_PARTITIONS_PER_YIELD = 500
"""Requests of others wait while these are encoded, however many topics there are. With fewer the reply would
wait longer than it takes to encode: whatever else a node does has a turn in between."""
_LISTENER_ERROR_FROM = 6
"""Older versions get LEADER_NOT_AVAILABLE when the leader has no endpoint on the listener."""


class ListenerNodes(NamedTuple):
    """The nodes of a view as clients of one listener see them: only those with an endpoint can be reached."""

    known: frozenset[int]
    endpoints: Mapping[int, Endpoint]
    damaged: DamagedLogs

    def offline(self, topic: Topic, index: int) -> tuple[int, ...]:
        """Replicas on nodes without an endpoint, or whose log is damaged (R27)."""
        damaged = self.damaged.get((topic.topic_id, index), ())
        replicas = topic.partitions[index].replicas
        return tuple(node for node in replicas if node not in self.endpoints or node in damaged)

    def leader(self, state: PartitionState) -> int:
        return state.leader if state.leader in self.endpoints else NO_NODE


def nodes_on(view: ClusterView, listener: str) -> ListenerNodes:
    found = {node_id: node.endpoint(listener) for node_id, node in sorted(view.nodes.items())}
    endpoints = {node_id: endpoint for node_id, endpoint in found.items() if endpoint is not None}
    return ListenerNodes(frozenset(view.nodes), endpoints, damaged_logs(view))


def controller_id(view: ClusterView, nodes: ListenerNodes) -> int:
    """The controller, or any node while the controller cannot be reached on this listener."""
    if view.controller_id in nodes.endpoints:
        return view.controller_id
    return next(iter(nodes.endpoints), NO_NODE)


def describe_topic(
    topic: Topic, nodes: ListenerNodes, version: int, operations: int = NOT_ASKED
) -> MetadataTopic:
    partitions = [
        _describe_partition(index, state, nodes, version, nodes.offline(topic, index))
        for index, state in enumerate(topic.partitions)
    ]
    return MetadataTopic(0, topic.name, topic.topic_id, topic.internal, partitions, operations)


def _describe_partition(
    partition_index: int, state: PartitionState, nodes: ListenerNodes, version: int, offline: tuple[int, ...]
) -> MetadataPartition:
    replicas, isr = state.replicas, state.isr
    if version == 0 and offline:  # version 0 has no offline replicas: leave them out
        replicas = tuple(node_id for node_id in replicas if node_id not in offline)
        isr = tuple(node_id for node_id in isr if node_id not in offline)
    leader = nodes.leader(state)
    error = ErrorCode.none
    if leader == NO_NODE:
        lacks_listener = state.leader in nodes.known and version >= _LISTENER_ERROR_FROM
        error = ErrorCode.listener_not_found if lacks_listener else ErrorCode.leader_not_available
    elif len(replicas) < len(state.replicas):
        error = ErrorCode.replica_not_available
    return MetadataPartition(int(error), partition_index, leader, state.leader_epoch, replicas, isr, offline)


class _Shape(NamedTuple):
    """What the encoding of a topic depends on besides the topic and the operations on it."""

    version: int
    listener: str
    with_operations: bool


class _EncodedTopics:
    """Encoded topics of one shape; valid as long as the nodes do not change."""

    def __init__(self, shape: _Shape, nodes: ListenerNodes) -> None:
        self.nodes = nodes
        self._shape = shape
        self._topics: dict[str, tuple[Topic, int, bytes]] = {}

    def topic(self, topic: Topic, operations: int) -> bytes:
        cached = self._topics.get(topic.name)
        if cached is not None and cached[0] is topic and cached[1] == operations:
            return cached[2]
        version = self._shape.version
        encoded = encode_topic(version, describe_topic(topic, self.nodes, version, operations))
        self._topics[topic.name] = (topic, operations, encoded)
        return encoded

    def drop_deleted(self, view: ClusterView) -> None:
        if len(self._topics) > len(view.topics):
            self._topics = {name: cached for name, cached in self._topics.items() if name in view.topics}


def _size(topic: Topic | MetadataTopic) -> int:
    return len(topic.partitions) or 1


def _not_asked(name: str) -> int:
    return NOT_ASKED


class MetadataCache:
    """Metadata replies of this node, dropped when the view changes, and so when an ACL does.

    Keys contain the request and what its sender may see.
    """

    def __init__(self) -> None:
        self._departed: dict[int, Node] = {}
        self._view: ClusterView | None = None
        self._replies: dict[Hashable, EncodedReply] = {}
        self._reply_bytes = 0
        self._encoded: dict[_Shape, _EncodedTopics] = {}

    def add_departed(self, node: Node) -> None:
        """List a node that left the cluster, without partitions, until `remove_departed`.

        librdkafka drops a node that is no longer listed, and with it, for a second, the partitions whose new
        leader it is about to look up.
        """
        self._departed[node.node_id] = node
        self._drop_replies()

    def remove_departed(self, node: Node) -> None:
        if self._departed.get(node.node_id) is node:
            del self._departed[node.node_id]
            self._drop_replies()

    def get(self, view: ClusterView, key: Hashable) -> EncodedReply | None:
        """The reply to an equal request, if the view has not changed since."""
        if view is not self._view:
            self._view = view
            self._drop_replies()
        return self._replies.get(key)

    def put(self, view: ClusterView, key: Hashable, reply: EncodedReply) -> None:
        if view is not self._view:
            return
        if len(self._replies) >= _MAX_REPLIES or self._reply_bytes + len(reply) > _MAX_REPLY_BYTES:
            self._drop_replies()
        if len(reply) <= _MAX_REPLY_BYTES:
            self._replies[key] = reply
            self._reply_bytes += len(reply)

    def _drop_replies(self) -> None:
        self._replies.clear()
        self._reply_bytes = 0

    async def build(
        self,
        view: ClusterView,
        version: int,
        listener: str,
        topics: Iterable[Topic | MetadataTopic],
        *,
        topic_operations: Callable[[str], int] | None = None,
        cluster_operations: int = NOT_ASKED,
    ) -> EncodedReply:
        """Encode a reply. `topics`: topics of the view, or entries with an error for others.

        `topic_operations`: those that are authorized on a topic, if asked for.
        """
        encoded = self._encoded_for(view, _Shape(version, listener, topic_operations is not None))
        operations_on = topic_operations or _not_asked
        nodes = encoded.nodes
        parts = [
            encoded.topic(topic, operations_on(topic.name))
            if isinstance(topic, Topic)
            else encode_topic(version, topic)
            async for topic in yielding_by_size(topics, _size, _PARTITIONS_PER_YIELD)
        ]
        return EncodedReply(
            encode_metadata_reply(
                version,
                brokers=[
                    encode_broker(version, node.node_id, address.host, address.port, node.rack)
                    for node, address in self._listed(view, nodes, listener)
                ],
                cluster_id=view.cluster_id,
                controller_id=controller_id(view, nodes),
                topics=parts,
                cluster_authorized_operations=cluster_operations,
            )
        )

    def _listed(
        self, view: ClusterView, nodes: ListenerNodes, listener: str
    ) -> Iterable[tuple[Node, Endpoint]]:
        for node_id, address in nodes.endpoints.items():
            yield view.nodes[node_id], address
        for node_id, node in self._departed.items():
            endpoint = None if node_id in view.nodes else node.endpoint(listener)
            if endpoint is not None:
                yield node, endpoint

    def _encoded_for(self, view: ClusterView, shape: _Shape) -> _EncodedTopics:
        nodes = nodes_on(view, shape.listener)
        encoded = self._encoded.get(shape)
        if encoded is None or encoded.nodes != nodes:
            encoded = self._encoded[shape] = _EncodedTopics(shape, nodes)
        encoded.drop_deleted(view)
        return encoded
