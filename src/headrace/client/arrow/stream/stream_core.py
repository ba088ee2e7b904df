# SPDX-License-Identifier: Apache-2.0
"""The core of a stream: fetching, group membership and commits behind one queue of records and changes.

Runs on one event loop. Hands out fetched bytes and changes of the assignment; decoding and callbacks are
stream.py's. A batch counts as processed when the next one is requested. Read next: live_fetch.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.client.arrow.stream.live_fetch import Chunk, LiveFetch
from headrace.client.arrow.stream.progress import Offsets, Progress
from headrace.client.arrow.stream.start import Start, Starts
from headrace.client.coordinator import (
    GROUP_LANE,
    MEMBER_FENCED,
    Coordinator,
    CoordinatorError,
    CoordinatorType,
    retry_while_coordinator_moves,
)
from headrace.client.errors import ClientError
from headrace.client.membership.classic import ClassicMember
from headrace.client.membership.group_metadata import GroupMetadata
from headrace.client.membership.kip848 import Kip848Member
from headrace.client.membership.member import Member, MemberContext, MemberSettings, Partitions
from headrace.client.membership.offsets import GroupOffsets
from headrace.client.membership.topic_watch import Topics, TopicWatch
from headrace.client.network_client import NetworkClient
from headrace.client.retry import Backoff
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey

_LOG = logging.getLogger("headrace.stream")
_LAST_COMMIT_MS = 5_000
"""How long closing may wait for the last commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    topics: Topics
    member: MemberSettings | None
    start: Start
    auto_commit: bool
    commit_interval_ms: int
    committed_only: bool
    budget: int
    refresh_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A change of the assignment. `mark_handled` is called when the user's callback has returned."""

    kind: Literal["assigned", "revoked", "lost"]
    partitions: Partitions
    handled: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOrigin:
    """Where the records of a batch were, and who the reader was in its group when it was given them."""

    topic: str
    ranges: Mapping[int, tuple[int, int]]
    """Partition to the first offset and the offset after the last."""
    member: GroupMetadata | None

    @property
    def next_offsets(self) -> Offsets:
        return {TopicPartition(self.topic, number): end for number, (_, end) in self.ranges.items()}


class StreamClosed(Exception):
    """The stream was closed."""


class StreamCore:
    """`open`, then `next` again and again; `stop` and `leave` at the end."""

    def __init__(self, client: NetworkClient, settings: StreamSettings) -> None:
        self._settings = settings
        self._client = client
        timeout_ms = settings.timeout_ms
        self._watch = TopicWatch(
            client, settings.topics, refresh_ms=settings.refresh_ms, timeout_ms=timeout_ms
        )
        self._starts = Starts(
            client, self._watch, committed_only=settings.committed_only, timeout_ms=timeout_ms
        )
        self._fetch = LiveFetch(
            client,
            self._watch,
            budget=settings.budget,
            timeout_ms=timeout_ms,
            committed_only=settings.committed_only,
            on_ready=self._wake_reader,
            on_out_of_range=lambda partition, position: self._start(
                self._continue_after_loss(partition, position)
            ),
        )
        self._member: Member | None = None
        self._offsets: GroupOffsets | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None
        self._stopped = False
        self._progress = Progress()
        self._origin: BatchOrigin | None = None
        self._rebalances = 0
        """Changes of the assignment so far."""
        self._revoking: set[TopicPartition] = set()
        """Held, and not read any more: the reader has not been told yet, or its callback runs."""
        self._changes: deque[Change] = deque()
        self._news = asyncio.Event()
        self._dirty = asyncio.Event()
        self._committing = asyncio.Lock()
        self._polling = asyncio.Event()
        self._left_at = 0.0

    # -- start and stop ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """ClientError when no broker answers or a topic does not exist."""
        self._left_at = asyncio.get_running_loop().time()
        await self._watch.open()
        self._start(self._watch.run())
        self._start(self._fetch.run())
        if self._settings.member is None:
            self._start(self._read_all_partitions())
            return
        self._member = await self._join(self._settings.member)
        self._start(self._member.run())
        if self._settings.auto_commit:
            self._start(self._commit_periodically())

    async def _join(self, settings: MemberSettings) -> Member:
        coordinator = Coordinator(
            self._client,
            CoordinatorType.GROUP,
            settings.group,
            timeout_ms=settings.timeout_ms,
            lane=GROUP_LANE,
        )
        has_kip848 = await retry_while_coordinator_moves(
            lambda: coordinator.serves(ApiKey.CONSUMER_GROUP_HEARTBEAT), Backoff(settings.timeout_ms)
        )
        use_kip848 = has_kip848 if settings.protocol is None else settings.protocol == "consumer"
        if use_kip848 and not has_kip848:
            raise ClientError(
                "the broker does not have the KIP-848 protocol", next_step='use protocol="classic"'
            )
        context = MemberContext(coordinator=coordinator, watch=self._watch, listener=self, settings=settings)
        member = Kip848Member(context) if use_kip848 else ClassicMember(context)
        self._offsets = GroupOffsets(coordinator, lambda: member.metadata, timeout_ms=settings.timeout_ms)
        return member

    async def stop(self, *, failed: bool = False) -> Change:
        """Stops all tasks and commits processed offsets. The change revokes all partitions.

        `failed`: the last batch did not reach the reader, so nothing is committed.
        """
        self._stopped = True
        self._news.set()
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not failed and self._failure is None and self._settings.auto_commit:
            with contextlib.suppress(ClientError):
                await self._commit_done(timeout_ms=_LAST_COMMIT_MS)
        return Change("revoked", frozenset(self._progress.held))

    async def leave(self) -> None:
        """Errors are ignored: the session of a member that cannot leave times out."""
        self._progress.forget(frozenset(self._progress.held))
        if self._member is not None:
            with contextlib.suppress(ClientError):
                await self._member.leave()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """An error in any task ends the stream and is raised to the reader."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - raised to the reader
            self._failure = self._failure or error
            self._news.set()

    # -- the reader's side ---------------------------------------------------------------------------------

    async def next(self, timeout_ms: float | None = None) -> Chunk | Change | None:
        """The next chunk or change, None after the timeout. The one before counts as processed."""
        self._progress.all_is_done()
        self._dirty.set()
        self._polling.set()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while True:
                    self._news.clear()
                    if (found := await self._look()) is not None:
                        return found
                    await self._news.wait()
        except TimeoutError:
            return None
        finally:
            self._polling.clear()
            self._left_at = asyncio.get_running_loop().time()

    async def _look(self) -> Chunk | Change | None:
        if self._failure is not None:
            raise self._failure
        if self._stopped:
            raise StreamClosed
        if self._changes:
            return await self._next_change()
        chunk = self._fetch.take()
        if chunk is not None:
            self._origin = self._origin_of(chunk)
            self._progress.hand_over(self._origin.next_offsets)
        return chunk

    def _origin_of(self, chunk: Chunk) -> BatchOrigin:
        begins = self._progress.positions
        return BatchOrigin(
            topic=chunk.topic,
            ranges={
                number: (begins[TopicPartition(chunk.topic, number)], end)
                for number, end in chunk.next_offsets.items()
            },
            member=None if self._member is None else self._member.metadata,
        )

    async def _next_change(self) -> Change | None:
        """Revoked partitions are committed before the callback. None: they were lost meanwhile."""
        change = self._changes[0]
        if change.kind == "revoked" and self._settings.auto_commit:
            await self._commit_done(change.partitions)
        return self._changes.popleft() if self._changes and self._changes[0] is change else None

    def mark_handled(self, change: Change) -> None:
        change.handled.set()

    @property
    def positions(self) -> Offsets:
        return self._progress.positions

    @property
    def origin(self) -> BatchOrigin:
        """Of the chunk that was handed out last."""
        if self._origin is None:
            raise ClientError("the stream has handed out no batch yet")
        return self._origin

    @property
    def metadata(self) -> GroupMetadata:
        if self._member is None:
            raise ClientError("the stream is in no group", next_step="give group= to stream")
        return self._member.metadata

    async def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        readable = self._readable()
        for partition in offsets:
            if partition not in readable:
                raise ClientError(f"the stream does not read partition {partition} now")
        self._read_from(offsets)

    async def rewind(self) -> None:
        """Seeks to the committed offsets, or to `start`."""
        rebalances = -1
        while rebalances != self._rebalances:  # or the offsets may be older than another member's commit
            rebalances = self._rebalances
            begins, known = await self._beginnings(self._readable(), self._settings.start)
        self._read_from(begins, known)

    async def committed(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The group's committed offsets; waits for those of transactions that are being ended."""
        if self._offsets is None:
            raise ClientError("the stream has no group that commits", next_step="give group= to stream")
        return await self._offsets.committed(partitions)

    async def end_offsets(self) -> Offsets:
        """The end of every partition of the subscribed topics now."""
        return await self._starts.find(self._subscribed_partitions(), "latest")

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> Offsets:
        """Commits these, or all handed out. ClientError when the group has removed this member."""
        if self._offsets is None:
            raise ClientError("the stream has no group to commit for", next_step="give group= to stream")
        if offsets is None:
            self._progress.all_is_done()
        chosen = self._progress.positions if offsets is None else dict(offsets)
        async with self._committing:
            committed = await self._offsets.commit(chosen)
            self._progress.committed(committed)
        if gone := sorted(chosen.keys() - committed.keys()):
            raise ClientError(f"offsets of {gone[0]} were not committed: it does not exist any more")
        return committed

    # -- committing ----------------------------------------------------------------------------------------

    async def _commit_periodically(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self._commit_done()
            await asyncio.sleep(self._settings.commit_interval_ms / 1000)

    async def _commit_done(
        self, partitions: Partitions | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Commits offsets that are processed and not committed yet."""
        if self._offsets is None:
            return
        async with self._committing:
            try:
                committed = await self._offsets.commit(
                    self._progress.news(partitions),
                    still_ours=self._progress.held.__contains__,
                    timeout_ms=timeout_ms,
                )
                self._progress.committed(committed)
            except CoordinatorError as error:
                if error.error_code not in MEMBER_FENCED:
                    raise
                _LOG.warning("offsets were not committed, others will read these records again: %s", error)

    # -- the group's side: RebalanceListener ---------------------------------------------------------------

    async def assigned(self, partitions: Partitions) -> None:
        await self._begin(partitions, self._settings.start)

    async def revoked(self, partitions: Partitions, *, lost: bool) -> None:
        self._rebalances += 1
        self._fetch.drop(partitions)
        if lost:
            self._lose(partitions)
            return
        change = Change("revoked", partitions)
        self._tell(change)
        self._revoking |= partitions
        try:
            if not await self._is_handled(change):
                self._lose(partitions)
        finally:
            self._revoking -= partitions
            if change in self._changes:
                self._changes.remove(change)
            else:
                self._progress.forget(partitions)

    def ms_since_poll(self) -> float:
        if self._polling.is_set():
            return 0.0
        return (asyncio.get_running_loop().time() - self._left_at) * 1000

    async def wait_for_poll(self) -> None:
        await self._polling.wait()

    async def _is_handled(self, change: Change) -> bool:
        """False when the reader exceeds max_pause_ms."""
        assert self._settings.member is not None
        while (left_ms := self._settings.member.max_pause_ms - self.ms_since_poll()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(change.handled.wait(), left_ms / 1000)
                return True
        return False

    async def _begin(self, partitions: Partitions, start: Start) -> None:
        if partitions:
            self._rebalances += 1
            self._read_from(*await self._beginnings(partitions, start))
            self._tell(Change("assigned", partitions))

    def _read_from(
        self, offsets: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int] | None = None
    ) -> None:
        self._progress.begin(offsets)
        self._progress.committed(committed or {})
        self._fetch.assign(offsets)

    async def _beginnings(self, partitions: Partitions, start: Start) -> tuple[Offsets, Offsets]:
        """(start positions: committed offsets, else by `start`; the committed offsets)."""
        known = await self._offsets.committed(partitions) if self._offsets is not None else {}
        fresh = partitions - known.keys()
        if fresh and start == "committed":
            missing = ", ".join(map(str, sorted(fresh)))
            raise ClientError(
                f"group {self.metadata.group!r} has committed nothing for {missing}",
                next_step='say where to begin: start="earliest" or start="latest"',
            )
        return known | (await self._starts.find(fresh, start) if fresh else {}), known

    def _readable(self) -> Partitions:
        return frozenset(self._progress.held) - self._revoking

    def _subscribed_partitions(self) -> Partitions:
        return frozenset(
            TopicPartition(name, number)
            for name, count in self._watch.counts(self._watch.subscribed).items()
            for number in range(count)
        )

    async def _read_all_partitions(self) -> None:
        """All partitions; those found later are read from their beginning."""
        changed = asyncio.Event()
        self._watch.on_change(changed.set)
        start = self._settings.start
        while True:
            changed.clear()
            subscribed = self._watch.subscribed
            found = self._subscribed_partitions()
            if added := found - frozenset(self._progress.held):
                await self._begin(added, start)
            if gone := frozenset(each for each in self._progress.held if each.topic not in subscribed):
                await self.revoked(gone, lost=True)
            start = "earliest"
            await changed.wait()

    async def _continue_after_loss(self, partition: TopicPartition, position: int) -> None:
        """Out of range: retention deleted the position, or the log was truncated before it."""
        if self._settings.start == "committed":
            raise ClientError(
                f"partition {partition} does not hold offset {position}",
                next_step='say where to continue: start="earliest" or start="latest"',
                code="OFFSET_OUT_OF_RANGE",
            )
        found = await self._starts.after_loss(partition, position)
        if partition in self._readable() and found:
            _LOG.warning(
                "%s does not hold offset %s: continuing at %s", partition, position, found[partition]
            )
            self._read_from(found)

    def _lose(self, partitions: Partitions) -> None:
        held = partitions & frozenset(self._progress.held)
        self._progress.forget(held)
        if held:
            self._tell(Change("lost", held))

    def _tell(self, change: Change) -> None:
        self._changes.append(change)
        self._news.set()

    def _wake_reader(self) -> None:
        self._news.set()
