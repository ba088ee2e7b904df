# SPDX-License-Identifier: Apache-2.0
"""Writes Headrace's internal topics (`__headrace_events`, `__headrace_lag`), created at the first record.

Records that cannot be written (full disk, no topic, no leader) are dropped and counted: no request waits for
them or fails because of them. Batches are sent to the leader when that is another node.
Read next: group_timeline.py and lag_samples.py (the writers), docs/events.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.broker.controller.controller import Controller
from headrace.broker.controller.topic_rules import NewTopic
from headrace.broker.coordinators.machine_loading import next_slice
from headrace.broker.metrics import Metrics
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.registry import Partitions
from headrace.broker.replication.peers import PeerLost, Peers
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError, HeadraceError
from headrace.types import EVENTS_TOPIC, LAG_TOPIC, NO_NODE
from headrace.wire.api_key import ApiKey
from headrace.wire.batch import read_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch, iter_records
from headrace.world import Thread, World

logger = logging.getLogger(__name__)

_CREATE_BACKOFF_S = 30.0
"""Backoff after the topic could not be created."""
_BATCH_RECORDS = 200
_BATCH_BYTES = 256 * 1024
"""Per turn of the event loop: encoding a batch must not delay requests."""
_PRODUCE_VERSION = 11
_TIMEOUT_MS = 5_000
_ATTEMPTS = 8
_RETRY_S = 0.25
_RETRIABLE = frozenset(
    {
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
    }
)
_MIB = 1 << 20
_DAY_MS = 24 * 3_600_000


class InternalRecord(NamedTuple):
    timestamp_ms: int
    key: bytes
    value: bytes | None


def _topic(name: str, **settings: str | int) -> NewTopic:
    """With one partition, so that all records are in order."""
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
"""Retention is seven days, or 1 GiB."""
LAG = _topic(LAG_TOPIC, cleanup_policy="compact", segment_bytes=8 * _MIB)


class InternalTopicWriter:
    def __init__(
        self,
        topic: NewTopic,
        *,
        world: World,
        node_id: int,
        cluster: ClusterMetadata,
        controller: Controller,
        partitions: Partitions,
        peers: Peers,
        metrics: Metrics,
    ) -> None:
        self.name = topic.name
        self._topic = topic
        self._node_id = node_id
        self._clock = world.clock
        self._tasks = world.tasks
        self._cluster = cluster
        self._controller = controller
        self._partitions = partitions
        self._peers = peers
        self._metrics = metrics
        self._create_after = 0.0
        self._failing = False

    @property
    def exists(self) -> bool:
        return self.name in self._cluster.view.topics

    async def append(self, records: Sequence[InternalRecord], *, attempts: int = _ATTEMPTS) -> int:
        """Returns how many, from the first on, were written; the others are dropped and counted."""
        written = 0
        try:
            async for batch in yielding(_batches(records), 1):
                await self._write_retrying(build_batch(batch), attempts)
                written += len(batch)
        except HeadraceError as refusal:
            self._log_failure(refusal)
            self.drop(len(records) - written)
        else:
            self._log_failure(None)
        return written

    async def _write_retrying(self, batch: bytearray, attempts: int) -> None:
        """A new topic, or one whose leader just failed, has a leader a moment later."""
        for attempts_left in reversed(range(attempts)):
            try:
                await self._write(batch)
                break
            except (ApiError, PeerLost) as refusal:
                passing = isinstance(refusal, PeerLost) or refusal.code in _RETRIABLE
                if not passing or not attempts_left:
                    raise
            await self._tasks.sleep(_RETRY_S)

    async def _write(self, batch: bytearray) -> None:
        leader = await self._leader()
        if leader == self._node_id:
            if not self._partitions.writable:
                raise HeadraceError("the disk is nearly full")
            self._partitions.find(self.name, None, 0).append_own(batch)
        else:
            await self._send(leader, bytes(batch))

    def drop(self, count: int) -> None:
        dropped = self._metrics.own_records_dropped
        dropped[self.name] = dropped.get(self.name, 0) + count

    def _log_failure(self, refusal: HeadraceError | None) -> None:
        """Logs the first failure and the first success after it."""
        if refusal is not None and not self._failing:
            logger.warning("%s cannot be written, records are dropped: %s", self.name, refusal)
        elif refusal is None and self._failing:
            logger.warning("%s can be written again", self.name)
        self._failing = refusal is not None

    async def _leader(self) -> int:
        """The leader's node id; creates the topic when there is none. Raises HeadraceError."""
        if not self.exists:
            await self._create()
        topic = self._cluster.view.topics.get(self.name)
        if topic is None or topic.partitions[0].leader == NO_NODE:
            raise ApiError(ErrorCode.leader_not_available, "it has no leader")
        return topic.partitions[0].leader

    async def _send(self, leader: int, batch: bytes) -> None:
        part = {"name": self.name, "partition_data": [{"index": 0, "records": batch}]}
        body = {"transactional_id": None, "acks": 1, "timeout": _TIMEOUT_MS, "topic_data": [part]}
        reply = await self._peers.request(leader, ApiKey.PRODUCE, _PRODUCE_VERSION, body, _TIMEOUT_MS)
        code = ErrorCode(reply.responses[0].partition_responses[0].error_code)
        if code is not ErrorCode.none:
            raise ApiError(code, f"its leader, node {leader}, answered {code.name}")

    async def _create(self) -> None:
        now = self._clock.monotonic()
        if now < self._create_after:
            raise HeadraceError("it could not be created")
        self._create_after = now + _CREATE_BACKOFF_S
        await self._controller.ensure(self._topic)
        self._create_after = 0.0

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


def _batches(records: Sequence[InternalRecord]) -> Iterator[list[Record]]:
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
