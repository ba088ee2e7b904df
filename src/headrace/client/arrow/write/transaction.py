"""Transactions over topics and groups for plain code: `headrace.transaction`.

Holds the states and runs the protocol (transaction_session.py) on a background thread. States: ready → open →
ready; a failed transaction can only be aborted; after fencing or an unknown outcome the object is closed.
Read next: transaction_session.py, writer.py.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from headrace.client.arrow.io_thread import IoThread
from headrace.client.arrow.write.ready_batches import Run, ready_batches
from headrace.client.arrow.write.results import Delivered
from headrace.client.arrow.write.sender import Outgoing, Sender
from headrace.client.arrow.write.transaction_session import (
    DEFAULT_TRANSACTION_TIMEOUT_MS,
    Offsets,
    OutcomeUnknown,
    TransactionFenced,
    TransactionSession,
)
from headrace.client.arrow.write.writer import (
    DEFAULT_BUDGET,
    DEFAULT_TIMEOUT_MS,
    WriteOptions,
    WriteRequest,
    send_rows,
)
from headrace.client.bootstrap import DEFAULT_BOOTSTRAP
from headrace.client.client_config import chosen_security
from headrace.client.errors import ClientError
from headrace.client.membership.group_metadata import GroupMetadata
from headrace.client.network_client import NetworkClient
from headrace.client.security import Security

_FOR_THE_TRANSACTION = (
    "bootstrap",
    "security",
    "config",
    "transactional_id",
    "transaction_timeout_ms",
    "acks",
    "idempotent",
    "timeout_ms",
)


class _State(Enum):
    READY = "no transaction was begun"
    OPEN = "a transaction is open"
    FAILED = "the open transaction failed and can only be aborted"
    OVER = "this transactional id cannot be used any more here"


class Transaction:
    """One transactional id, for a sequence of transactions. Used in one thread at a time.

    As a context manager it begins one, commits it at the end, and aborts it when the block raises.
    """

    def __init__(
        self,
        transactional_id: str,
        *,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        security: Security | None = None,
        config: str | Path | None = None,
        transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._client = NetworkClient(bootstrap, security=chosen_security(security, config))
        self._session = TransactionSession(
            self._client,
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            timeout_ms=timeout_ms,
        )
        self._state = _State.READY
        self._why: ClientError | None = None
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
            self._need(_State.READY, "begin a transaction")
            self._state = _State.OPEN

    def write(self, data: Any, topic: str, **options: Unpack[WriteOptions]) -> Delivered:
        """As `headrace.write`, within the transaction; readers of committed records see it after `commit`."""
        if given := [name for name in _FOR_THE_TRANSACTION if name in options]:
            raise ClientError(f"{given[0]}= is decided by the transaction", next_step="leave it out of write")
        options["timeout_ms"] = self._timeout_ms
        request = WriteRequest(data, topic, **options)
        with self._turn, self._part("write"):
            sender = self._io.call(request.open(self._client, self._session))
            return self._send(sender, request.encoded())

    def append_batches(self, topic: str, partition: int, batches: Iterable[bytes]) -> Delivered:
        """Record batches that were encoded elsewhere, unchanged except for the producer in their headers.

        Each is one or several whole batches (magic 2) as a producer would send them: they are checked.
        """
        return self.append_runs(topic, ((partition, run) for run in batches))

    def append_runs(self, topic: str, runs: Iterable[tuple[int, Run]]) -> Delivered:
        """As `write_batches` for several partitions at once: (partition, batches)."""
        with self._turn, self._part("append batches"):
            sender = Sender(
                self._client,
                topic,
                acks=-1,
                budget=DEFAULT_BUDGET,
                timeout_ms=self._timeout_ms,
                transaction=self._session,
            )
            producer = self._io.call(sender.open(idempotent=True))
            checked = _within(runs, topic, sender.partitions)
            return self._send(sender, ready_batches(checked, producer, self._session.sequences(topic)))

    def send_offsets(self, offsets: Offsets, group: GroupMetadata | str) -> None:
        """Commits a group's offsets in the transaction: `stream.position()`, `stream.group_metadata()`.

        offsets: `{(topic, partition): offset of the next record}`. With a group name alone,
        commits of a member that the group has removed are not refused.
        """
        if isinstance(group, str):
            group = GroupMetadata(group=group, generation=-1, member_id="")
        with self._turn, self._part("send offsets"):
            self._io.call(self._session.send_offsets(offsets, group))

    def commit(self) -> None:
        """Commits. OutcomeUnknown: the coordinator did not answer; check before repeating."""
        with self._turn:
            self._need(_State.OPEN, "commit")
            self._end(committed=True)

    def abort(self) -> None:
        with self._turn:
            if self._state is not _State.FAILED:
                self._need(_State.OPEN, "abort")
            self._end(committed=False)

    def close(self) -> None:
        """Aborts the open transaction."""
        with self._turn:
            try:
                if self._state in (_State.OPEN, _State.FAILED):
                    self._io.call(self._session.abandon())
            finally:
                self._state = _State.OVER
                self._finalizer()

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._state in (_State.OPEN, _State.FAILED):
                self.commit()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"headrace.transaction({self.transactional_id!r}: {self._state.value})"

    # -- private -------------------------------------------------------------------------------------------

    def _need(self, state: _State, what: str) -> None:
        if self._state is state:
            return
        raise ClientError(
            f"cannot {what}: {self._state.value}{f' ({self._why.what})' if self._why else ''}",
            next_step=_NEXT_STEP[self._state],
        ) from self._why

    @contextmanager
    def _part(self, what: str) -> Iterator[None]:
        """Runs a part of the open transaction; if it fails, the transaction can only be aborted."""
        self._need(_State.OPEN, what)
        try:
            yield
        except ClientError as error:
            explained = self._session.explained(error)
            self._spoil(explained)
            if explained is error:
                raise
            raise explained from error
        except BaseException as error:
            self._spoil(ClientError(f"{what} was interrupted: {type(error).__name__}"))
            raise

    def _spoil(self, why: ClientError) -> None:
        self._session.outcome_unknown = True
        self._state = _State.OVER if isinstance(why, TransactionFenced) else _State.FAILED
        self._why = why

    def _send(self, sender: Sender, batches: Iterator[Outgoing]) -> Delivered:
        try:
            delivered = send_rows(self._io, sender, batches)
        except BaseException:
            self._io.call(sender.await_replies())
            raise
        self._io.call(sender.close())
        return delivered

    def _end(self, *, committed: bool) -> None:
        try:
            self._io.call(self._session.end(committed=committed))
        except ClientError as error:
            over = isinstance(error, TransactionFenced | OutcomeUnknown)
            self._state, self._why = _State.OVER if over else _State.FAILED, error
            raise
        except BaseException as error:
            self._state = _State.OVER
            self._why = ClientError(f"its end was interrupted: {type(error).__name__}")
            raise
        self._state, self._why = _State.READY, None


def _within(runs: Iterable[tuple[int, Run]], topic: str, partitions: int) -> Iterator[tuple[int, Run]]:
    for partition, run in runs:
        if not 0 <= partition < partitions:
            raise ClientError(
                f"topic {topic!r} has no partition {partition}", next_step=f"it has {partitions}"
            )
        yield partition, run


_NEXT_STEP = {
    _State.READY: "call begin() first, or use it in a with block",
    _State.OPEN: "commit or abort it first",
    _State.FAILED: "call abort(), then begin() and repeat the whole transaction",
    _State.OVER: "open it again with headrace.transaction(…) and repeat the whole transaction",
}


def transaction(
    transactional_id: str,
    *,
    bootstrap: str = DEFAULT_BOOTSTRAP,
    security: Security | None = None,
    config: str | Path | None = None,
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> Transaction:
    """Writes to any topics and commits a group's offsets atomically.

    bootstrap, security, config: as in `write`.
    transactional_id: the same for every run of one writer; a newer run fences an older one.
    transaction_timeout_ms: the broker aborts what is open for longer (60,000).
    timeout_ms: how long requests are retried.

    `with headrace.transaction("copier") as transaction:` commits at the end of the block.
    """
    return Transaction(
        transactional_id,
        bootstrap=bootstrap,
        security=security,
        config=config,
        transaction_timeout_ms=transaction_timeout_ms,
        timeout_ms=timeout_ms,
    )
