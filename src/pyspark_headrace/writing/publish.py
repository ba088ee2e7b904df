# SPDX-License-Identifier: Apache-2.0
"""Publishes a micro-batch exactly once: all its record batches and its batch id in one transaction.

Initialising the sink's transactional id fences the former driver and aborts its open transaction; then the
ledger shows whether this batch was published already. Only batches in Spark's commit messages are published.
Read next: ledger.py, staging.py; client/arrow/write/transaction.py of the client.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager

from pyspark.sql.datasource import WriterCommitMessage

from headrace.client.arrow.write.transaction import Transaction
from headrace.client.arrow.write.transaction_session import (
    OutcomeUnknown,
    TransactionFenced,
    TransactionsNotServed,
)
from headrace.client.errors import ClientError
from headrace.client.retry import Backoff
from headrace.client.security_settings import NO_SECURITY
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.replays import (
    BatchIdentity,
    Course,
    ReplayRule,
    advances,
    identify_batch,
    repair_command,
)
from pyspark_headrace.writing.commit_messages import Encoded, InMessage, InStaging, Run, Written
from pyspark_headrace.writing.internal_topics import SINKS
from pyspark_headrace.writing.ledger import Published, SinkLedger, last_published, transactional_id
from pyspark_headrace.writing.staging import StagingReader

_log = logging.getLogger(__name__)

_TRIES = 3
_RUNS_AHEAD = 4
"""Runs read ahead from the staging topic while earlier ones are being sent."""

_EMPTY_TIMEOUT_MS = 5_000
_course = Course()

Messages = Sequence[WriterCommitMessage | None]


def publish_batch(messages: Messages, settings: WriteSettings, batch: int) -> None:
    """Publish a micro-batch."""
    encoded = _encoded(messages, settings, first=batch == 0)
    has_rows = any(each.runs for each in encoded)
    query = _query(encoded)
    sink = settings.sink_id or query
    if not has_rows and not query:
        return
    if not sink:
        raise ClientError(
            "the id of the query is unknown, so a repeated batch could not be detected",
            next_step='name the sink: .option("sinkId", …)',
        )
    rule = ReplayRule(
        sink=f"sink {sink!r}",
        numbered_by="checkpoint",
        check=settings.replay_check,
        repair=_repair_command(settings),
    )
    published = Published(query=query, batch=identify_batch(batch, settings.checkpoint))
    if has_rows:
        Publication(sink, encoded, settings).publish_once(published, rule)
    elif not _course.follows(sink, batch):
        _check_empty(sink, settings, published, rule)
    _course.note(sink, batch)


def _check_empty(sink: str, settings: WriteSettings, published: Published, rule: ReplayRule) -> None:
    """Where the ledger cannot be read, the next batch with rows will tell."""
    connections = pooled_client(settings.bootstrap, settings.security)
    try:
        last = last_published(sink, connections, timeout_ms=_EMPTY_TIMEOUT_MS)
    except ClientError as error:
        _log.warning("sink %s: its last batch is unknown: %s", sink, error)
        return
    if last is not None and last.query == published.query:
        moves = advances(published.batch.number, settings.checkpoint)
        rule.check_empty(published.batch, last.batch, advances=moves)


def publish_write(messages: Messages, settings: WriteSettings) -> None:
    """Publish a batch write atomically. With a batch id, skip it if it was published already."""
    encoded = _encoded(messages, settings, first=True)
    if not any(each.runs for each in encoded):
        return
    sink = settings.sink_id or f"write-{uuid.uuid4()}"
    publication = Publication(sink, encoded, settings)
    if settings.batch_id is None:
        publication.publish()
    else:
        rule = ReplayRule(sink=f"sink {sink!r}", numbered_by="batchId")
        identity = BatchIdentity(number=settings.batch_id)
        publication.publish_once(Published(query=_query(encoded), batch=identity), rule)


class Publication:
    """Publishes the rows of one batch through one sink."""

    def __init__(self, sink: str, encoded: Sequence[Encoded], settings: WriteSettings) -> None:
        self._sink = sink
        self._settings = settings
        self._connections = pooled_client(settings.bootstrap, settings.security)
        self._by_topic: dict[str, list[Run]] = defaultdict(list)
        for run in (run for each in encoded for run in each.runs):
            self._by_topic[run.topic].append(run)

    def publish_once(self, published: Published, rule: ReplayRule) -> None:
        """Idempotent: however often it is called, the batch becomes visible once or not at all."""

        def is_published() -> bool:
            return self._is_published(ledger.last(), published, rule)

        ledger = SinkLedger(self._sink, self._connections, timeout_ms=self._settings.timeout_ms)
        if is_published():
            return  # without fencing a newer driver of this sink
        for tries_left in reversed(range(_TRIES)):
            try:
                self._publish(ledger, published, rule)
                return
            except OutcomeUnknown as error:
                if error.fenced:  # by a newer driver, which must not be fenced in turn
                    if is_published():
                        return
                    raise self._taken_over(error) from error
                if not tries_left:  # otherwise initialising the transactional id again decides it
                    raise

    def publish(self) -> None:
        """Publish all rows or none; a second call writes them again."""
        with self._transaction() as transaction:
            transaction.begin()
            self._append_rows(transaction)
            transaction.commit()

    def _publish(self, ledger: SinkLedger, published: Published, rule: ReplayRule) -> None:
        with self._transaction() as transaction:
            last = ledger.last()
            if self._is_published(last, published, rule):
                return
            if last is None and published.batch.number:
                _log.warning(
                    "sink %s: batch %d is the first that is written exactly once; it may hold rows that were "
                    "written before by an attempt that wrote at least once",
                    self._sink,
                    published.batch.number,
                )
            transaction.begin()
            self._append_rows(transaction)
            transaction.append_batches(SINKS.name, ledger.partition, [ledger.entry(published)])
            transaction.commit()

    def _is_published(self, last: Published | None, published: Published, rule: ReplayRule) -> bool:
        if last is None or last.query != published.query or not rule.is_replay(published.batch, last.batch):
            return False
        _log.info("sink %s: batch %d was published already", self._sink, published.batch.number)
        return True

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        """A producer with the sink's transactional id; a transaction left open is aborted."""
        self._connections.reach(timeout_ms=self._settings.timeout_ms)
        try:
            with closing(self._open()) as transaction:
                yield transaction
        except TransactionFenced as error:
            raise self._taken_over(error) from error

    def _open(self) -> Transaction:
        """Brokers of a cluster that is being upgraded begin to serve transactions one after the other."""
        settings = self._settings
        backoff = Backoff(settings.timeout_ms)
        while True:
            try:
                return Transaction(
                    transactional_id(self._sink),
                    bootstrap=settings.bootstrap,
                    security=settings.security.security(),
                    transaction_timeout_ms=settings.transaction_timeout_ms,
                    timeout_ms=settings.timeout_ms,
                )
            except TransactionsNotServed as error:
                self._connections.call(backoff.wait(error))

    def _taken_over(self, error: ClientError) -> ClientError:
        return ClientError(
            f"sink {self._sink!r} was taken over by another driver before this batch was published, or "
            f"publishing it took longer than {self._settings.transaction_timeout_ms} ms",
            next_step="run one driver for each sink; or raise transactionTimeoutMs, then start it again",
            code=error.code,
        )

    def _append_rows(self, transaction: Transaction) -> None:
        reader = StagingReader(self._connections.client, timeout_ms=self._settings.timeout_ms)

        def read(run: InStaging) -> Future[bytes]:
            return self._connections.io.start(reader.read(run))

        for topic, runs in self._by_topic.items():
            transaction.append_runs(topic, with_bytes(runs, read))


def with_bytes(
    runs: Iterable[Run], read: Callable[[InStaging], Future[bytes]]
) -> Iterator[tuple[int, bytes]]:
    """Yield (partition, batches) of every run in order, reading ahead from the staging topic."""
    pending: deque[tuple[int, bytes | Future[bytes]]] = deque()
    try:
        for run in runs:
            pending.append((run.partition, run.batches if isinstance(run, InMessage) else read(run)))
            if len(pending) > _RUNS_AHEAD:
                yield _next_result(pending)
        while pending:
            yield _next_result(pending)
    finally:
        for _, batches in pending:
            if isinstance(batches, Future):
                batches.cancel()


def _next_result(pending: deque[tuple[int, bytes | Future[bytes]]]) -> tuple[int, bytes]:
    partition, batches = pending.popleft()
    return partition, batches.result() if isinstance(batches, Future) else batches


def _encoded(messages: Messages, settings: WriteSettings, *, first: bool) -> list[Encoded]:
    """Messages with encoded rows; logs once when tasks wrote their rows themselves."""
    if first and any(isinstance(each, Written) for each in messages):
        reason = "exactlyOnce=off" if settings.exactly_once == "off" else "the broker has no transactions"
        _log.warning("%s: rows are written at least once and may be duplicated", reason)
    return [each for each in messages if isinstance(each, Encoded)]


def _repair_command(settings: WriteSettings) -> str:
    words = ["--bootstrap", settings.bootstrap]
    if settings.sink_id is not None:
        words += ["--sink", settings.sink_id]
    if settings.security != NO_SECURITY:
        words += ["--command-config", "FILE"]
    return repair_command(settings.checkpoint, *words)


def _query(encoded: Iterable[Encoded]) -> str:
    return next((each.query for each in encoded if each.query), "")
