"""The driver's part of an exactly-once sink: all batches of a micro-batch and its number, in one transaction.

Whoever opens the sink's transactional id fences off its former driver and has its leftovers aborted; then the
ledger says whether this batch was published already. Only what Spark hands over is published.
Read next: sink_ledger.py, staging.py; transaction.py of the client.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager

from pyspark.sql.datasource import WriterCommitMessage

from headrace.client.arrow.transaction import Transaction
from headrace.client.arrow.transaction_session import OutcomeUnknown, TransactionFenced
from headrace.client.errors import ClientError
from pyspark_headrace.connections import kept
from pyspark_headrace.internal_topics import SINKS
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.sink_ledger import Published, SinkLedger
from pyspark_headrace.sink_messages import Encoded, InMessage, InStaging, Run, Written
from pyspark_headrace.staging import StagingReader

_log = logging.getLogger(__name__)

_TRIES = 3
_RUNS_AHEAD = 4
"""Runs that are read from the staging topic while those before are on their way."""

Messages = Sequence[WriterCommitMessage | None]


def publish_batch(messages: Messages, settings: WriteSettings, batch: int) -> None:
    """The end of a micro-batch."""
    encoded = _encoded(messages, settings, first=batch == 0)
    if not any(each.runs for each in encoded):
        return
    query = _query(encoded)
    sink = settings.sink_id or query
    if not sink:
        raise ClientError(
            "which query this is cannot be told, so that a batch that comes twice would not be noticed",
            next_step='give the sink a name of its own: .option("sinkId", …)',
        )
    Publication(sink, encoded, settings).once(Published(query=query, batch=batch))


def publish_write(messages: Messages, settings: WriteSettings) -> None:
    """The end of a batch write: all of it or nothing. With a batch id, nothing if it was there already."""
    encoded = _encoded(messages, settings, first=True)
    if not any(each.runs for each in encoded):
        return
    publication = Publication(settings.sink_id or f"write-{uuid.uuid4()}", encoded, settings)
    if settings.batch_id is None:
        publication.whole()
    else:
        publication.once(Published(query=_query(encoded), batch=settings.batch_id))


class Publication:
    """The rows of one batch, on their way through one sink."""

    def __init__(self, sink: str, encoded: Sequence[Encoded], settings: WriteSettings) -> None:
        self._sink = sink
        self._settings = settings
        self._connections = kept(settings.bootstrap, settings.security)
        self._by_topic: dict[str, list[Run]] = defaultdict(list)
        for run in (run for each in encoded for run in each.runs):
            self._by_topic[run.topic].append(run)

    def once(self, published: Published) -> None:
        """Whatever happens, and however often it is called: the batch is visible once or not at all."""
        ledger = SinkLedger(
            self._sink,
            self._connections,
            timeout_ms=self._settings.timeout_ms,
            settle_ms=self._settings.transaction_timeout_ms,
        )
        if self._is_there(ledger.last(), published):
            return  # and whoever goes on with this sink by now is not fenced off
        for tries_left in reversed(range(_TRIES)):
            try:
                self._publish(ledger, published)
                return
            except OutcomeUnknown:  # opening the transactional id anew settles it
                if not tries_left:
                    raise

    def whole(self) -> None:
        """All rows or none; another call writes them again."""
        with self._transaction() as transaction:
            transaction.begin()
            self._append_rows(transaction)
            transaction.commit()

    def _publish(self, ledger: SinkLedger, published: Published) -> None:
        with self._transaction() as transaction:
            if self._is_there(ledger.last_settled(), published):
                return
            transaction.begin()
            self._append_rows(transaction)
            transaction.append_batches(SINKS.name, ledger.partition, [ledger.entry(published)])
            transaction.commit()

    def _is_there(self, last: Published | None, published: Published) -> bool:
        if last is None or not last.covers(published):
            return False
        _log.info("sink %s: batch %d is published already", self._sink, published.batch)
        return True

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        """Of the sink's transactional id; what is open at the end is aborted."""
        settings = self._settings
        self._connections.reach(timeout_ms=settings.timeout_ms)
        try:
            transaction = Transaction(
                f"headrace-sink-{self._sink}",
                bootstrap=settings.bootstrap,
                security=settings.security.security(),
                transaction_timeout_ms=settings.transaction_timeout_ms,
                timeout_ms=settings.timeout_ms,
            )
            with closing(transaction):
                yield transaction
        except TransactionFenced as error:
            raise ClientError(
                f"sink {self._sink!r} was taken over by another driver before this batch was published, or "
                f"publishing it took longer than {settings.transaction_timeout_ms} ms",
                next_step="run one driver for each sink; or raise transactionTimeoutMs, then start it again",
                code=error.code,
            ) from error

    def _append_rows(self, transaction: Transaction) -> None:
        reader = StagingReader(self._connections.cluster, timeout_ms=self._settings.timeout_ms)

        def read(run: InStaging) -> Future[bytes]:
            return self._connections.io.start(reader.read(run))

        for topic, runs in self._by_topic.items():
            transaction.append_runs(topic, with_bytes(runs, read))


def with_bytes(
    runs: Iterable[Run], read: Callable[[InStaging], Future[bytes]]
) -> Iterator[tuple[int, bytes]]:
    """(partition, batches) of every run in order; those in the staging topic are read ahead."""
    coming: deque[tuple[int, bytes | Future[bytes]]] = deque()
    try:
        for run in runs:
            coming.append((run.partition, run.batches if isinstance(run, InMessage) else read(run)))
            if len(coming) > _RUNS_AHEAD:
                yield _arrived(coming)
        while coming:
            yield _arrived(coming)
    finally:
        for _, batches in coming:
            if isinstance(batches, Future):
                batches.cancel()


def _arrived(coming: deque[tuple[int, bytes | Future[bytes]]]) -> tuple[int, bytes]:
    partition, batches = coming.popleft()
    return partition, batches.result() if isinstance(batches, Future) else batches


def _encoded(messages: Messages, settings: WriteSettings, *, first: bool) -> list[Encoded]:
    """Those of tasks that left their rows to the driver; says so once when they did not."""
    if first and any(isinstance(each, Written) for each in messages):
        why = "exactlyOnce=off" if settings.exactly_once == "off" else "the broker serves no transactions"
        _log.warning("%s: every row is written at least once, some perhaps twice", why)
    return [each for each in messages if isinstance(each, Encoded)]


def _query(encoded: Iterable[Encoded]) -> str:
    return next((each.query for each in encoded if each.query), "")
