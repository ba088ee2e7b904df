# SPDX-License-Identifier: Apache-2.0
"""Creates a topic through the controller when that is another node. Read next: controller.py (`ensure`)."""

from __future__ import annotations

from headrace.broker.controller.topic_rules import NewTopic
from headrace.broker.controller.view_waits import ViewWaits
from headrace.broker.replication.peers import PeerLost, Peers
from headrace.coordination.api_errors import not_controller
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError
from headrace.types import NO_NODE
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_VERSION = 7
_TIMEOUT_MS = 15_000


async def create_on_controller(
    request: NewTopic, *, node_id: int, cluster: ClusterMetadata, peers: Peers, view_waits: ViewWaits
) -> ApiError | None:
    """None when the topic was created and this node's view has it. Raises ApiError without a controller."""
    controller = await view_waits.controller_id(node_id)
    if controller in (NO_NODE, node_id):
        raise not_controller("There is no controller at the moment.")
    try:
        reply = await peers.request(controller, ApiKey.CREATE_TOPICS, _VERSION, _body(request), _TIMEOUT_MS)
    except PeerLost as error:
        raise ApiError(
            ErrorCode.request_timed_out, f"The controller, node {controller}, did not answer: {error}"
        ) from error
    await cluster.catch_up()
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
        "timeout": _TIMEOUT_MS,
        "validate_only": False,
    }
