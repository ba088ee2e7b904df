# SPDX-License-Identifier: Apache-2.0
"""Transactions over topics and groups: `transaction` for plain code, `atransaction` for asyncio.

Runs the protocol (transaction_session.py) on a background thread, or on the caller's event loop. Both check
the states (transaction_states.py) in the same way. Read next: transaction_session.py, writer.py.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict, Unpack

from headrace.client.arrow.io_thread import IoThread
from headrace.client.arrow.keywords import keywords_of
from headrace.client.arrow.write.frames import Data
from headrace.client.arrow.write.ready_batches import Run, ready_batches
from headrace.client.arrow.write.results import Delivered
from headrace.client.arrow.write.sender import Outgoing, Sender
from headrace.client.arrow.write.transaction_session import (
    DEFAULT_TRANSACTION_TIMEOUT_MS,
    Offsets,
    TransactionSession,
)
from headrace.client.arrow.write.transaction_states import TransactionStates
from headrace.client.arrow.write.write_request import (
    DEFAULT_BUDGET,
    DEFAULT_TIMEOUT_MS,
    WriteOptions,
    WriteRequest,
)
from headrace.client.arrow.write.writer import asend_rows, send_rows
from headrace.client.bootstrap import chosen_bootstrap
from headrace.client.client_config import chosen_security
from headrace.client.errors import ClientError
from headrace.client.membership.group_metadata import GroupMetadata
from headrace.client.network_client import NetworkClient
from headrace.client.security import Security

FOR_THE_TRANSACTION = (
    "bootstrap",
    "security",
    "config",
    "transactional_id",
    "transaction_timeout_ms",
    "acks",
    "idempotent",
    "timeout_ms",
)
"""Options of `write` that hold for a whole transaction."""


class TransactionOptions(TypedDict, total=False):
    """What `transaction` explains."""

    bootstrap: str | None
    security: Security | None
    config: str | Path | None
    transaction_timeout_ms: int
    timeout_ms: int


class _Transactional:
    """Shared by both kinds: the session, its states, and what a part of a transaction is made of."""

    def __init__(
        self,
        transactional_id: str,
        *,
        bootstrap: str | None = None,
        security: Security | None = None,
        config: str | Path | None = None,
        transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._client = NetworkClient(chosen_bootstrap(bootstrap), security=chosen_security(security, config))
        self._session = TransactionSession(
            self._client,
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            timeout_ms=timeout_ms,
        )
        self._states = TransactionStates(self._session)

    def _write_request(self, data: Data, topic: str, options: WriteOptions) -> WriteRequest:
        if given := [name for name in FOR_THE_TRANSACTION if name in options]:
            raise ClientError(f"{given[0]}= is decided by the transaction", next_step="leave it out of write")
        options["timeout_ms"] = self._timeout_ms
        return WriteRequest(data, topic, **options)

    def _sender(self, topic: str) -> Sender:
        """For batches that are encoded already."""
        return Sender(
            self._client,
            topic,
            acks=-1,
            budget=DEFAULT_BUDGET,
            timeout_ms=self._timeout_ms,
            transaction=self._session,
        )

    def _signed(self, sender: Sender, topic: str, runs: Iterable[tuple[int, Run]]) -> Iterator[Outgoing]:
        checked = _within(runs, topic, sender.partitions)
        return ready_batches(checked, self._session.producer, self._session.sequences(topic))

    def __repr__(self) -> str:
        return f"headrace.transaction({self.transactional_id!r}: {self._states.text})"


class Transaction(_Transactional):
    """One transactional id, for a sequence of transactions. Used in one thread at a time.

    As a context manager it begins one, commits it at the end, and aborts it when the block raises.
    """

    def __init__(self, transactional_id: str, **options: Unpack[TransactionOptions]) -> None:
        super().__init__(transactional_id, **options)
        self._turn = threading.Lock()
        self._io = IoThread(f"headrace-transaction-{transactional_id}", self._client.close)
        self._finalizer = weakref.finalize(
            self, self._io.close
        )  # ends the thread of an object that was not closed
        try:
            self._io.call(self._session.open())
        except BaseException:
            self._finalizer()
            raise

    def begin(self) -> None:
        """Sends nothing yet: the broker opens a transaction with its first write."""
        with self._turn:
            self._states.begin()

    def write(self, data: Data, topic: str, **options: Unpack[WriteOptions]) -> Delivered:
        """As `headrace.write`, within the transaction; readers of committed records see it after `commit`."""
        request = self._write_request(data, topic, options)
        with self._turn, self._states.part("write"):
            sender = self._io.call(request.open(self._client, self._session))
            return self._send(sender, request.encoded())

    def append_batches(self, topic: str, partition: int, batches: Iterable[bytes]) -> Delivered:
        """Record batches that were encoded elsewhere, unchanged except for the producer in their headers.

        Each is one or several whole batches (magic 2) as a producer would send them: they are checked.
        """
        return self.append_runs(topic, ((partition, run) for run in batches))

    def append_runs(self, topic: str, runs: Iterable[tuple[int, Run]]) -> Delivered:
        """As `append_batches` for several partitions at once: (partition, batches)."""
        with self._turn, self._states.part("append batches"):
            sender = self._sender(topic)
            self._io.call(sender.open(idempotent=True))
            return self._send(sender, self._signed(sender, topic, runs))

    def send_offsets(self, offsets: Offsets, group: GroupMetadata | str) -> None:
        """Commits a group's offsets in the transaction: `stream.position()`, `stream.group_metadata()`.

        offsets: `{(topic, partition): offset of the next record}`. With a group name alone,
        commits of a member that the group has removed are not refused.
        """
        with self._turn, self._states.part("send offsets"):
            self._io.call(self._session.send_offsets(offsets, _identity(group)))

    def commit(self) -> None:
        """Commits. OutcomeUnknown: no reply says whether it is committed; check before repeating."""
        self._end(committed=True)

    def abort(self) -> None:
        """Aborts: readers of committed records see nothing of it."""
        self._end(committed=False)

    def close(self) -> None:
        """Aborts the open transaction."""
        with self._turn:
            try:
                if self._states.is_open:
                    self._io.call(self._session.abandon())
            finally:
                self._states.close()
                self._finalizer()

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._states.is_open:
                self.commit()
        finally:
            self.close()

    def _send(self, sender: Sender, batches: Iterator[Outgoing]) -> Delivered:
        try:
            delivered = send_rows(self._io, sender, batches)
        except BaseException:
            self._io.call(sender.await_replies())
            raise
        self._io.call(sender.close())
        return delivered

    def _end(self, *, committed: bool) -> None:
        with self._turn, self._states.end(committed=committed):
            self._io.call(self._session.end(committed=committed))


class AsyncTransaction(_Transactional):
    """As `Transaction`, from one event loop only; a cancelled call leaves a transaction to be aborted."""

    def __init__(self, transactional_id: str, **options: Unpack[TransactionOptions]) -> None:
        super().__init__(transactional_id, **options)
        self._turn = asyncio.Lock()
        self._opened = False

    async def begin(self) -> None:
        """Opens the transactional id if it is not; the broker opens a transaction with its first write."""
        async with self._turn:
            self._states.need_ready()
            if not self._opened:
                await self._session.open()
                self._opened = True
            self._states.begin()

    async def write(self, data: Data, topic: str, **options: Unpack[WriteOptions]) -> Delivered:
        """As `headrace.awrite`, within the transaction."""
        request = await asyncio.to_thread(self._write_request, data, topic, options)
        async with self._turn:
            with self._states.part("write"):
                sender = await request.open(self._client, self._session)
                return await self._send(sender, request.encoded())

    async def append_batches(self, topic: str, partition: int, batches: Iterable[bytes]) -> Delivered:
        """As in `Transaction`."""
        return await self.append_runs(topic, ((partition, run) for run in batches))

    async def append_runs(self, topic: str, runs: Iterable[tuple[int, Run]]) -> Delivered:
        """As in `Transaction`; `runs` is read in a thread."""
        async with self._turn:
            with self._states.part("append batches"):
                sender = self._sender(topic)
                await sender.open(idempotent=True)
                return await self._send(sender, self._signed(sender, topic, runs))

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata | str) -> None:
        """As in `Transaction`."""
        async with self._turn:
            with self._states.part("send offsets"):
                await self._session.send_offsets(offsets, _identity(group))

    async def commit(self) -> None:
        """As in `Transaction`."""
        await self._end(committed=True)

    async def abort(self) -> None:
        """As in `Transaction`."""
        await self._end(committed=False)

    async def close(self) -> None:
        """Aborts the open transaction."""
        async with self._turn:
            try:
                if self._states.is_open:
                    await self._session.abandon()
            finally:
                self._states.close()
                await self._client.close()

    async def __aenter__(self) -> Self:
        try:
            await self.begin()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._states.is_open:
                await self.commit()
        finally:
            await self.close()

    async def _send(self, sender: Sender, batches: Iterator[Outgoing]) -> Delivered:
        try:
            delivered = await asend_rows(sender, batches)
        except BaseException:
            await sender.await_replies()
            raise
        await sender.close()
        return delivered

    async def _end(self, *, committed: bool) -> None:
        async with self._turn:
            with self._states.end(committed=committed):
                await self._session.end(committed=committed)


@keywords_of(TransactionOptions, _Transactional)
def transaction(transactional_id: str, **options: Unpack[TransactionOptions]) -> Transaction:
    """Opens a transactional id, to write to any topics and commit a group's offsets atomically.

    A context manager begins a transaction, commits it at the end of the block, and aborts it when the block
    raises. For several transactions, keep the object and call `begin()`, `write(…)`, `commit()` or `abort()`,
    and `close()` at the end.

    Args:
        transactional_id: the same for every run of one writer; a newer run fences an older one.

    Keyword Args:
        bootstrap: as in `write`, like security and config.
        transaction_timeout_ms: the broker aborts what is open for longer (60,000).
        timeout_ms: how long requests are retried (120,000).

    Raises:
        TransactionsNotServed: the broker has no transactions.
        TransactionFenced: in its methods: another writer has opened the id, or the timeout has passed.
        OutcomeUnknown: by a commit: no reply says whether it is committed; check before repeating.

    Example:
        ```python
        with headrace.transaction("copier") as transaction:
            transaction.write(orders, "orders")
            transaction.write(audit, "audit")
        ```
    """
    return Transaction(transactional_id, **options)


@keywords_of(TransactionOptions, _Transactional)
def atransaction(transactional_id: str, **options: Unpack[TransactionOptions]) -> AsyncTransaction:
    """Opens a transactional id with asyncio; takes what `transaction` takes, and its methods are awaited.

    The first `begin` opens the id, and fences an older run.

    Example:
        ```python
        async with headrace.atransaction("copier") as transaction:
            await transaction.write(orders, "orders")
        ```
    """
    return AsyncTransaction(transactional_id, **options)


def _identity(group: GroupMetadata | str) -> GroupMetadata:
    return GroupMetadata(group=group, generation=-1, member_id="") if isinstance(group, str) else group


def _within(runs: Iterable[tuple[int, Run]], topic: str, partitions: int) -> Iterator[tuple[int, Run]]:
    for partition, run in runs:
        if not 0 <= partition < partitions:
            raise ClientError(
                f"topic {topic!r} has no partition {partition}", next_step=f"it has {partitions}"
            )
        yield partition, run
