"""Requests that only the controller can carry out, brought to it as they are by whoever receives them.

A request that was relayed once is not relayed again: two nodes that take each other for the controller would
send it back and forth. Then, and when there is no controller, the answer is NOT_CONTROLLER, which clients try
again. Read next: peers.py, dispatch.py.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from headrace.broker.context import Reply, RequestContext
from headrace.broker.peers import PEER_CLIENT, PeerLost
from headrace.types import NO_NODE

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

RELAYED_KEYS = frozenset({19, 20, 33, 37, 43, 44, 45, 64})
"""CreateTopics, DeleteTopics, (Incremental)AlterConfigs, CreatePartitions, ElectLeaders, reassignments,
UnregisterBroker."""
_KNOWN_WITHIN_MS = 3_000
_ANSWERED_WITHIN_MS = 30_000


def is_for_controller(broker: Broker, context: RequestContext) -> bool:
    """Whether another node has to carry it out."""
    if context.api_key not in RELAYED_KEYS or broker.cluster.is_controller:
        return False
    return not (context.client_id or "").startswith(PEER_CLIENT)


async def relayed(
    broker: Broker, context: RequestContext, body: bytes, here: Callable[[], Awaitable[Reply]]
) -> Reply:
    """The controller's reply. `here`: what this node says, when it is the controller by now or none is."""
    controller = await controller_id(broker)
    if controller not in (NO_NODE, broker.node_id):
        try:
            return await broker.peers.relay(
                controller, context.api_key, context.api_version, body, _ANSWERED_WITHIN_MS
            )
        except PeerLost as error:
            logger.warning("a request for the controller was not relayed: %s", error)
    return await here()


async def controller_id(broker: Broker) -> int:
    """Of the view; waits a moment for one to take office."""
    await broker.view_waits.until(
        lambda view: view.controller_id in (broker.node_id, *view.nodes), _KNOWN_WITHIN_MS
    )
    return broker.cluster.view.controller_id
