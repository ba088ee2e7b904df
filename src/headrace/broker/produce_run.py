"""Produce requests of one connection that repeat each other, handled together and written in one go.

A producer that sends many small requests to one partition without waiting is spared what they have in common.
Whatever is not plain ends the run, and is left to handlers/produce.py. Read next: wire/produce_run.py.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.errors import ApiError, DecodeError
from headrace.wire.produce import ProduceRequest
from headrace.wire.produce_run import PlainReply, ProduceShape

if TYPE_CHECKING:
    from headrace.broker.connection import KafkaConnection
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

PRODUCE_KEY = 0
ACKS_LEADER, ACKS_ALL = 1, -1
PAUSE = 64
"""So many frames go the usual way after one that only looked plain."""


class ProduceRun:
    """What one connection sent last, and what can be told from it about the next frames."""

    __slots__ = (
        "_acks",
        "_connection",
        "_metrics",
        "_now",
        "_partitions",
        "_pause",
        "_reply",
        "_shape",
        "_target",
    )

    def __init__(self, broker: Broker, connection: KafkaConnection) -> None:
        self._connection = connection
        self._partitions = broker.partitions
        self._metrics = broker.metrics
        self._now = broker.world.clock.monotonic
        self._target: tuple[str | None, UUID | None, int] | None = None
        self._shape: ProduceShape | None = None
        self._acks = ACKS_LEADER
        self._pause = 0
        self._reply: PlainReply | None = None

    def seen(self, view: memoryview, start: int, end: int, version: int, request: ProduceRequest) -> None:
        """A request came the usual way. When it is like the one before it, the next may be, too."""
        topics = request.topics
        if len(topics) != 1 or len(topics[0].partitions) != 1:
            self._target = self._shape = None
            return
        name, topic_id, (part,) = topics[0]
        target = name, topic_id, part.index
        if target != self._target:
            self._target, self._shape = target, None
        elif (
            self._shape is None
            and request.acks in (ACKS_LEADER, ACKS_ALL)
            and request.transactional_id is None
        ):
            self._acks = request.acks
            self._shape = ProduceShape.of(view, start, end, version, part)
            self._reply = PlainReply(version, name, topic_id, part.index)

    def take(self, view: memoryview, position: int, end: int) -> int:
        """Handles the frames at `position` that repeat the last one; where the first other frame begins."""
        if self._shape is None:
            return position
        if self._pause:
            self._pause -= 1
            return position
        try:
            return self._take(view, position, end)
        except ApiError:
            return position  # answered by whoever handles requests one by one
        except Exception:
            logger.exception("produce from %s failed", self._connection.peer)
            raise DecodeError("the request could not be answered; see the line before") from None

    def _take(self, view: memoryview, position: int, end: int) -> int:
        assert self._shape is not None
        assert self._reply is not None
        assert self._target is not None
        started = self._now()
        frames = self._shape.find(view, position, end)
        if not frames:
            if frames is None:
                self._shape = None
            return position
        partition = self._partitions.find(*self._target)
        offsets = partition.append_run(view, frames, acks_all=self._acks == ACKS_ALL)
        if not offsets:
            self._pause = PAUSE
            return position
        pack, log_start = self._reply.pack, partition.log_start_offset
        replies = [
            pack(frame.correlation_id, offset, log_start)
            for frame, offset in zip(frames, offsets, strict=False)
        ]
        self._connection.reply([b"".join(replies)])
        self._metrics.requests_done(PRODUCE_KEY, self._now() - started, len(replies))
        return frames[len(offsets) - 1].next_frame
