# SPDX-License-Identifier: Apache-2.0
"""Fetches records of followed partitions from one leader and appends them: many partitions in one Fetch.

Sends what the follower machines ask for, and never changes a log whose role changed meanwhile. A round ends
when all its work is done; under flush mode `ack` that is when it is on disk (R23). Independent of the view.
Read next: machines/replication/follower.py, partition/follower_role.py; replication/fetcher.py (which
partitions share a loop).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.broker.partition.follower_role import FollowerRole
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.settings.topic_settings import FLUSH_ACK
from headrace.broker.replication.peers import PeerLost, Peers
from headrace.errors import ApiError, DecodeError, DiskFullError, StorageError
from headrace.machines.replication.follower import FetchAnswer, FetchFrom, Work
from headrace.machines.replication.leader import Divergence
from headrace.wire.api_key import ApiKey
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

MAX_REPLY_BYTES = 4 << 20
ANSWER_TIMEOUT_MS = 10_000
"""Beyond the long poll. A leader that hangs loses its session, and another one is elected."""
SOON_S = 0.02
"""Backoff when the leader's view is older than this node's, or its connection just ended."""
LATEST_S = 0.5
"""Longest backoff while a leader cannot be reached."""
LATER_S = 1.0
"""Backoff after an error that may pass: a full disk, a corrupt batch."""

NOTHING_MORE = write_replica_fetch(-1, -1, [], max_wait_ms=0, max_bytes=0)

Key = tuple[UUID, int]


class Asked(NamedTuple):
    following: FollowerRole
    question: FetchFrom


class FetchLoop:
    def __init__(
        self,
        world: World,
        peers: Peers,
        leader: int,
        *,
        purpose: str,
        max_wait_ms: int,
        persist_offsets: Callable[[], Awaitable[None]],
        on_moved: Callable[[FollowerRole], None],
        on_round: Callable[[FetchLoop, Sequence[tuple[FollowerRole, bool]]], None],
    ) -> None:
        """`on_round`: called with the partitions in a reply, and whether they had records."""
        self._world = world
        self._peers = peers
        self._leader = leader
        self._purpose = purpose
        self._max_wait_ms = max_wait_ms
        self._persist_offsets = persist_offsets
        self._on_moved = on_moved
        self._on_round = on_round
        self._retired = False
        self._followings: dict[Key, FollowerRole] = {}
        self._not_before: dict[Key, float] = {}
        self._changed = asyncio.Event()
        self._polling = self._giving_up = False
        self._failures = 0
        """Consecutive failures of whole requests."""
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._followings)

    def __contains__(self, following: FollowerRole) -> bool:
        return self._followings.get(_key(following)) is following

    def add(self, following: FollowerRole) -> None:
        """A long poll that is under way does not have it, and is ended."""
        key = _key(following)
        self._followings[key] = following
        self._not_before.pop(key, None)
        self.wake()

    def remove(self, following: FollowerRole) -> None:
        key = _key(following)
        if self._followings.get(key) is following:
            del self._followings[key]
            self._not_before.pop(key, None)

    def forget(self, partition: Partition) -> None:
        """Its role ended when its log went offline; it may be followed again with another log."""
        key = partition.topic_id, partition.topic_partition.partition
        self._followings.pop(key, None)
        self._not_before.pop(key, None)

    def wake(self) -> None:
        """Starts another round: there may be something new to fetch."""
        self._changed.set()
        if self._polling and not self._giving_up:
            self._giving_up = True
            self._world.tasks.call_soon(self._give_up)
        if self._task is None:
            self._task = self._world.tasks.spawn(self._run(), name=f"replicas of node {self._leader}")

    def _give_up(self) -> None:
        """A leader ends the long poll of a replica that sends another request (handlers/fetch.py)."""
        self._giving_up = False
        if self._polling:
            self._peers.send_unanswered(
                self._leader, ApiKey.FETCH, REPLICA_FETCH_VERSION, NOTHING_MORE, self._purpose
            )

    def retire(self) -> None:
        """Ends the loop when no partition follows this leader; work under way on a log is completed."""
        self._retired = True
        if self._task is not None:
            self.wake()

    async def stop(self) -> None:
        """When the node stops."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._peers.drop(self._leader, self._purpose)

    # Rounds

    async def _run(self) -> None:
        while not self._retired:
            try:
                await self._round()
            except Exception:
                logger.exception("replicating from node %d failed, will be retried", self._leader)
                await self._world.tasks.sleep(LATER_S)
        self._peers.drop(self._leader, self._purpose)

    async def _round(self) -> None:
        self._changed.clear()
        if self._followings and not await self._reached():
            await self._back_off()
            return
        now = self._world.clock.monotonic()  # read once: both calls must agree on what is due
        asked, retry_s = self._questions(now), self._earliest_retry(now)
        if not asked:
            await self._until_changed(retry_s)
            return
        try:
            answers = await self._ask(asked, retry_s)
            if answers is not None:
                await self._take(asked, answers)
        finally:  # also after an error: a machine with an open question makes no other
            for following, question in asked:
                following.machine.lost(question)
        if answers is None:
            await self._back_off()
        else:
            self._failures = 0

    async def _reached(self) -> bool:
        """Connects first: a partition added meanwhile would miss the poll, and a poll cannot be ended before
        it is sent."""
        try:
            await self._peers.reach(self._leader, self._purpose)
        except PeerLost as error:
            self._lost(error)
            return False
        return True

    def _lost(self, error: Exception) -> None:
        if not self._failures:
            logger.info("fetching from node %d failed: %s", self._leader, error)
        self._peers.drop(self._leader, self._purpose)

    async def _back_off(self) -> None:
        if not self._changed.is_set():
            await self._until_changed(min(SOON_S * 2 ** min(self._failures, 10), LATEST_S))
        self._failures += 1

    def _questions(self, now: float) -> list[Asked]:
        asked = []
        for key, following in self._followings.items():
            if not following.is_current:
                continue  # its log went offline: it holds no longer what the role knows of it (R27)
            if self._not_before.get(key, now) <= now and not following.waits_for_flush:
                question = following.machine.next_fetch()
                if question is not None:
                    asked.append(Asked(following, question))
        return asked

    def _earliest_retry(self, now: float) -> float | None:
        waits = [at - now for at in self._not_before.values() if at > now]
        return min(waits) if waits else None

    async def _until_changed(self, most_s: float | None) -> None:
        timer = None
        if most_s is not None:
            timer = self._world.tasks.call_later(most_s, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # Requests

    async def _ask(self, asked: list[Asked], retry_s: float | None) -> dict[Key, ReplicaAnswer] | None:
        """None: no reply, or the request was ended for a new one."""
        wait_ms = self._max_wait_ms if retry_s is None else min(self._max_wait_ms, int(retry_s * 1000))
        self._polling = True
        try:
            return await self._fetch(asked, wait_ms)
        finally:
            self._polling = False

    async def _fetch(self, asked: list[Asked], wait_ms: int) -> dict[Key, ReplicaAnswer] | None:
        first = asked[0].question
        topics: dict[UUID, list[ReplicaQuestion]] = {}
        for following, question in asked:
            partition = following.partition
            topics.setdefault(partition.topic_id, []).append(
                ReplicaQuestion(
                    partition.topic_partition.partition,
                    question.leader_epoch,
                    question.offset,
                    question.last_fetched_epoch,
                    question.log_start,
                    MAX_REPLY_BYTES,
                )
            )
        request = write_replica_fetch(
            first.node, first.node_epoch, topics.items(), max_wait_ms=wait_ms, max_bytes=MAX_REPLY_BYTES
        )
        try:
            frame = await self._peers.request_encoded(
                self._leader,
                ApiKey.FETCH,
                REPLICA_FETCH_VERSION,
                request,
                wait_ms + ANSWER_TIMEOUT_MS,
                purpose=self._purpose,
            )
            error_code, answers = read_replica_fetch_reply(memoryview(frame))
        except (PeerLost, DecodeError) as error:
            self._lost(error)
            return None
        return answers if error_code == ErrorCode.none else None

    # Replies

    async def _take(self, asked: list[Asked], answers: dict[Key, ReplicaAnswer]) -> None:
        work_left = []
        replied: list[tuple[FollowerRole, bool]] = []
        for following, question in asked:
            answer = answers.get(_key(following))
            if answer is None:
                continue
            replied.append((following, len(answer.records) > 0))
            work = self._learn(following, question, answer)
            if work is not None:
                work_left.append(self._work(following, work, answer.records))
        if len(work_left) == 1:
            await work_left[0]
        elif work_left:
            await asyncio.gather(*work_left)
        self._on_round(self, replied)

    def _learn(self, following: FollowerRole, question: FetchFrom, answer: ReplicaAnswer) -> Work | None:
        if not following.is_current:
            return None
        code = ErrorCode(answer.error_code)
        diverging = None if answer.diverging is None else Divergence(*answer.diverging)
        work = following.machine.fetched(
            question,
            FetchAnswer(
                error=code,
                high_watermark=answer.high_watermark,
                log_start=answer.log_start,
                diverging=diverging,
                has_records=len(answer.records) > 0,
            ),
        )
        if work is None:
            following.update_high_watermark()
            if code is not ErrorCode.none:
                self._retry(following, SOON_S)
        return work

    def _retry(self, following: FollowerRole, after_s: float) -> None:
        self._not_before[_key(following)] = self._world.clock.monotonic() + after_s

    # Work

    async def _work(self, following: FollowerRole, work: Work, records: memoryview) -> None:
        """What a leader of an earlier epoch sent must not come behind the start of this node's own (R13).

        The role may end before this task runs, and while it truncates.
        """
        partition = following.partition
        try:
            if work.truncate_to is not None:
                await self._truncate(following, work.truncate_to)
            if not following.is_current:
                return
            if work.truncate_to is None and work.restart_at is not None:
                following.restart_at(work.restart_at)
            if work.append:
                partition.append_as_replica(records)
            if work.delete_before is not None:
                partition.log.delete_records_before(work.delete_before)
                following.update_high_watermark()  # at once: it is never below the log start
            if work.append and partition.settings.flush == FLUSH_ACK:
                await partition.flushed()
        except (ApiError, DiskFullError) as error:
            logger.warning("%s: replication failed, will be retried: %s", partition.topic_partition, error)
            self._retry(following, LATER_S)
        except (StorageError, OSError) as error:
            partition.fault(error)
        except Exception:
            logger.exception("%s: replication failed, will be retried", partition.topic_partition)
            self._retry(following, LATER_S)
        if following.is_current:
            log = partition.log
            following.machine.worked(log_start=log.log_start_offset, log_end=log.log_end_offset)
            following.update_high_watermark()
            if following not in self:
                self._on_moved(following)

    async def _truncate(self, following: FollowerRole, offset: int) -> None:
        """R12: writes the recovery point first: missing fsynced bytes would look like a damaged disk."""
        partition = following.partition
        logger.info("%s: truncating to offset %d, where its log diverges", partition.topic_partition, offset)
        if partition.flushed_offset > offset:
            partition.recovery_limit = offset
            try:
                await self._persist_offsets()
            finally:
                partition.recovery_limit = None
        if following.is_current:
            following.truncate_to(offset)


def _key(following: FollowerRole) -> Key:
    return following.partition.topic_id, following.partition.topic_partition.partition
