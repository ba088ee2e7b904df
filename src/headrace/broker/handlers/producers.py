"""InitProducerId 0-5, DescribeProducers 0.

An idempotent producer gets a new producer id with epoch 0, also when it sends its current one, as in Apache
Kafka.

Gaps: transactions are refused (docs/decisions/0003-what-is-not-served-yet.md says how, and why).
"""

from __future__ import annotations

from typing import Any

from headrace.broker.groups.no_transactions import log_refused_transaction
from headrace.broker.metrics import Metrics
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import unique, yielding
from headrace.broker.partition.registry import Partitions
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_NO_ID = -1


class ProducerHandlers:
    """Handlers of InitProducerId and DescribeProducers."""

    def __init__(self, *, cluster: ClusterMetadata, partitions: Partitions, metrics: Metrics) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._metrics = metrics

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.DESCRIBE_PRODUCERS: self.describe_producers,
        }

    # InitProducerId

    async def init_producer_id(self, context: RequestContext, request: Any) -> dict[str, Any]:
        code = _init_error(request)
        if code is not ErrorCode.none:
            self._metrics.request_error(context.api_key, code)
            return {"error_code": code, "producer_id": _NO_ID, "producer_epoch": _NO_ID}
        (producer_id,) = await self._cluster.allocate_producer_ids(1)
        return {"producer_id": producer_id, "producer_epoch": 0}

    # DescribeProducers

    async def describe_producers(self, context: RequestContext, request: Any) -> dict[str, Any]:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": index, **self._describe_partition(topic.name, index)}
                        async for index in yielding(await unique(topic.partition_indexes))
                    ],
                }
                async for topic in yielding(await unique(request.topics))
            ]
        }

    def _describe_partition(self, name: str, partition_index: int) -> dict[str, Any]:
        try:
            partition = self._partitions.find_led(name, partition_index)
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


def _init_error(request: Any) -> ErrorCode:
    if request.transactional_id:
        log_refused_transaction(request.transactional_id)
        return ErrorCode.transactional_id_authorization_failed
    known_id = getattr(request, "producer_id", _NO_ID)
    known_epoch = getattr(request, "producer_epoch", _NO_ID)
    if request.transactional_id == "" or (known_id == _NO_ID) != (known_epoch == _NO_ID):
        return ErrorCode.invalid_request
    return ErrorCode.none
