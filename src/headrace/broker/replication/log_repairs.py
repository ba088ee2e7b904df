# SPDX-License-Identifier: Apache-2.0
"""Repairs damaged segments of this node's replicas: what is sound is kept, the rest comes from the leader.

The log is offline meanwhile. Its damaged segment is written anew beside the old file and takes its place in
one step; the old file is kept. Whenever that is not possible the whole log is set aside and fetched.
Read next: machines/replication/repair.py (decides), log/repair/survey.py, log/repair/replacement.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial

from headrace.broker.partition.damaged_log import DamagedLog
from headrace.broker.partition.partition import UNKNOWN_EPOCH
from headrace.broker.partition.registry import Partitions
from headrace.broker.partition.storage_faults import will_pass
from headrace.broker.replication.event_queue import EventQueue
from headrace.broker.replication.peers import REPAIR, PeerLost, Peers
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError, DecodeError, StorageError
from headrace.log.epochs import epoch_at
from headrace.log.repair import marker
from headrace.log.repair.replacement import Replacement
from headrace.log.repair.survey import Gap, Run, Survey, survey_step
from headrace.machines.replication.follower import FetchFrom
from headrace.machines.replication.repair import FetchedBatch, Outcome, Range, Repair, RepairAnswer
from headrace.types import PartitionState, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.batch import BatchHeader, split_batches
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.replica_fetch import (
    REPLICA_FETCH_VERSION,
    ReplicaAnswer,
    ReplicaQuestion,
    read_replica_fetch_reply,
    write_replica_fetch,
)
from headrace.world import World

logger = logging.getLogger(__name__)

STEP_BYTES = 2 << 20
MOST_AT_ONCE = 4
"""Fetches of all repairs: each holds a reply in memory."""
REPLY_BYTES = 4 << 20
ANSWER_TIMEOUT_MS = 10_000
SOON_S, LATEST_S = 0.02, 2.0
"""Shortest and longest pause before a leader is asked again."""
NO_ROOM_S = 10.0

_Fetched = tuple[RepairAnswer, list[tuple[int, BatchHeader]], memoryview]


@dataclass(slots=True, kw_only=True, eq=False)
class _Repair:
    damaged: DamagedLog
    state: PartitionState
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """The state has."""
    machine: Repair | None = None
    task: asyncio.Task[None] | None = None
    last_epoch: int = UNKNOWN_EPOCH
    """The leader epoch of its last fetch."""
    fetched_bytes: int = 0
    written: int = 0
    """Bytes of the replacement."""

    @property
    def name(self) -> TopicPartition:
        return self.damaged.topic_partition


class LogRepairs:
    def __init__(
        self,
        *,
        world: World,
        node_id: int,
        cluster: ClusterMetadata,
        peers: Peers,
        partitions: Partitions,
        persist_offsets: Callable[[], Awaitable[None]],
        events: EventQueue,
    ) -> None:
        self._tasks = world.tasks
        self._thread = world.tasks.thread("repair")
        self._node_id = node_id
        self._cluster = cluster
        self._peers = peers
        self._partitions = partitions
        self._persist_offsets = persist_offsets
        self._events = events
        self._fetches = asyncio.Semaphore(MOST_AT_ONCE)
        self._repairs: dict[TopicPartition, _Repair] = {}

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._repairs

    def begin(self, damaged: DamagedLog, state: PartitionState) -> None:
        repair = self._repairs[damaged.topic_partition] = _Repair(damaged=damaged, state=state)
        repair.task = self._tasks.spawn(self._run(repair), name=f"repair of {damaged.topic_partition}")

    def update(self, name: TopicPartition, state: PartitionState) -> None:
        repair = self._repairs[name]
        repair.state = state
        if repair.machine is not None:
            repair.machine.update(state)
        repair.changed.set()

    def forget(self, name: TopicPartition) -> None:
        repair = self._repairs.pop(name, None)
        if repair is not None and repair.task is not None:
            repair.task.cancel()
            _release(repair)

    async def stop(self) -> None:
        tasks = [repair.task for repair in self._repairs.values() if repair.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for repair in self._repairs.values():
            _release(repair)

    # One repair

    async def _run(self, repair: _Repair) -> None:
        why = await self._until_decided(repair)
        if self._repairs.get(repair.name) is not repair:
            return
        del self._repairs[repair.name]
        _release(repair)
        if why is None:
            self._partitions.open_repaired(repair.damaged, repair.fetched_bytes, repair.last_epoch)
        else:
            logger.warning("%s: its damaged range is not fetched by itself: %s", repair.name, why)
            self._partitions.begin_anew(repair.damaged, repair.last_epoch)

    async def _until_decided(self, repair: _Repair) -> str | None:
        """None once the segment is whole; otherwise why the whole log is to be fetched."""
        while True:
            try:
                return await self._repair(repair)
            except (StorageError, OSError) as error:
                if not will_pass(error):
                    return str(error)
                logger.warning("%s: the repair has to wait: %s", repair.name, error)
                await self._tasks.sleep(NO_ROOM_S)
            except Exception as error:
                logger.exception("%s: the repair failed", repair.name)
                return repr(error)

    async def _close(self, repair: _Repair) -> None:
        """Flushed, so that it need not be scanned on the event loop when it is opened again.

        After a failed fsync none of it is trusted (R24), and the whole log is fetched.
        """
        log = repair.damaged.log
        if log is None:
            return
        flush = log.begin_close()
        if flush is not None:
            try:
                await self._thread.run(flush.sync)
            except OSError as error:
                flush.release()
                raise StorageError(f"what was appended last cannot be flushed: {error}") from None
        repair.damaged = replace(repair.damaged, log=None)
        log.end_close(flush)
        offsets = replace(repair.damaged.offsets, recovery_point=log.flushed_offset)
        repair.damaged = replace(repair.damaged, offsets=offsets, clean=True)
        self._partitions.keep_offsets(repair.damaged)

    async def _repair(self, repair: _Repair) -> str | None:
        await self._close(repair)
        damaged = repair.damaged
        await self._thread.run(marker.write, damaged.files, damaged.directory, damaged.base_offset)
        survey = Survey(left=damaged.check, is_last=damaged.is_last)
        while survey.left is not None:
            survey = await self._tasks.bulk(survey_step, survey, STEP_BYTES)
        if not survey.confined:
            return "its offsets contradict those of the neighbours"
        end_offset = damaged.check.end_offset
        if damaged.is_last:
            end_offset = survey.runs[-1].end_offset if survey.runs else damaged.base_offset
            await self._lower_recovery_point(repair, end_offset)
        outcome, why = Outcome.WHOLE, ""
        if survey.gaps or sum(run.size for run in survey.runs) < damaged.check.size or not damaged.check.size:
            outcome, why = await self._rewrite(repair, survey, end_offset)
        if outcome is Outcome.FETCH_WHOLE_LOG:
            return why
        await self._thread.run(marker.clear, damaged.files, damaged.directory)
        return None

    async def _lower_recovery_point(self, repair: _Repair, end_offset: int) -> None:
        """Durable before the log ends earlier: missing fsynced bytes would look like a damaged disk."""
        offsets = repair.damaged.offsets
        if offsets.recovery_point > end_offset:
            offsets = replace(offsets, recovery_point=end_offset)
            repair.damaged = replace(repair.damaged, offsets=offsets)
            self._partitions.keep_offsets(repair.damaged)
            await self._persist_offsets()

    async def _rewrite(self, repair: _Repair, survey: Survey, end_offset: int) -> tuple[Outcome, str]:
        damaged, machine = repair.damaged, self._begin(repair, survey)
        new = Replacement(
            files=damaged.files,
            directory=damaged.directory,
            base_offset=damaged.base_offset,
            index_interval_bytes=damaged.index_interval_bytes,
        )
        await self._thread.run(new.begin)
        repair.written = 0
        for part in survey.parts:
            if machine.outcome not in (None, Outcome.WHOLE):
                break
            if isinstance(part, Run):
                await self._copy(repair, new, part)
            else:
                await self._fill(repair, new, machine, part)
        if machine.outcome is Outcome.WHOLE:
            check = partial(new.complete, gapless=damaged.check.gapless, epochs=damaged.check.epochs)
            await self._tasks.bulk(partial(check, end_offset=end_offset))
            self._tell(repair, await self._thread.run(new.install), len(survey.gaps))
        elif machine.outcome is Outcome.LOG_START_MOVES:
            self._tell(repair, await self._thread.run(new.set_aside), 0)
            offsets = replace(damaged.offsets, log_start=machine.leader_log_start)
            repair.damaged = replace(damaged, offsets=offsets)
        else:
            await self._thread.run(new.discard)
        assert machine.outcome is not None
        return machine.outcome, machine.why

    def _begin(self, repair: _Repair, survey: Survey) -> Repair:
        check = repair.damaged.check
        repair.machine = Repair(
            self._node_id,
            partial(epoch_at, check.epochs),
            gaps=[Range(gap.first_offset, gap.end_offset) for gap in survey.gaps],
            segment_end=check.end_offset,
            log_start=repair.damaged.offsets.log_start,
            state=repair.state,
        )
        for gap in survey.gaps:
            details = {
                "node": self._node_id,
                "reason": f"offsets {gap.first_offset} to {gap.end_offset - 1} are fetched again: "
                f"{repair.damaged.reason}",
            }
            self._events.note_partition(repair.name, "repairing", details)
            logger.warning("%s: %s", repair.name, details["reason"])
        return repair.machine

    def _tell(self, repair: _Repair, kept: object, ranges: int) -> None:
        logger.warning(
            "%s: the segment at offset %d is whole again: %d bytes in %d %s fetched, the damaged file is %s",
            *(repair.name, repair.damaged.base_offset, repair.fetched_bytes, ranges),
            "range" if ranges == 1 else "ranges",
            "gone" if kept is None else kept,
        )

    async def _copy(self, repair: _Repair, new: Replacement, run: Run) -> None:
        for start in range(0, run.size, STEP_BYTES):
            size = min(STEP_BYTES, run.size - start)
            await self._thread.run(new.copy, run, start, size, repair.written)
            repair.written += size

    async def _fill(self, repair: _Repair, new: Replacement, machine: Repair, gap: Gap) -> None:
        """Returns when the gap is filled, or the outcome is another."""
        begins_at, pause_s = repair.written, SOON_S
        while machine.outcome is None and machine.gap.first_offset == gap.first_offset:
            repair.changed.clear()
            question = self._question(machine)
            if question is None:
                await self._pause(repair, LATEST_S)
                continue
            if question.offset == gap.first_offset:
                repair.written = begins_at
            repair.last_epoch = question.leader_epoch
            async with self._fetches:
                taken = await self._fetch_and_write(repair, new, machine, question)
            if taken:
                pause_s = SOON_S
            elif machine.outcome is None:
                await self._pause(repair, pause_s)
                pause_s = min(2 * pause_s, LATEST_S)

    def _question(self, machine: Repair) -> FetchFrom | None:
        node_epoch = self._cluster.node_epoch
        return None if node_epoch is None else machine.next_fetch(node_epoch)

    async def _pause(self, repair: _Repair, most_s: float) -> None:
        timer = self._tasks.call_later(most_s, repair.changed.set)
        try:
            await repair.changed.wait()
        finally:
            timer.cancel()

    async def _fetch_and_write(
        self, repair: _Repair, new: Replacement, machine: Repair, question: FetchFrom
    ) -> bool:
        try:
            answer, batches, records = await self._ask(repair, question)
        except (PeerLost, DecodeError) as error:
            logger.info("%s: the damaged range was not fetched: %s", repair.name, error)
            machine.lost(question)
            return False
        count = machine.fetched(question, answer)
        if not count:
            return False
        position, last = batches[count - 1]
        data = records[: position + last.size]
        await self._thread.run(new.write, [data], repair.written)
        if machine.written(question, last.next_offset):
            repair.written += len(data)
            repair.fetched_bytes += len(data)
        return True

    async def _ask(self, repair: _Repair, question: FetchFrom) -> _Fetched:
        """Raises PeerLost, DecodeError."""
        topic_id, index = repair.damaged.offsets.topic_id, repair.name.partition
        asked = ReplicaQuestion(
            index,
            question.leader_epoch,
            question.offset,
            question.last_fetched_epoch,
            question.log_start,
            REPLY_BYTES,
        )
        frame = await self._peers.request_encoded(
            question.leader,
            ApiKey.FETCH,
            REPLICA_FETCH_VERSION,
            write_replica_fetch(
                question.node,
                question.node_epoch,
                [(topic_id, [asked])],
                max_wait_ms=0,
                max_bytes=REPLY_BYTES,
            ),
            ANSWER_TIMEOUT_MS,
            purpose=REPAIR,
        )
        error_code, answers = read_replica_fetch_reply(memoryview(frame))
        answer = answers.get((topic_id, index))
        if error_code or answer is None:
            return RepairAnswer(error=ErrorCode(error_code or -1)), [], memoryview(b"")
        return _checked(answer)


def _release(repair: _Repair) -> None:
    """A log that the repair did not get to close."""
    if repair.damaged.log is not None:
        repair.damaged.log.end_close(None)
        repair.damaged = replace(repair.damaged, log=None)


def _checked(answer: ReplicaAnswer) -> _Fetched:
    """Batches whose CRC is right, or none of them."""
    try:
        batches = split_batches(answer.records, 0, len(answer.records), max_batch_bytes=None, producer=False)
    except ApiError:
        batches = []
    read = RepairAnswer(
        error=ErrorCode(answer.error_code),
        log_start=answer.log_start,
        diverges=answer.diverging is not None,
        batches=[
            FetchedBatch(each.base_offset, each.last_offset, each.leader_epoch, each.record_count)
            for _, each in batches
        ],
    )
    return read, batches, answer.records
