# SPDX-License-Identifier: Apache-2.0
"""Options of a transformation, checked. No network. Read next: transform.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, TypedDict, Unpack, get_args

from headrace.client.arrow.read.typed import Format, Rejects
from headrace.client.arrow.stream.start import Start
from headrace.client.arrow.stream.stream_options import Listener, StreamRequest
from headrace.client.arrow.write.transaction import FOR_THE_TRANSACTION, AsyncTransaction, TransactionOptions
from headrace.client.arrow.write.transaction_session import DEFAULT_TRANSACTION_TIMEOUT_MS
from headrace.client.arrow.write.write_request import DEFAULT_TIMEOUT_MS, WriteOptions
from headrace.client.client_config import chosen_security
from headrace.client.errors import ClientError
from headrace.client.membership.member import ProtocolName
from headrace.client.membership.topic_watch import Topics
from headrace.client.security import Security

Until = Literal["end"]


class Stop(Protocol):
    """A threading.Event, an asyncio.Event, or anything like them."""

    def is_set(self) -> bool: ...


class ReadingOptions(TypedDict, total=False):
    """What `stream` explains."""

    columns: Sequence[str] | None
    key: Format
    value: Format
    rejects: Rejects | None
    start: Start | None
    protocol: ProtocolName | None
    assignor: str | None
    max_pause_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    committed_only: bool
    refresh_ms: int
    budget: int


class TransformOptions(ReadingOptions, total=False):
    """What `transform` explains."""

    bootstrap: str | None
    security: Security | None
    config: str | Path | None
    instance_id: str | None
    write: WriteOptions | None
    transactional_id: str | None
    transaction_timeout_ms: int
    commit_interval_ms: int
    commit_records: int
    limit: int | None
    until: Until | None
    stop: Stop | None
    timeout_ms: int


class TransformRequest:
    """One transformation, its options checked."""

    def __init__(
        self,
        source: Topics,
        target: str,
        *,
        group: str,
        bootstrap: str | None = None,
        security: Security | None = None,
        config: str | Path | None = None,
        instance_id: str | None = None,
        write: WriteOptions | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
        commit_interval_ms: int = 100,
        commit_records: int = 100_000,
        limit: int | None = None,
        until: Until | None = None,
        stop: Stop | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        **reading: Unpack[ReadingOptions],
    ) -> None:
        _check_counts(commit_interval_ms=commit_interval_ms, commit_records=commit_records, limit=limit)
        if until is not None and until not in get_args(Until):
            raise ClientError(f"until={until!r} is not served", next_step='use until="end", or leave it out')
        self.source = source
        self.target = target
        self.group = group
        self.commit_interval_ms = commit_interval_ms
        self.commit_records = commit_records
        self.limit = limit
        self.until = until
        self.stop = stop
        self.write: WriteOptions = {"progress": False, "partition": None, **(write or {})}
        """A result still has the partition numbers of the source, which are not meant for the target."""
        if given := [name for name in FOR_THE_TRANSACTION if name in self.write]:
            raise ClientError(f"{given[0]}= is not an option of write here", next_step="give it to transform")
        self._transactional_id = transactional_id or (f"{group}-{instance_id}" if instance_id else group)
        self._connecting: TransactionOptions = {
            "bootstrap": bootstrap,
            "security": chosen_security(security, config),
            "transaction_timeout_ms": transaction_timeout_ms,
            "timeout_ms": timeout_ms,
        }
        self._instance_id = instance_id
        self._reading = reading

    def stream_request(self, on_revoked: Listener) -> StreamRequest:
        return StreamRequest(
            self.source,
            group=self.group,
            instance_id=self._instance_id,
            commit=False,
            on_revoked=on_revoked,
            bootstrap=self._connecting["bootstrap"],
            security=self._connecting["security"],
            timeout_ms=self._connecting["timeout_ms"],
            **self._reading,
        )

    def transaction(self) -> AsyncTransaction:
        return AsyncTransaction(self._transactional_id, **self._connecting)


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and count < 1:
            raise ClientError(f"{name}={count} is too small", next_step="give at least 1")
