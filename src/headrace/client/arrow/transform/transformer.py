# SPDX-License-Identifier: Apache-2.0
"""Reads batches as a member of a group and writes their results in transactions, with the group's offsets.

Runs on one event loop; calling the user's function is transform.py's. When a partition whose records are in
the open transaction is revoked, the transaction is aborted and everything since the last commit is read again
from the committed offsets. A member that was removed and does not know it is refused by the group's
coordinator, since offsets are sent with the generation in which their records were read (KIP-447).
Read next: transform.py, ../stream/stream_core.py, ../write/transaction.py.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from headrace.client.arrow.stream.progress import Offsets
from headrace.client.arrow.stream.stream import AsyncStream
from headrace.client.arrow.stream.stream_core import BatchOrigin
from headrace.client.arrow.transform.options import TransformRequest
from headrace.client.arrow.write.transaction_session import (
    OutcomeUnknown,
    TransactionFenced,
    TransactionsNotServed,
)
from headrace.client.coordinator import MEMBER_FENCED, CoordinatorError
from headrace.client.errors import ClientError
from headrace.client.membership.group_metadata import GroupMetadata
from headrace.types import TopicPartition

T = TypeVar("T")

_POLL_MS = 100
"""How long a poll may take before the stop event and the other ends are looked at."""
_ABORTED_AND_REPEATED = frozenset(
    {
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "REBALANCE_IN_PROGRESS",
        "TRANSACTION_ABORTABLE",
    }
)
"""The group has moved on, or the coordinator asks for it."""


class TransformFailed(ClientError):
    """The function raised an error, or its result cannot be written. Its transaction was aborted.

    `topic` and `ranges` name the records: by partition, the first offset and the offset after the last.
    """

    def __init__(self, origin: BatchOrigin, what: str, why: ClientError | None = None) -> None:
        super().__init__(
            f"{what}, for records of {origin.topic!r}: {_ranges_text(origin.ranges)}",
            next_step=why.next_step if why else None,
            code=why.code if why else None,
        )
        self.topic = origin.topic
        self.ranges = dict(origin.ranges)


@dataclass(slots=True, kw_only=True)
class Transformed:
    """What was committed: records read and written, transactions; and how many were aborted and repeated."""

    read: int = 0
    written: int = 0
    transactions: int = 0
    aborted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A batch for the function."""

    batch: Any
    origin: BatchOrigin

    def failed(self, error: Exception) -> TransformFailed:
        return TransformFailed(self.origin, f"the function raised {type(error).__name__}: {error}")


@dataclass(slots=True, kw_only=True)
class _Content:
    """What the open transaction holds."""

    member: GroupMetadata
    """As of the last batch: when it was handed out, no partition of an earlier one had been revoked."""
    since: float = field(default_factory=time.monotonic)
    offsets: Offsets = field(default_factory=dict)
    read: int = 0
    written: int = 0


class Transformer:
    """`open`, then `next` and `take` in turn until `next` returns None; `close` at the end."""

    def __init__(self, request: TransformRequest) -> None:
        self._request = request
        self._stream = AsyncStream(request.stream_request(self._revoked))
        self._transaction = request.transaction()
        self._content: _Content | None = None
        self._must_rewind = False
        self._ends: Mapping[TopicPartition, int] = {}
        self.done = Transformed()

    async def open(self) -> None:
        """Fences an older run with the same transactional id, and joins the group."""
        try:
            await self._transaction.begin()
        except TransactionsNotServed as error:
            raise TransactionsNotServed(
                error.what,
                next_step="without them records are copied at least once: headrace.stream(…, commit=False), "
                "headrace.write(…), then commit()",
                code=error.code,
            ) from error
        await self._stream.__aenter__()
        if self._request.until == "end":
            ends = await self._stream.end_offsets()
            self._ends = {each: end for each, end in ends.items() if end > 0}

    async def next(self) -> Work | None:
        """The next batch to be transformed; None at the end. Commits what is due."""
        while True:
            if self._must_rewind:
                await self._as_member(self._stream.rewind)
                self._must_rewind = False
            if self._commit_is_due():
                await self._commit()
            elif await self._is_over():
                return None
            elif (work := await self._poll()) is not None:
                return work

    async def take(self, work: Work, result: Any) -> None:
        """Writes the function's result for the last batch."""
        assert self._content is not None
        if result is None:
            return
        if not isinstance(result, pa.RecordBatch | pa.Table):
            kind = type(result).__name__
            raise TransformFailed(
                work.origin, f"the function returned a {kind}, not a RecordBatch, a Table or None"
            )
        if not result.num_rows:
            return
        try:
            delivered = await self._transaction.write(result, self._request.target, **self._request.write)
        except ClientError as error:
            if self._is_repeated(error):
                await self._abort()
                return
            raise TransformFailed(
                work.origin, f"the result cannot be written ({error.what})", error
            ) from error
        self._content.written += delivered.records

    async def close(self) -> None:
        """Aborts the open transaction and leaves the group."""
        self._content = None
        try:
            await self._transaction.close()
        finally:
            await self._stream.close()

    # -- reading -------------------------------------------------------------------------------------------

    async def _poll(self) -> Work | None:
        batch = await self._stream.poll(self._poll_ms())
        if batch is None or self._must_rewind:  # aborted meanwhile: these records are read again
            return None
        origin = self._stream.batch_origin()
        assert origin.member is not None
        if self._content is None:
            self._content = _Content(member=origin.member)
        self._content.member = origin.member
        self._content.offsets |= origin.next_offsets
        self._content.read += batch.num_rows
        return Work(batch=batch, origin=origin)

    def _poll_ms(self) -> float:
        return _POLL_MS if self._content is None else max(0.0, min(_POLL_MS, self._ms_left(self._content)))

    async def _revoked(self, partitions: list[TopicPartition]) -> None:
        """Before they go to another member, or after they were lost to one."""
        if self._content is not None and not self._content.offsets.keys().isdisjoint(partitions):
            await self._abort()

    async def _as_member(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeats a request while the group has removed this member, which joins again when it polls."""
        while True:
            try:
                return await ask()
            except CoordinatorError as error:
                if error.error_code not in MEMBER_FENCED:
                    raise
                self._must_rewind = True  # what the poll returns is not transformed
                await self._stream.poll(_POLL_MS)

    # -- the ends ------------------------------------------------------------------------------------------

    async def _is_over(self) -> bool:
        if self._content is not None:
            return False
        request = self._request
        if self._is_stopped() or (request.limit is not None and self.done.read >= request.limit):
            return True
        return request.until == "end" and await self._is_at_the_end()

    def _is_stopped(self) -> bool:
        return self._request.stop is not None and self._request.stop.is_set()

    async def _is_at_the_end(self) -> bool:
        """Whether the group has read all that the source held when this member started."""
        position = self._stream.position()
        left = {each: end for each, end in self._ends.items() if position.get(each, -1) < end}
        if not left or not left.keys().isdisjoint(position):
            return not left
        committed = await self._as_member(lambda: self._stream.committed(left))  # other members read these
        return not self._must_rewind and all(committed.get(each, -1) >= end for each, end in left.items())

    # -- transactions --------------------------------------------------------------------------------------

    def _commit_is_due(self) -> bool:
        content, request = self._content, self._request
        if content is None:
            return False
        return (
            self._is_stopped()
            or content.read >= request.commit_records
            or (request.limit is not None and self.done.read + content.read >= request.limit)
            or self._ms_left(content) <= 0
        )

    def _ms_left(self, content: _Content) -> float:
        return self._request.commit_interval_ms - (time.monotonic() - content.since) * 1000

    async def _commit(self) -> None:
        content = self._content
        assert content is not None
        try:
            await self._transaction.send_offsets(content.offsets, content.member)
            await self._transaction.commit()
        except OutcomeUnknown as error:
            await self._resolve(content, error)
        except ClientError as error:
            if not self._is_repeated(error):
                raise
            await self._abort()
        else:
            self._content = None
            self._count(content)
            await self._transaction.begin()

    def _count(self, committed: _Content) -> None:
        self.done.read += committed.read
        self.done.written += committed.written
        self.done.transactions += 1

    async def _abort(self) -> None:
        self._content, self._must_rewind = None, True
        self.done.aborted += 1
        await self._transaction.abort()
        await self._transaction.begin()

    async def _resolve(self, content: _Content, error: OutcomeUnknown) -> None:
        """The group's committed offsets say whether the transaction happened."""
        self._content, self._must_rewind = None, True
        if not error.fenced:
            await self._transaction.close()
            self._transaction = self._request.transaction()
            await self._transaction.begin()  # the coordinator ends the transaction before it answers
        committed = await self._as_member(lambda: self._stream.committed(content.offsets))
        happened = all(committed.get(each, -1) >= offset for each, offset in content.offsets.items())
        if error.fenced:
            outcome = "its last transaction was committed" if happened else "nothing more was committed"
            raise self._fenced(f"{error.what}; {outcome}", error)
        if happened:
            self._count(content)
        else:
            self.done.aborted += 1

    def _is_repeated(self, error: ClientError) -> bool:
        if isinstance(error, TransactionFenced):
            raise self._fenced(error.what, error) from error
        return error.code in _ABORTED_AND_REPEATED

    def _fenced(self, what: str, error: ClientError) -> TransactionFenced:
        return TransactionFenced(
            what,
            next_step="give every member of the group its own transactional_id; raise transaction_timeout_ms "
            "if batches take long; then start it again: it continues at the committed offsets",
            code=error.code,
        )


def _ranges_text(ranges: Mapping[int, tuple[int, int]]) -> str:
    return "; ".join(
        f"partition {number}, offsets {first} to {end - 1}" for number, (first, end) in sorted(ranges.items())
    )
