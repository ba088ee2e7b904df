# SPDX-License-Identifier: Apache-2.0
"""Forwarding of requests that only another node can handle: the controller, or the coordinator of a group.

Controller requests go to the controller. OffsetFetch goes to the group's coordinator, since librdkafka does
not retry it after NOT_COORDINATOR and then never starts to fetch (decision 19). The receiving node sends the
request body unchanged, with the identity of its client (envelope.py), and returns the reply unchanged. A
forwarded request is not forwarded again: two nodes with different views could send it back and forth. When no
target is known or it cannot be reached, this node handles the request itself, and its handler answers
NOT_CONTROLLER or NOT_COORDINATOR.
Read next: envelope.py, replication/peers.py (connections between nodes), dispatcher.py.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from headrace.broker.controller.view_waits import ViewWaits
from headrace.broker.dispatch.envelope import wrap
from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.network.request_context import EncodedReply, Reply, RequestContext
from headrace.broker.replication.peers import FORWARD, NotServed, PeerLost, Peers
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.principal import NODE
from headrace.types import NO_NODE
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

CONTROLLER_KEYS = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_CLIENT_QUOTAS,
    }
)
"""APIs of clients that only the controller handles."""
FORWARDED_KEYS = CONTROLLER_KEYS | {ApiKey.OFFSET_FETCH}
_TIMEOUT_MS = 30_000


class RequestForwarder:
    """Decides which node handles a request and forwards it when that is not this node."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster: ClusterMetadata,
        groups: GroupCoordinator,
        peers: Peers,
        view_waits: ViewWaits,
    ) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._groups = groups
        self._peers = peers
        self._view_waits = view_waits

    def is_for_other_node(self, context: RequestContext, request: object) -> bool:
        if context.forwarded or context.principal.kind == NODE:
            return False
        if context.api_key in CONTROLLER_KEYS:
            return not self._cluster.is_controller
        return context.api_key == ApiKey.OFFSET_FETCH and self._coordinator_id(request) != self._node_id

    async def forward(
        self,
        context: RequestContext,
        request: object,
        body: bytes,
        handle_locally: Callable[[], Awaitable[Reply]],
    ) -> Reply:
        """Return the other node's reply, or this node's when no other one can be asked."""
        if context.api_key in CONTROLLER_KEYS:
            node_id = await self._view_waits.controller_id(self._node_id)
        else:
            node_id = self._coordinator_id(request)
        if node_id not in (NO_NODE, self._node_id):
            try:
                return await self._send(node_id, context, body)
            except PeerLost as error:
                logger.warning("a request was not forwarded: %s", error)
        return await handle_locally()

    async def _send(self, node_id: int, context: RequestContext, body: bytes) -> EncodedReply:
        try:
            reply = await self._peers.request(
                node_id, ApiKey.ENVELOPE, None, wrap(context, body), _TIMEOUT_MS, purpose=FORWARD
            )
        except NotServed:  # by a node of an earlier release, which authorizes nothing
            return await self._peers.forward(node_id, context.api_key, context.api_version, body, _TIMEOUT_MS)
        if reply.error_code is not ErrorCode.none or reply.response_data is None:
            raise PeerLost(f"node {node_id} refused an envelope: {reply.error_code.name}", sent=True)
        frame = bytes(reply.response_data)
        return EncodedReply(len(frame).to_bytes(4, "big") + frame)

    def _coordinator_id(self, request: Any) -> int:
        """Coordinator of all groups in the request; NO_NODE when unknown or not the same for all."""
        groups = getattr(request, "groups", None)
        group_ids = [request.group_id] if groups is None else [each.group_id for each in groups]
        found = {self._groups.coordinator_of(group_id) for group_id in group_ids}
        coordinator = found.pop() if len(found) == 1 else None
        return NO_NODE if coordinator is None else coordinator.node_id


def changes_cluster(context: RequestContext) -> bool:
    """Whether the answer to a client says that the cluster has changed."""
    from_node = context.forwarded or context.principal.kind == NODE
    return context.api_key in CONTROLLER_KEYS and not from_node
