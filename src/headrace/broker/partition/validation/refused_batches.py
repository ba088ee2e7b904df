# SPDX-License-Identifier: Apache-2.0
"""Tells the operator of batches that producers sent and the node refused, since they were damaged.

The log names the client, the partition, the codec and the reason; a client that repeats it does not fill it.
Read next: handlers/produce.py, broker/partition/validation/record_validation.py.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from headrace.broker.metrics import Metrics
from headrace.broker.network.connection import KafkaConnection
from headrace.errors import ApiError
from headrace.types import TopicPartition
from headrace.wire.batch import codec_of
from headrace.wire.compression import codec_name
from headrace.wire.error_codes import ErrorCode
from headrace.world import Clock

logger = logging.getLogger(__name__)

LINES_PER_PERIOD = 10
PERIOD_S = 10.0
DAMAGED = frozenset({ErrorCode.corrupt_message, ErrorCode.invalid_record})


class SentBatch(NamedTuple):
    """A batch for a partition, which need not be sound."""

    topic_partition: TopicPartition
    view: memoryview
    start: int
    end: int


class RefusedBatches:
    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._period_ends_at = 0.0
        self._lines = 0

    def note(
        self, connection: KafkaConnection, client_id: str | None, batch: SentBatch, error: ApiError
    ) -> None:
        """Counts the batch, and logs it unless there were too many just now."""
        name, view, start, end = batch
        codec = codec_name(codec_of(view, start, end))
        self._metrics.topic(name.topic).refused(codec, error.code)
        now = self._clock.monotonic()
        if now >= self._period_ends_at:
            self._begin_period(now)
        self._lines += 1
        if self._lines <= LINES_PER_PERIOD:
            logger.error(
                "refused a batch for %s from client %r at %s, %s, %d bytes: %s: %s",
                name,
                client_id,
                connection.peer,
                codec,
                end - start,
                error.code.name.upper(),
                error.message,
            )

    def _begin_period(self, now: float) -> None:
        if self._lines > LINES_PER_PERIOD:
            logger.error("refused %d more batches since", self._lines - LINES_PER_PERIOD)
        self._lines = 0
        self._period_ends_at = now + PERIOD_S
