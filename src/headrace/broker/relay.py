"""Requests that another node has to carry out, brought to it as they are by whoever receives them.

What only the controller can do, and a group's offsets when its coordinator is another node: librdkafka never
asks for them again after NOT_COORDINATOR, and reads nothing from then on (decision 19). What was relayed once
is not relayed again: two nodes that take each other for the one would send it back and forth. Then, and when
there is no such node, this one answers: NOT_CONTROLLER or NOT_COORDINATOR. Read next: peers.py, dispatch.py.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from headrace.broker.context import Reply, RequestContext
from headrace.broker.peers import PEER_CLIENT, PeerLost
from headrace.types import NO_NODE

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

CONTROLLER_KEYS = frozenset({19, 20, 33, 37, 43, 44, 45, 64})
"""CreateTopics, DeleteTopics, (Incremental)AlterConfigs, CreatePartitions, ElectLeaders, reassignments,
UnregisterBroker."""
_OFFSET_FETCH_KEY = 9
_KNOWN_WITHIN_MS = 3_000
_ANSWERED_WITHIN_MS = 30_000


def is_for_another(broker: Broker, context: RequestContext, request: object) -> bool:
    """Whether another node has to carry it out."""
    if (context.client_id or "").startswith(PEER_CLIENT):
        return False
    if context.api_key in CONTROLLER_KEYS:
        return not broker.cluster.is_controller
    return context.api_key == _OFFSET_FETCH_KEY and _coordinator_id(broker, request) != broker.node_id


async def relayed(
    broker: Broker,
    context: RequestContext,
    request: object,
    body: bytes,
    here: Callable[[], Awaitable[Reply]],
) -> Reply:
    """The other node's reply. `here`: what this node says, when it is the one by now or none is."""
    for_controller = context.api_key in CONTROLLER_KEYS
    node_id = await controller_id(broker) if for_controller else _coordinator_id(broker, request)
    if node_id not in (NO_NODE, broker.node_id):
        try:
            return await broker.peers.relay(
                node_id, context.api_key, context.api_version, body, _ANSWERED_WITHIN_MS
            )
        except PeerLost as error:
            logger.warning("a request for another node was not relayed: %s", error)
    return await here()


def _coordinator_id(broker: Broker, request: Any) -> int:
    """Of all groups that the request names; NO_NODE when none is known, or they have not one alone."""
    named = [each.group_id for each in request.groups] if hasattr(request, "groups") else [request.group_id]
    found = {broker.groups.coordinator_of(group_id) for group_id in named}
    coordinator = found.pop() if len(found) == 1 else None
    return NO_NODE if coordinator is None else coordinator.node_id


async def controller_id(broker: Broker) -> int:
    """Of the view; waits a moment for one to take office."""
    await broker.view_waits.until(
        lambda view: view.controller_id in (broker.node_id, *view.nodes), _KNOWN_WITHIN_MS
    )
    return broker.cluster.view.controller_id
