"""InitProducerId 0-5, DescribeProducers 0, FindCoordinator 0-6: who may write, and whom to ask.

An idempotent producer gets a new id at epoch 0, also when it names its old one, as in Apache Kafka. Gaps:
transactions and groups are not served; which refusal each client understands, and why version 2 of
FindCoordinator differs, is in docs/decisions/0003-what-is-not-served-yet.md.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.broker.context import Handler, RequestContext
from headrace.broker.leading import leading_partition
from headrace.broker.turns import in_turns
from headrace.errors import ApiError
from headrace.types import NO_NODE
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

NO_TRANSACTIONS = "transactions are not served by this version of Headrace; unset transactional.id"
NO_GROUPS = "consumer groups are not served by this version of Headrace; use assign() instead of subscribe()"

_GROUP, _TRANSACTION = 0, 1
_BATCHED_FROM = 4
_LIBRDKAFKA_VERSION = 2
_NO_ID = -1
_MOST_KEYS_LOGGED = 5


# InitProducerId


async def init_producer_id(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    code = _refusal_of_producer(request)
    if code is not ErrorCode.none:
        broker.metrics.request_error(context.api_key, code)
        return {"error_code": code, "producer_id": _NO_ID, "producer_epoch": _NO_ID}
    (producer_id,) = await broker.cluster.allocate_producer_ids(1)
    return {"producer_id": producer_id, "producer_epoch": 0}


def _refusal_of_producer(request: Any) -> ErrorCode:
    if request.transactional_id:
        _log_once(_TRANSACTION, request.transactional_id, NO_TRANSACTIONS)
        return ErrorCode.transactional_id_authorization_failed
    known_id = getattr(request, "producer_id", _NO_ID)
    known_epoch = getattr(request, "producer_epoch", _NO_ID)
    if request.transactional_id == "" or (known_id == _NO_ID) != (known_epoch == _NO_ID):
        return ErrorCode.invalid_request
    return ErrorCode.none


# FindCoordinator


async def find_coordinator(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    key_type = getattr(request, "key_type", _GROUP)
    batched = context.api_version >= _BATCHED_FROM
    keys = request.coordinator_keys if batched else (request.key,)
    code, message = _refusal(key_type)
    for key in keys[:_MOST_KEYS_LOGGED]:
        _log_once(key_type, key, message)
    if key_type == _GROUP and context.api_version == _LIBRDKAFKA_VERSION:
        answer = _this_node(broker, context)
    else:
        broker.metrics.request_error(context.api_key, code)
        answer = {"error_code": code, "error_message": message, "node_id": NO_NODE, "host": "", "port": -1}
    if not batched:
        return answer
    return {"coordinators": [{"key": key, **answer} async for key in in_turns(keys)]}


def _this_node(broker: Broker, context: RequestContext) -> dict[str, Any]:
    """As coordinator of a group that nobody can join; the client says so when it finds JoinGroup missing."""
    endpoint = broker.cluster.view.nodes[broker.node_id].endpoint(context.listener)
    if endpoint is None:
        return {"error_code": ErrorCode.coordinator_not_available, "error_message": NO_GROUPS}
    return {"node_id": broker.node_id, "host": endpoint.host, "port": endpoint.port}


def _refusal(key_type: int) -> tuple[ErrorCode, str]:
    if key_type == _TRANSACTION:
        return ErrorCode.cluster_authorization_failed, NO_TRANSACTIONS
    if key_type != _GROUP:
        return ErrorCode.invalid_request, f"there is no coordinator of type {key_type}"
    return ErrorCode.unsupported_version, NO_GROUPS


@lru_cache(maxsize=256)
def _log_once(key_type: int, key: str, message: str) -> None:
    """Cached, so that a client which asks every second is named once."""
    logger.warning("no coordinator for %r (type %d): %s", key, key_type, message)


# DescribeProducers


async def describe_producers(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, **_producers_of(broker, topic.name, index)}
                    async for index in in_turns(topic.partition_indexes)
                ],
            }
            async for topic in in_turns(request.topics)
        ]
    }


def _producers_of(broker: Broker, name: str, partition_index: int) -> dict[str, Any]:
    try:
        partition = leading_partition(broker, name, partition_index)
    except ApiError as error:
        return {"error_code": error.code, "error_message": error.message}
    return {
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.transaction_start,
            }
            for producer in partition.active_producers()
        ]
    }


HANDLERS: dict[int, Handler] = {10: find_coordinator, 22: init_producer_id, 61: describe_producers}
