"""The topics that a node writes about itself: made at first need, written in batches, in nobody's way.

What cannot be written (a full disk, no topic, no leader) is dropped and counted: no request waits for it or
fails by it. What another node leads is sent to it.
Read next: group_timeline.py and lag_samples.py (who writes), docs/groups.md (who reads).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.machine_loading import next_slice
from headrace.broker.peers import PeerLost
from headrace.broker.topic_rules import NewTopic
from headrace.broker.turns import in_turns
from headrace.errors import ApiError, HeadraceError
from headrace.types import EVENTS_TOPIC, LAG_TOPIC, NO_NODE
from headrace.wire.batch import read_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch, iter_records
from headrace.world import Thread

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

_MAKE_AGAIN_S = 30.0
"""After the topic could not be made."""
_BATCH_RECORDS = 200
_BATCH_BYTES = 256 * 1024
"""Per turn of the loop: an encoded batch must not be felt."""
_PRODUCE_KEY, _PRODUCE_VERSION = 0, 11
_SENT_WITHIN_MS = 5_000
_ATTEMPTS = 8
_AGAIN_S = 0.25
_LED_SOON = frozenset(
    {
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
    }
)
_MIB = 1 << 20
_DAY_MS = 24 * 3_600_000


class OwnRecord(NamedTuple):
    timestamp_ms: int
    key: bytes
    value: bytes | None


def _topic(name: str, **settings: str | int) -> NewTopic:
    """In one partition, so that all is in order."""
    given = {"compression_type": "producer", "max_message_bytes": _MIB} | settings
    configs = tuple((key.replace("_", "."), str(value)) for key, value in given.items())
    return NewTopic(name=name, partition_count=1, replication_factor=3, configs=configs)


EVENTS = _topic(
    EVENTS_TOPIC,
    cleanup_policy="delete",
    retention_ms=7 * _DAY_MS,
    retention_bytes=1024 * _MIB,
    segment_bytes=64 * _MIB,
    segment_ms=_DAY_MS,
)
"""Seven days; less when so many groups are so busy that they do not fit."""
LAG = _topic(LAG_TOPIC, cleanup_policy="compact", segment_bytes=8 * _MIB)


class OwnTopic:
    def __init__(self, broker: Broker, topic: NewTopic) -> None:
        self.name = topic.name
        self._topic = topic
        self._broker = broker
        self._clock = broker.world.clock
        self._cluster = broker.cluster
        self._controller = broker.controller
        self._partitions = broker.partitions
        self._metrics = broker.metrics
        self._make_after = 0.0
        self._failing = False

    @property
    def exists(self) -> bool:
        return self.name in self._cluster.view.topics

    async def append(self, records: Sequence[OwnRecord]) -> int:
        """How many of them, from the first on, were written; the others are dropped and counted."""
        written = 0
        try:
            async for batch in in_turns(_batches(records), 1):
                await self._write_patiently(build_batch(batch))
                written += len(batch)
        except HeadraceError as refusal:
            self._tell(refusal)
            self.drop(len(records) - written)
        else:
            self._tell(None)
        return written

    async def _write_patiently(self, batch: bytearray) -> None:
        """A topic just made, or one whose leader just died, is led a moment later."""
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                await self._write(batch)
                break
            except (ApiError, PeerLost) as refusal:
                passing = isinstance(refusal, PeerLost) or refusal.code in _LED_SOON
                if not passing or not attempts_left:
                    raise
            await self._broker.world.tasks.sleep(_AGAIN_S)

    async def _write(self, batch: bytearray) -> None:
        leader = await self._leader()
        if leader == self._broker.node_id:
            if not self._partitions.writable:
                raise HeadraceError("the disk is nearly full")
            self._partitions.find(self.name, None, 0).append_own(batch)
        else:
            await self._send(leader, bytes(batch))

    def drop(self, count: int) -> None:
        dropped = self._metrics.own_records_dropped
        dropped[self.name] = dropped.get(self.name, 0) + count

    def _tell(self, refusal: HeadraceError | None) -> None:
        """Once when it begins and once when it is over."""
        if refusal is not None and not self._failing:
            logger.warning("%s is not written for now: %s", self.name, refusal)
        elif refusal is None and self._failing:
            logger.warning("%s is written again", self.name)
        self._failing = refusal is not None

    async def _leader(self) -> int:
        """The node to write at. Raises HeadraceError."""
        if not self.exists:
            await self._make()
        topic = self._cluster.view.topics.get(self.name)
        if topic is None or topic.partitions[0].leader == NO_NODE:
            raise ApiError(ErrorCode.leader_not_available, "no node leads it")
        return topic.partitions[0].leader

    async def _send(self, leader: int, batch: bytes) -> None:
        part = {"name": self.name, "partition_data": [{"index": 0, "records": batch}]}
        body = {"transactional_id": None, "acks": 1, "timeout": _SENT_WITHIN_MS, "topic_data": [part]}
        reply = await self._broker.peers.request(
            leader, _PRODUCE_KEY, _PRODUCE_VERSION, body, _SENT_WITHIN_MS
        )
        code = ErrorCode(reply.responses[0].partition_responses[0].error_code)
        if code is not ErrorCode.none:
            raise ApiError(code, f"node {leader}, which leads it, says {code.name}")

    async def _make(self) -> None:
        now = self._clock.monotonic()
        if now < self._make_after:
            raise HeadraceError("it could not be made")
        self._make_after = now + _MAKE_AGAIN_S
        await self._controller.ensure(self._topic)
        self._make_after = 0.0

    async def newest(self, thread: Thread) -> dict[bytes, bytes]:
        """The newest value of each key. Raises HeadraceError or OSError when the log cannot be read."""
        partition = self._partitions.get(self.name, 0)
        found: dict[bytes, bytes] = {}
        if partition is None or not partition.online:
            return found
        offset, end = partition.log_start_offset, partition.log_end_offset
        while offset < end:
            piece = await next_slice(partition, offset, end, thread)
            if piece is None:
                break
            try:
                await thread.run(_gather, memoryview(piece.bytes()), found)
            finally:
                offset = piece.next_offset
                piece.release()
        return found


def _gather(view: memoryview, found: dict[bytes, bytes]) -> None:
    position = 0
    while position < len(view):
        end = position + read_header(view, position).size
        for record in iter_records(view[position:end]):
            if record.key is not None and record.value is not None:
                found[record.key] = record.value
            elif record.key is not None:
                found.pop(record.key, None)
        position = end


def _batches(records: Sequence[OwnRecord]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for timestamp_ms, key, value in records:
        size += len(key) + len(value or b"")
        if batch and (len(batch) == _BATCH_RECORDS or size > _BATCH_BYTES):
            yield batch
            batch, size = [], len(key) + len(value or b"")
        batch.append(Record(len(batch), timestamp_ms, key, value))
    if batch:
        yield batch
