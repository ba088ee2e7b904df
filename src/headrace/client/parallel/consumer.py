# SPDX-License-Identifier: Apache-2.0
"""`ParallelConsumer`: one group member, many workers, in order per key or partition, at least once (D15).

This thread polls, commits and answers rebalances; the workers (workers.py) take records from the queue
(work_queue.py), which asks the pure scheduler (scheduler.py) what may run. See docs/parallel-consumer.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType

from headrace.client.client_config import connect_with
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.parallel.budget import Budget
from headrace.client.parallel.callers import (
    Caller,
    Executor,
    Handler,
    InProcess,
    InThread,
    check_handler_travels,
)
from headrace.client.parallel.dead_letters import DeadLetters
from headrace.client.parallel.flow_control import Limits, partitions_to_pause
from headrace.client.parallel.member import GroupMember, GroupProtocol, Setting, Start
from headrace.client.parallel.observer import Observer, Stats
from headrace.client.parallel.record import Order
from headrace.client.parallel.signals import stop_on_signals
from headrace.client.parallel.work_queue import WorkQueue
from headrace.client.parallel.workers import FailurePolicy, Workers
from headrace.client.retry import ExponentialBackoff
from headrace.client.tools.admin import Admin
from headrace.types import TopicPartition

_POLL_S = 0.1
_POLL_AT_LEAST_S = 0.2
"""Poll at least this often, also without room for records, so that the member is not removed."""
_BURST = 200
_FLOW_CHECK_INTERVAL_S = 0.05
_JOIN_WORKERS_S = 1.0
_RETRY_JITTER = 0.2
_KNOWN = {
    "order": ("key", "partition", "none"),
    "executor": ("threads", "processes"),
    "protocol": ("cooperative", "eager", "consumer"),
}


class ParallelConsumer:
    """Handles the records of a group's partitions with several workers over one consumer.

    At least once: a record is committed when it and all before it in its partition are finished. A record is
    finished when `handler` has returned, or when its dead letter is acknowledged.

        def handle(record: Record) -> None:
            print(record.key, record.value)

        consumer = ParallelConsumer("localhost:9092", "billing", "orders", handle,
                                    workers=8, order="key", dead_letter="orders-dlq")
        consumer.run()   # until Ctrl-C, SIGTERM or consumer.stop()

    As a context manager it runs in a background thread; leaving the block stops it and raises its error.
    """

    def __init__(
        self,
        bootstrap: str | Cluster | None,
        group: str,
        topics: str | Sequence[str],
        handler: Handler,
        *,
        workers: int = 4,
        order: Order = "key",
        executor: Executor = "threads",
        retries: int | None = 5,
        backoff_ms: int = 100,
        max_backoff_ms: int = 10_000,
        dead_letter: str | None = None,
        start: Start = "earliest",
        protocol: GroupProtocol = "cooperative",
        max_records: int = 1_000,
        max_bytes: int = 64 * 1024 * 1024,
        commit_interval_ms: int = 1_000,
        drain_ms: int = 10_000,
        limit: int | Budget | None = None,
        observer: Observer | None = None,
        settings: Mapping[str, Setting] | None = None,
        config: str | None = None,
    ) -> None:
        """Nothing is connected before `run`. `bootstrap`: None as in `headrace.read`.

        `order`: records of the same key, or of the same partition, are handled one after another ("none": in
        any order). Records without a key have no order under "key".
        `executor`: with "processes" the handler must be importable; pure Python code gains from more cores.
        `retries`: how often a failed record is retried, None without limit; only its
        key waits meanwhile. Then it goes to topic `dead_letter`; without one `run` ends with RecordFailed.
        `start`: where a group begins that has committed nothing.
        `max_records`, `max_bytes`: limits of records in memory; librdkafka buffers as much again.
        `drain_ms`: how long records that are being handled may take when their partition is revoked or the
        consumer stops; after that the next owner handles them again.
        `limit`: stop after so many records. `settings`: further settings of librdkafka.
        `config`: a properties file with TLS and login; without one that of HEADRACE_CLIENT_CONFIG.
        """
        for name, count in (("workers", workers), ("max_records", max_records), ("max_bytes", max_bytes)):
            _check_at_least(name, count, 1)
        for name, choice in (("order", order), ("executor", executor), ("protocol", protocol)):
            _check_known(name, choice)
        if executor == "processes":
            check_handler_travels(handler)
        self._bootstrap = connect_with(bootstrap, config)
        self._group = group
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._handler = handler
        self._worker_count = workers
        self._executor = executor
        self._retries = retries
        self._backoff = ExponentialBackoff(first_ms=backoff_ms, max_ms=max_backoff_ms, jitter=_RETRY_JITTER)
        self._dead_letter = dead_letter
        self._start_at: Start = start
        self._protocol: GroupProtocol = protocol
        self._limits = Limits(records=max_records, bytes=max_bytes, ahead=max(10 * max_records, 10_000))
        self._commit_interval_s = commit_interval_ms / 1000
        self._drain_s = drain_ms / 1000
        self._budget = Budget(limit) if isinstance(limit, int) else limit
        self._observer = observer or Observer()
        self._settings = dict(settings or {})
        self._queue = WorkQueue(order, self._limits, self._budget)
        self._stop_asked = False
        self._paused: set[TopicPartition] = set()
        self._member: GroupMember | None = None
        self._workers: Workers | None = None
        self._thread: threading.Thread | None = None
        self._raised: BaseException | None = None

    # -- the user's side -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Works until `stop`, SIGINT or SIGTERM (in the main thread), the limit, or an error: that is raised.

        Returns when what was being handled is finished, its offsets are committed and the group is left.
        """
        if self._member is not None:
            raise ClientError("a ParallelConsumer runs once", next_step="make a new one")
        with stop_on_signals(self.stop):
            dead_letters = self._open()
            try:
                self._loop()
            finally:
                self._close(dead_letters)
        if self._queue.error is not None:
            raise self._queue.error

    def stop(self) -> None:
        """Makes `run` end; from any thread, a handler or a signal handler."""
        self._stop_asked = True

    def stats(self) -> Stats:
        counts, member = self._queue.counts, self._member
        records, held_bytes = self._queue.held
        partitions = self._queue.partitions
        return Stats(
            received=counts.received,
            finished=counts.finished,
            retried=counts.retried,
            dead_lettered=counts.dead_lettered,
            dropped=counts.dropped,
            in_flight=records,
            in_flight_bytes=held_bytes,
            running=self._queue.running,
            partitions=tuple(partitions),
            paused=tuple(sorted(self._paused)),
            committed={} if member is None else dict(member.committed),
            at_end=member is not None and records == 0 and member.ended.issuperset(partitions),
        )

    def __enter__(self) -> ParallelConsumer:
        self._thread = threading.Thread(target=self._run_aside, name="headrace-consumer", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.wait()
        if error is None and self._raised is not None:
            raise self._raised

    def wait(self, timeout_s: float | None = None) -> bool:
        """As a context manager: waits until it ends by itself. True when it has."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run_aside(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that leaves the block
            self._raised = error

    # -- the polling thread --------------------------------------------------------------------------------

    def _open(self) -> DeadLetters | None:
        admin = Admin(self._bootstrap)
        for topic in self._topics:
            if not topic.startswith("^"):  # an expression may match nothing yet
                admin.describe_topic(topic)
        dead_letters = None
        if self._dead_letter is not None:
            dead_letters = DeadLetters(self._bootstrap, self._dead_letter, self._group)
        policy = FailurePolicy(retries=self._retries, backoff=self._backoff, dead_letters=dead_letters)
        self._workers = Workers(self._worker_count, self._queue, self._make_caller, policy, self._observer)
        self._member = GroupMember(
            self._bootstrap,
            self._group,
            self._topics,
            self,
            protocol=self._protocol,
            start=self._start_at,
            prefetch_bytes=self._limits.bytes,
            settings=self._settings,
        )
        self._workers.start()
        return dead_letters

    def _make_caller(self) -> Caller:
        return InProcess(self._handler) if self._executor == "processes" else InThread(self._handler)

    def _loop(self) -> None:
        member = self._joined
        check_at = commit_at = 0.0
        while not self._ending:
            now = time.monotonic()
            if now >= check_at:
                self._pause_and_resume(stuck=False)
                check_at = now + _FLOW_CHECK_INTERVAL_S
            if now >= commit_at:
                member.commit(self._queue.positions())
                commit_at = now + self._commit_interval_s
            if not self._queue.wait_for_room(0 if self._paused else _POLL_AT_LEAST_S):
                self._pause_and_resume(stuck=True)
            self._take_some()

    @property
    def _ending(self) -> bool:
        spent = self._budget is not None and self._budget.spent
        return self._stop_asked or spent or self._queue.error is not None

    def _take_some(self) -> None:
        timeout_s = _POLL_S
        for _ in range(_BURST):
            record = self._joined.poll(timeout_s)
            if record is None:
                return
            self._queue.add(record)
            if self._queue.full:
                return
            timeout_s = 0

    def _pause_and_resume(self, *, stuck: bool) -> None:
        """Pauses and resumes partitions; `stuck`: without room for a while, so buffers may be dropped."""
        loads, full = self._queue.loads()
        if full and not stuck and not self._paused:
            return
        wanted = partitions_to_pause(loads, self._paused, self._limits, full=full)
        if to_pause := wanted - self._paused:
            self._joined.pause(to_pause)
        if to_resume := self._paused - wanted:
            self._joined.resume(to_resume)
        self._paused = wanted

    def _close(self, dead_letters: DeadLetters | None) -> None:
        """Finishes running records, commits, leaves the group."""
        partitions = self._queue.partitions
        self._queue.begin_end(partitions)
        try:
            self._finish_running(partitions)
            self._joined.commit_last(self._queue.positions, self._drain_s)
        finally:
            self._queue.end(self._queue.partitions)
            self._queue.close()
            self._team.cancel()
            self._joined.close()
            self._team.join(_JOIN_WORKERS_S)
            if dead_letters is not None:
                dead_letters.close()

    def _finish_running(self, partitions: Collection[TopicPartition]) -> None:
        if self._queue.idle(partitions):
            return
        self._joined.pause(partitions)
        deadline = time.monotonic() + self._drain_s
        while not self._queue.idle(partitions) and time.monotonic() < deadline:
            self._joined.poll(_POLL_S / 2)  # rebalances continue

    @property
    def _joined(self) -> GroupMember:
        assert self._member is not None
        return self._member

    @property
    def _team(self) -> Workers:
        assert self._workers is not None
        return self._workers

    # -- rebalances (member.Listener) ----------------------------------------------------------------------

    def partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._queue.assign(partitions)
        if self._queue.full:
            self._joined.pause(partitions)
            self._paused |= set(partitions)
        else:
            self._joined.resume(partitions)  # librdkafka remembers a pause from before it lost them
        self._observer.assigned(sorted(partitions))

    def partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Owned until this returns: running records may finish and are committed, the rest is dropped."""
        self._queue.begin_end(partitions)
        unfinished = self._queue.wait_until_idle(partitions, self._drain_s)
        positions = self._queue.positions()
        self._joined.commit_now({part: positions[part] for part in partitions if part in positions})
        self._forget(partitions)
        self._observer.revoked(sorted(partitions), unfinished=unfinished)

    def partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Other members may own them already: nothing is committed."""
        self._forget(partitions)
        self._observer.lost(sorted(partitions))

    def offsets_committed(self, offsets: dict[TopicPartition, int]) -> None:
        self._observer.committed(offsets)

    def trouble(self, text: str) -> None:
        self._observer.trouble(text)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        self._queue.end(partitions)
        self._team.cancel()
        self._paused -= set(partitions)


def _check_known(name: str, choice: str) -> None:
    known = _KNOWN[name]
    if choice not in known:
        raise ClientError(f"{name} {choice!r} is none of {', '.join(known)}")


def _check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ClientError(f"{name} must be at least {least}, not {value}")
