# SPDX-License-Identifier: Apache-2.0
"""InitProducerId 0-5, DescribeProducers 0.

An idempotent producer gets a new producer id with epoch 0, also when it sends its current one, as in Apache
Kafka. Who is the producer of a transactional id is decided in machines/transactions/transactional_id.py.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from headrace.broker.metrics import Metrics
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import unique, yielding
from headrace.broker.partition.registry import Partitions
from headrace.broker.transactions.coordinator import TransactionCoordinator
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError
from headrace.machines.machine import ReplyToken
from headrace.machines.transactions.events import NO_PRODUCER, InitProducerId, Producer, ProducerReply
from headrace.machines.transactions.versions import error_for
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_MILLISECOND = timedelta(milliseconds=1)


class ProducerHandlers:
    """Handlers of InitProducerId and DescribeProducers."""

    def __init__(
        self,
        *,
        cluster: ClusterMetadata,
        partitions: Partitions,
        transactions: TransactionCoordinator,
        metrics: Metrics,
    ) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._partitions = partitions
        self._metrics = metrics

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.DESCRIBE_PRODUCERS: self.describe_producers,
        }

    # InitProducerId

    async def init_producer_id(self, context: RequestContext, request: Any) -> dict[str, Any]:
        try:
            reply = await self._init(request)
        except ApiError as error:
            reply = ProducerReply(error=error.code)
        code = error_for(ApiKey.INIT_PRODUCER_ID, context.api_version, reply.error)
        if code is not ErrorCode.none:
            self._metrics.request_error(context.api_key, code, context.activity)
        producer_id, epoch = reply.producer
        return {"error_code": code, "producer_id": producer_id, "producer_epoch": epoch}

    async def _init(self, request: Any) -> ProducerReply:
        known = Producer(
            getattr(request, "producer_id", NO_PRODUCER.producer_id),
            getattr(request, "producer_epoch", NO_PRODUCER.epoch),
        )
        is_complete = (known.producer_id == NO_PRODUCER.producer_id) == (known.epoch == NO_PRODUCER.epoch)
        if not is_complete:
            raise ApiError(ErrorCode.invalid_request)
        if request.transactional_id is None:
            (producer_id,) = await self._cluster.allocate_producer_ids(1)
            return ProducerReply(producer=Producer(producer_id, 0))
        timeout_ms = request.transaction_timeout // _MILLISECOND
        expected = None if known == NO_PRODUCER else known

        def event(token: ReplyToken) -> InitProducerId:
            return InitProducerId(token=token, timeout_ms=timeout_ms, expected=expected)

        body = await self._transactions.ask(request.transactional_id, event)
        if not isinstance(body, ProducerReply):
            raise TypeError(f"expected ProducerReply, not {body!r}")
        return body

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
