"""InitProducerId 0-5, DescribeProducers 0: who may write, and who did.

An idempotent producer gets a new id at epoch 0, also when it names its old one, as in Apache Kafka. Gap:
transactions; which refusal each client understands is in docs/decisions/0003-what-is-not-served-yet.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.context import Handler, RequestContext
from headrace.broker.leading import leading_partition
from headrace.broker.no_transactions import log_refused_transaction
from headrace.broker.turns import in_turns
from headrace.errors import ApiError
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker

_NO_ID = -1


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
        log_refused_transaction(request.transactional_id)
        return ErrorCode.transactional_id_authorization_failed
    known_id = getattr(request, "producer_id", _NO_ID)
    known_epoch = getattr(request, "producer_epoch", _NO_ID)
    if request.transactional_id == "" or (known_id == _NO_ID) != (known_epoch == _NO_ID):
        return ErrorCode.invalid_request
    return ErrorCode.none


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


HANDLERS: dict[int, Handler] = {22: init_producer_id, 61: describe_producers}
