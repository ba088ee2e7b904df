# SPDX-License-Identifier: Apache-2.0
"""Streams topics continuously, alone or in a group: `stream` for plain code, `astream` for asyncio.

Fetching and heartbeats run in the background, so slow code does not lose its membership. Decoding and the
user's callbacks happen here, between two batches. Read next: stream_core.py, ../membership/member.py.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Unpack

import pyarrow as pa

from headrace.client.arrow.io_thread import IoThread
from headrace.client.arrow.keywords import keywords_of
from headrace.client.arrow.read.typed import TypedDecoder
from headrace.client.arrow.stream.live_fetch import Chunk
from headrace.client.arrow.stream.progress import Offsets
from headrace.client.arrow.stream.stream_core import BatchOrigin, Change, StreamClosed, StreamCore
from headrace.client.arrow.stream.stream_options import StreamOptions, StreamRequest
from headrace.client.errors import ClientError
from headrace.client.membership.group_metadata import GroupMetadata
from headrace.client.membership.topic_watch import Topics
from headrace.client.network_client import NetworkClient
from headrace.types import TopicPartition


@keywords_of(StreamOptions, StreamRequest)
def stream(topics: Topics, **options: Unpack[StreamOptions]) -> Stream:
    """Streams topics continuously as Arrow batches, alone or as a member of a consumer group.

    Args:
        topics: a name, a compiled pattern, or a list of either. New topics and partitions are found.

    Keyword Args:
        group: share the partitions with the other members of this group, and continue at its committed
            offsets; without it, all partitions are read and nothing is committed.
        start: "earliest", "latest" or a datetime, where nothing is committed; "committed": then it is an
            error ("earliest"; without a group "latest").
        commit: a batch is committed once the next one is asked for (True), or only by `commit()` (False).
        commit_interval_ms: at most so often (1,000).
        protocol: "consumer" (KIP-848) or "classic"; without it, the first where the broker has it.
        assignor: "range", "roundrobin", "cooperative-sticky" (classic); "uniform", "range" (consumer).
        instance_id: static membership: a restart within the session keeps the partitions.
        on_assigned: called with a list of (topic, partition) between two batches.
        on_revoked: the same, before partitions go to another member.
        on_lost: the same, when they have gone already (on_revoked).
        max_pause_ms: how long a batch may take before the partitions go to others (300,000).
        session_timeout_ms: of the classic protocol (45,000).
        heartbeat_interval_ms: of the classic protocol (3,000).
        refresh_ms: how soon new topics and partitions are found (30,000).
        bootstrap: as in `read`, like security, config, columns, key, value, rejects, committed_only, budget
            and timeout_ms.

    Returns:
        A `Stream`: a context manager and an iterator of `pyarrow.RecordBatch`.

    Raises:
        ClientError: no broker answers, or the group refuses this member.

    Example:
        ```python
        with headrace.stream("orders", group="billing", value="json") as batches:
            for batch in batches:
                print(batch.num_rows)
        ```
    """
    return Stream(StreamRequest(topics, **options))


@keywords_of(StreamOptions, StreamRequest)
def astream(topics: Topics, **options: Unpack[StreamOptions]) -> AsyncStream:
    """Streams topics with asyncio; takes what `stream` takes. The callbacks may be coroutine functions.

    Example:
        ```python
        async with headrace.astream("orders", group="billing") as batches:
            async for batch in batches:
                print(batch.num_rows)
        ```
    """
    return AsyncStream(StreamRequest(topics, **options))


class _Reading:
    """Shared by both kinds: decoding and positions."""

    def __init__(self, request: StreamRequest, core: StreamCore) -> None:
        self._request = request
        self._core = core
        self._decoders: dict[str, TypedDecoder] = {}

    def position(self) -> Offsets:
        """By (topic, partition): the offset after the last record handed out."""
        return self._core.positions

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now."""
        return sorted(self._core.positions)

    def group_metadata(self) -> GroupMetadata:
        """Identity in the group, for a transaction's `send_offsets`."""
        return self._core.metadata

    def batch_origin(self) -> BatchOrigin:
        """Topic, offsets by partition and identity in the group of the last batch."""
        return self._core.origin

    def _decode(self, chunk: Chunk) -> Any:
        """One batch, so that positions are exact after each; None when no record of it counts."""
        decoder = self._decoders.get(chunk.topic)
        if decoder is None:
            decoder = self._request.decoder(chunk.topic, batch_bytes=sys.maxsize)
            self._decoders[chunk.topic] = decoder
        return next(iter(list(decoder.decode(chunk.parts))), None)

    def _listener(self, change: Change) -> Callable[[], Any]:
        listener = self._request.listeners[change.kind]
        return lambda: listener(sorted(change.partitions)) if listener and change.partitions else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._request}>"


class Stream(_Reading):
    """Batches of topics, without end: iterate over it, and `close` it or use it as a context manager.

    Made by `headrace.stream`. Used in one thread at a time.
    """

    def __init__(self, request: StreamRequest) -> None:
        client = NetworkClient(request.bootstrap, security=request.security)
        super().__init__(request, StreamCore(client, request.settings))
        self._io = IoThread("headrace-stream", client.close)
        self._closing = threading.Lock()
        self._finalizer = weakref.finalize(self, _end, self._io, self._core)
        try:
            self._io.call(self._core.open())
        except BaseException:
            self._finalizer()
            raise

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return self._next(None)
        except StreamClosed:
            raise StopIteration from None

    def poll(self, timeout_ms: float) -> pa.RecordBatch | None:
        """The next batch, or None when there is none in time."""
        try:
            return self._next(timeout_ms)
        except StreamClosed:
            raise ClientError("the stream is closed") from None

    def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> Offsets:
        """Commits the offsets of all records handed out, the last batch included, or just these offsets.

        Returns when they are committed. ClientError when the group has removed this member.
        """
        self._check_open()
        return self._io.call(self._core.commit(_named(offsets)))

    def seek(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Continue reading assigned partitions at these offsets."""
        self._check_open()
        self._io.call(self._core.seek(_named(offsets) or {}))

    def rewind(self) -> None:
        """Continue at the group's committed offsets, e.g. after an aborted transaction."""
        self._check_open()
        self._io.call(self._core.rewind())

    def committed(self, partitions: Iterable[tuple[str, int]]) -> Offsets:
        """The group's committed offsets of those that have one, also of partitions that others read."""
        self._check_open()
        return self._io.call(self._core.committed(TopicPartition(*each) for each in partitions))

    def end_offsets(self) -> Offsets:
        """The end of every partition of the topics now, whoever reads it."""
        self._check_open()
        return self._io.call(self._core.end_offsets())

    def close(self) -> None:
        """Commits processed offsets if auto-commit is on, and leaves the group."""
        self._close(failed=False)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self, timeout_ms: float | None) -> Any:
        if not self._finalizer.alive:
            raise StreamClosed
        try:
            left_ms = _countdown(timeout_ms)
            while (found := self._io.call(self._core.next(left_ms()))) is not None:
                if isinstance(found, Change):
                    self._listener(found)()
                    self._io.call(self._mark_handled(found))
                elif (batch := self._decode(found)) is not None:
                    return batch
        except StreamClosed:
            raise
        except BaseException:
            self._close(failed=True)
            raise
        return None

    async def _mark_handled(self, change: Change) -> None:
        self._core.mark_handled(change)

    def _close(self, *, failed: bool) -> None:
        with self._closing:
            if self._finalizer.detach() is None:
                return
            try:
                self._listener(self._io.call(self._core.stop(failed=failed)))()
            finally:
                _end(self._io, self._core)

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ClientError("the stream is closed")


class AsyncStream(_Reading):
    """As `Stream`, for asyncio: `async with` it and iterate, from one event loop only."""

    def __init__(self, request: StreamRequest) -> None:
        self._client = NetworkClient(request.bootstrap, security=request.security)
        super().__init__(request, StreamCore(self._client, request.settings))
        self._state = "new"

    async def __aenter__(self) -> AsyncStream:
        self._state = "open"
        try:
            await self._core.open()
        except BaseException:
            await self._close(failed=True)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        try:
            return await self._next(None)
        except StreamClosed:
            raise StopAsyncIteration from None

    async def poll(self, timeout_ms: float) -> pa.RecordBatch | None:
        """The next batch, or None when there is none in time."""
        try:
            return await self._next(timeout_ms)
        except StreamClosed:
            raise ClientError("the stream is closed") from None

    async def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> Offsets:
        """As in `Stream`."""
        self._check_open()
        return await self._core.commit(_named(offsets))

    async def seek(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Continue reading assigned partitions at these offsets."""
        self._check_open()
        await self._core.seek(_named(offsets) or {})

    async def rewind(self) -> None:
        """As in `Stream`."""
        self._check_open()
        await self._core.rewind()

    async def committed(self, partitions: Iterable[tuple[str, int]]) -> Offsets:
        """As in `Stream`."""
        self._check_open()
        return await self._core.committed(TopicPartition(*each) for each in partitions)

    async def end_offsets(self) -> Offsets:
        """As in `Stream`."""
        self._check_open()
        return await self._core.end_offsets()

    async def close(self) -> None:
        """Commits processed offsets if auto-commit is on, and leaves the group."""
        await self._close(failed=False)

    async def _next(self, timeout_ms: float | None) -> Any:
        if self._state == "closed":
            raise StreamClosed
        self._check_open()
        left_ms = _countdown(timeout_ms)
        try:
            while (found := await self._core.next(left_ms())) is not None:
                if (batch := await self._taken(found)) is not None:
                    return batch
        except (StreamClosed, asyncio.CancelledError):
            raise  # the caller may wait again
        except BaseException:
            await self._close(failed=True)
            raise
        return None

    async def _taken(self, found: Chunk | Change) -> Any:
        """The batch; None after a change. An interruption loses records, so it ends the stream."""
        try:
            if isinstance(found, Chunk):
                return await asyncio.to_thread(self._decode, found)
            await _called(self._listener(found))
        except asyncio.CancelledError:
            await self._close(failed=True)
            raise
        self._core.mark_handled(found)
        return None

    async def _close(self, *, failed: bool) -> None:
        if self._state != "open":
            return
        self._state = "closed"
        try:
            await _called(self._listener(await self._core.stop(failed=failed)))
        finally:
            await self._core.leave()
            await self._client.close()

    def _check_open(self) -> None:
        if self._state != "open":
            raise ClientError(f"the stream is {self._state}", next_step="use it inside `async with`")


def _end(io: IoThread, core: StreamCore) -> None:
    """Leaves the group and ends the thread; also when a stream was not closed or the program ends."""
    try:
        if not io.is_current:
            io.call(core.stop())
            io.call(core.leave())
    finally:
        io.close()


def _countdown(timeout_ms: float | None) -> Callable[[], float | None]:
    """A function that returns the remaining milliseconds; None without a timeout."""
    if timeout_ms is None:
        return lambda: None
    deadline = time.monotonic() + timeout_ms / 1000
    return lambda: max(0.0, deadline - time.monotonic()) * 1000


async def _called(listener: Callable[[], Any]) -> None:
    answer: Awaitable[Any] | None = listener()
    if inspect.isawaitable(answer):
        await answer


def _named(offsets: Mapping[tuple[str, int], int] | None) -> Offsets | None:
    if offsets is None:
        return None
    return {TopicPartition(*where): offset for where, offset in offsets.items()}
