# SPDX-License-Identifier: Apache-2.0
"""Worker threads: take a record, call the handler, record the outcome.

A failed record is retried with backoff, up to a number of times; then it becomes a dead letter, or the
consumer stops. Read next: callers.py, work_queue.py.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from headrace.client.errors import ClientError
from headrace.client.parallel.callers import Caller
from headrace.client.parallel.observer import Observer
from headrace.client.parallel.record import FatalError, PoisonRecord, Record, RecordFailed
from headrace.client.parallel.scheduler import Entry
from headrace.client.parallel.work_queue import WorkQueue
from headrace.client.retry import ExponentialBackoff

_here = threading.local()


def cancelled() -> bool:
    """For long-running handlers: True when the partition of the current record was revoked.

    Another member handles it, or will. In a worker process it is never True: that process is ended instead.
    """
    entry: Entry | None = getattr(_here, "entry", None)
    return entry is not None and entry.cancelled


class DeadLetterSender(Protocol):
    def send(self, record: Record, error: BaseException) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """`retries`: None means no limit. Without a dead-letter topic the last failure stops the consumer."""

    retries: int | None
    backoff: ExponentialBackoff
    dead_letters: DeadLetterSender | None


class Workers:
    def __init__(
        self,
        count: int,
        queue: WorkQueue,
        make_caller: Callable[[], Caller],
        policy: FailurePolicy,
        observer: Observer,
    ) -> None:
        self._workers = [_Worker(number, queue, make_caller(), policy, observer) for number in range(count)]

    def start(self) -> None:
        for worker in self._workers:
            worker.thread.start()

    def cancel(self) -> None:
        """Interrupts, where possible, the handling of records whose partition was revoked."""
        for worker in self._workers:
            worker.cancel_if_lost()

    def join(self, timeout_s: float) -> None:
        """After the queue was closed. A handler that hangs in a thread does not keep the process alive."""
        for worker in self._workers:
            worker.thread.join(timeout_s)


class _Worker:
    def __init__(
        self, number: int, queue: WorkQueue, caller: Caller, policy: FailurePolicy, observer: Observer
    ) -> None:
        self.thread = threading.Thread(target=self._run, name=f"headrace-worker-{number}", daemon=True)
        self._queue = queue
        self._caller = caller
        self._policy = policy
        self._observer = observer
        self._lock = threading.Lock()
        self._entry: Entry | None = None

    def cancel_if_lost(self) -> None:
        with self._lock:  # so that the current record cannot change
            if self._entry is not None and self._entry.cancelled:
                self._caller.cancel()

    def _run(self) -> None:
        try:
            while (entry := self._queue.take()) is not None:
                self._handle_outcome(entry, self._attempt(entry))
        except BaseException as error:  # noqa: BLE001 - a bug must stop the consumer, not just a worker
            self._queue.halt(error)
        finally:
            self._caller.close()

    def _attempt(self, entry: Entry) -> BaseException | None:
        with self._lock:
            self._entry = _here.entry = entry
        try:
            self._caller.call(_as_attempted(entry))
        except BaseException as error:  # noqa: BLE001 - classified in _handle_outcome
            return error
        finally:
            with self._lock:
                self._entry = _here.entry = None
        return None

    def _handle_outcome(self, entry: Entry, error: BaseException | None) -> None:
        if error is None:
            self._queue.finish(entry)
        elif isinstance(error, FatalError) or not isinstance(error, Exception):
            self._stop_all(entry, error)
        elif entry.cancelled:
            self._queue.abandon(entry)
        elif self._worth_retrying(entry, error):
            self._retry(entry, error)
        else:
            self._give_up(entry, error)

    def _worth_retrying(self, entry: Entry, error: BaseException) -> bool:
        retries = self._policy.retries
        return not isinstance(error, PoisonRecord) and (retries is None or entry.failures < retries)

    def _retry(self, entry: Entry, error: BaseException) -> None:
        record = _as_attempted(entry)
        entry.failures += 1
        delay_ms = self._policy.backoff.delay_ms(entry.failures, random.random())
        if self._queue.retry(entry, delay_ms):
            self._observer.retrying(record, error, delay_ms)

    def _give_up(self, entry: Entry, error: BaseException) -> None:
        record = _as_attempted(entry)
        if self._policy.dead_letters is None:
            self._stop_all(entry, RecordFailed(record, error))
            return
        try:
            self._policy.dead_letters.send(record, error)
        except ClientError as failure:
            self._stop_all(entry, failure)
            return
        self._queue.finish(entry, dead_letter=True)
        self._observer.dead_lettered(record, error)

    def _stop_all(self, entry: Entry, error: BaseException) -> None:
        self._queue.halt(error)  # first: else the lane's next record would begin
        self._queue.abandon(entry)


def _as_attempted(entry: Entry) -> Record:
    return replace(entry.record, attempt=entry.failures + 1) if entry.failures else entry.record
