"""The core of a stream: partitions come and go, records and changes go out in one order, offsets back.

Runs on one event loop. Hands out fetched bytes and changes of the assignment; decoding and callbacks are
stream.py's. A batch counts as done when the next one is asked for. Read next: live_fetch.py, ../membership.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.client.arrow.cluster import Cluster, Patience
from headrace.client.arrow.group_metadata import GroupMetadata
from headrace.client.arrow.live_fetch import Chunk, LiveFetch
from headrace.client.arrow.progress import Offsets, Progress
from headrace.client.arrow.start import Start, Starts
from headrace.client.errors import ClientError
from headrace.client.membership.classic import ClassicMember
from headrace.client.membership.coordinator import FENCED, Coordinator, GroupRefused, patiently
from headrace.client.membership.member import Member, MemberSettings, Partitions
from headrace.client.membership.modern import CONSUMER_GROUP_HEARTBEAT, ModernMember
from headrace.client.membership.offsets import GroupOffsets
from headrace.client.membership.watch import Topics, TopicWatch
from headrace.types import TopicPartition

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
    """Of what the stream reads. The user has seen it when `settle` was called."""

    kind: Literal["assigned", "revoked", "lost"]
    partitions: Partitions
    settled: asyncio.Event = field(default_factory=asyncio.Event)


class StreamClosed(Exception):
    """There is nothing more to come."""


class StreamCore:
    """`open`, then `next` again and again; `stop` and `leave` at the end."""

    def __init__(self, cluster: Cluster, settings: StreamSettings) -> None:
        self._settings = settings
        self._cluster = cluster
        timeout_ms = settings.timeout_ms
        self._watch = TopicWatch(
            cluster, settings.topics, refresh_ms=settings.refresh_ms, timeout_ms=timeout_ms
        )
        self._starts = Starts(
            cluster, self._watch, committed_only=settings.committed_only, timeout_ms=timeout_ms
        )
        self._fetch = LiveFetch(
            cluster,
            self._watch,
            budget=settings.budget,
            timeout_ms=timeout_ms,
            committed_only=settings.committed_only,
            on_ready=self._wake_reader,
            on_out_of_range=lambda partition, position: self._start(self._go_on(partition, position)),
        )
        self._member: Member | None = None
        self._offsets: GroupOffsets | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None
        self._stopped = False
        self._progress = Progress()
        self._changes: deque[Change] = deque()
        self._news = asyncio.Event()
        self._dirty = asyncio.Event()
        self._committing = asyncio.Lock()
        self._present = asyncio.Event()
        self._left_at = 0.0

    # -- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Says at once when there is no broker or no topic."""
        self._left_at = asyncio.get_running_loop().time()
        await self._watch.open()
        self._start(self._watch.run())
        self._start(self._fetch.run())
        if self._settings.member is None:
            self._start(self._read_without_a_group())
            return
        self._member = await self._join(self._settings.member)
        self._start(self._member.run())
        if self._settings.auto_commit:
            self._start(self._commit_now_and_then())

    async def _join(self, settings: MemberSettings) -> Member:
        coordinator = Coordinator(self._cluster, settings.group)
        patience = Patience(settings.timeout_ms)
        has_modern = await patiently(patience, lambda: coordinator.serves(CONSUMER_GROUP_HEARTBEAT))
        modern = has_modern if settings.protocol is None else settings.protocol == "consumer"
        if modern and not has_modern:
            raise ClientError(
                "the broker does not have the KIP-848 protocol", next_step='use protocol="classic"'
            )
        member = (ModernMember if modern else ClassicMember)(coordinator, self._watch, self, settings)
        self._offsets = GroupOffsets(coordinator, lambda: member.metadata, timeout_ms=settings.timeout_ms)
        return member

    async def stop(self, *, failed: bool = False) -> Change:
        """No more comes; what is done is committed. The change gives up all that is held.

        `failed`: what was handed over last did not reach the reader, so nothing is sure.
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
        """A broker that is away finds out by itself that this member is gone."""
        self._progress.forget(frozenset(self._progress.held))
        if self._member is not None:
            with contextlib.suppress(ClientError):
                await self._member.leave()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Whatever ends one of the tasks ends the stream, and is what the reader gets."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - nobody else would notice
            self._failure = self._failure or error
            self._news.set()

    # -- the reader's side ---------------------------------------------------------------------------------

    async def next(self, timeout_ms: float | None = None) -> Chunk | Change | None:
        """What comes next, None when nothing does in time. What was handed over before is done."""
        self._progress.all_is_done()
        self._dirty.set()
        self._present.set()
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
            self._present.clear()
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
            self._progress.hand_over(
                {TopicPartition(chunk.topic, each): offset for each, offset in chunk.next_offsets.items()}
            )
        return chunk

    async def _next_change(self) -> Change | None:
        """What is revoked is committed before the reader hears of it. None: it was lost meanwhile."""
        change = self._changes[0]
        if change.kind == "revoked" and self._settings.auto_commit:
            await self._commit_done(change.partitions)
        return self._changes.popleft() if self._changes and self._changes[0] is change else None

    def settle(self, change: Change) -> None:
        change.settled.set()

    @property
    def positions(self) -> Offsets:
        return self._progress.positions

    @property
    def metadata(self) -> GroupMetadata:
        if self._member is None:
            raise ClientError("the stream is in no group", next_step="give group= to stream")
        return self._member.metadata

    async def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition in offsets:
            if partition not in self._progress.held:
                raise ClientError(f"the stream does not read partition {partition} now")
        self._read_from(offsets)

    async def rewind(self) -> None:
        """Back to where a new member of the group would begin."""
        begins, known = await self._beginnings(frozenset(self._progress.held), self._settings.start)
        held = self._progress.held  # some may have been revoked meanwhile
        self._read_from({each: offset for each, offset in begins.items() if each in held}, known)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> Offsets:
        """These, or all that was handed over. ClientError when the group no longer takes them from here."""
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

    async def _commit_now_and_then(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self._commit_done()
            await asyncio.sleep(self._settings.commit_interval_ms / 1000)

    async def _commit_done(
        self, partitions: Partitions | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """What the reader has dealt with and the group does not know yet."""
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
            except GroupRefused as error:
                if error.error_code not in FENCED:
                    raise
                _LOG.warning("offsets were not committed, others will read these records again: %s", error)

    # -- the group's side: Holder --------------------------------------------------------------------------

    async def assigned(self, partitions: Partitions) -> None:
        await self._begin(partitions, self._settings.start)

    async def revoked(self, partitions: Partitions, *, lost: bool) -> None:
        self._fetch.drop(partitions)
        if lost:
            self._lose(partitions)
            return
        change = Change("revoked", partitions)
        self._tell(change)
        try:
            if not await self._is_settled(change):
                self._lose(partitions)
        finally:
            if change in self._changes:
                self._changes.remove(change)
            else:
                self._progress.forget(partitions)

    def absent_ms(self) -> float:
        if self._present.is_set():
            return 0.0
        return (asyncio.get_running_loop().time() - self._left_at) * 1000

    async def present(self) -> None:
        await self._present.wait()

    async def _is_settled(self, change: Change) -> bool:
        """False when the reader stays away for longer than the group waits for it."""
        assert self._settings.member is not None
        while (left_ms := self._settings.member.max_pause_ms - self.absent_ms()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(change.settled.wait(), left_ms / 1000)
                return True
        return False

    async def _begin(self, partitions: Partitions, start: Start) -> None:
        if partitions:
            self._read_from(*await self._beginnings(partitions, start))
            self._tell(Change("assigned", partitions))

    def _read_from(
        self, offsets: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int] | None = None
    ) -> None:
        self._progress.begin(offsets)
        self._progress.committed(committed or {})
        self._fetch.assign(offsets)

    async def _beginnings(self, partitions: Partitions, start: Start) -> tuple[Offsets, Offsets]:
        """(where the group has committed, else where `start` says; what the group has committed)."""
        known = await self._offsets.committed(partitions) if self._offsets is not None else {}
        fresh = partitions - known.keys()
        if fresh and start == "committed":
            missing = ", ".join(map(str, sorted(fresh)))
            raise ClientError(
                f"group {self.metadata.group!r} has committed nothing for {missing}",
                next_step='say where to begin: start="earliest" or start="latest"',
            )
        return known | (await self._starts.find(fresh, start) if fresh else {}), known

    async def _read_without_a_group(self) -> None:
        """All partitions there are; those found later from their beginning, since all of it is news."""
        changed = asyncio.Event()
        self._watch.on_change(changed.set)
        start = self._settings.start
        while True:
            changed.clear()
            subscribed = self._watch.subscribed
            found = frozenset(
                TopicPartition(name, number)
                for name, count in self._watch.counts(subscribed).items()
                for number in range(count)
            )
            if added := found - frozenset(self._progress.held):
                await self._begin(added, start)
            if gone := frozenset(each for each in self._progress.held if each.topic not in subscribed):
                await self.revoked(gone, lost=True)
            start = "earliest"
            await changed.wait()

    async def _go_on(self, partition: TopicPartition, position: int) -> None:
        """The log does not hold the position: retention took it, or the log was cut behind it."""
        if self._settings.start == "committed":
            raise ClientError(
                f"partition {partition} does not hold offset {position}",
                next_step='say where to go on: start="earliest" or start="latest"',
                code="OFFSET_OUT_OF_RANGE",
            )
        found = await self._starts.after_loss(partition, position)
        if partition in self._progress.held and found:
            _LOG.warning("%s does not hold offset %s: going on at %s", partition, position, found[partition])
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
