"""A topic that this node needs, made by the controller when that is another node. Read next: relay.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.peers import PeerLost
from headrace.broker.relay import controller_id
from headrace.broker.topic_rules import NewTopic
from headrace.coordination.refusals import not_controller
from headrace.errors import ApiError
from headrace.types import NO_NODE
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker

_CREATE_TOPICS_KEY, _VERSION = 19, 7
_WITHIN_MS = 15_000


async def created_elsewhere(broker: Broker, request: NewTopic) -> ApiError | None:
    """None when the topic is made and this node's view shows it. Raises ApiError when nobody was asked."""
    controller = await controller_id(broker)
    if controller in (NO_NODE, broker.node_id):
        raise not_controller("There is no controller at the moment.")
    try:
        reply = await broker.peers.request(
            controller, _CREATE_TOPICS_KEY, _VERSION, _body(request), _WITHIN_MS
        )
    except PeerLost as error:
        raise ApiError(
            ErrorCode.request_timed_out, f"The controller, node {controller}, did not answer: {error}"
        ) from error
    await broker.cluster.catch_up()
    (answer,) = reply.topics
    if answer.error_code == ErrorCode.none:
        return None
    return ApiError(ErrorCode(answer.error_code), answer.error_message)


def _body(request: NewTopic) -> dict[str, object]:
    return {
        "topics": [
            {
                "name": request.name,
                "num_partitions": request.partition_count,
                "replication_factor": request.replication_factor,
                "assignments": (),
                "configs": [{"name": name, "value": value} for name, value in request.configs],
            }
        ],
        "timeout": _WITHIN_MS,
        "validate_only": False,
    }
