# SPDX-License-Identifier: Apache-2.0
"""Workers of the parallel consumer without a broker: order, retries, dead letters, cancelling, processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from headrace.client.errors import ClientError
from headrace.client.parallel import (
    Budget,
    FatalError,
    Observer,
    Order,
    ParallelConsumer,
    PoisonRecord,
    Record,
    RecordFailed,
    cancelled,
)
from headrace.client.parallel.callers import InProcess, InThread
from headrace.client.parallel.dead_letters import dead_letter_headers
from headrace.client.parallel.flow_control import Limits
from headrace.client.parallel.record import RemoteError
from headrace.client.parallel.work_queue import WorkQueue
from headrace.client.parallel.workers import FailurePolicy, Workers
from headrace.client.retry import ExponentialBackoff
from headrace.types import TopicPartition
from tests.harness.waiting import wait_until

PARTITION = TopicPartition("orders", 0)
WAIT_S = 20


def record(offset: int, key: bytes | None = b"k", value: bytes | None = b"v") -> Record:
    return Record(
        topic="orders",
        partition=0,
        offset=offset,
        timestamp_ms=1,
        append_time=False,
        key=key,
        value=value,
        headers=(("h", b"1"),),
    )


class Letters:
    def __init__(self, failure: ClientError | None = None) -> None:
        self.sent: list[tuple[Record, BaseException]] = []
        self._failure = failure

    def send(self, record: Record, error: BaseException) -> None:
        if self._failure:
            raise self._failure
        self.sent.append((record, error))


class Team:
    """A queue with workers on it, fed by hand."""

    def __init__(
        self,
        handler: Callable[[Record], object],
        *,
        workers: int = 4,
        order: Order = "key",
        retries: int | None = 2,
        letters: Letters | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.queue = WorkQueue(order, Limits(), budget)
        self.queue.assign([PARTITION])
        backoff = ExponentialBackoff(first_ms=20, max_ms=20, jitter=0.2)
        policy = FailurePolicy(retries=retries, backoff=backoff, dead_letters=letters)
        self.workers = Workers(workers, self.queue, lambda: InThread(handler), policy, Observer())
        self.workers.start()

    def add(self, *records: Record) -> None:
        for one in records:
            self.queue.add(one)

    def wait(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, lambda: (self.queue.counts, self.queue.error), timeout_s=WAIT_S, poll_s=0.002)

    def position(self) -> int | None:
        return self.queue.positions().get(PARTITION)


@contextmanager
def team(handler: Callable[[Record], object], **options: object) -> Iterator[Team]:
    one = Team(handler, **options)  # type: ignore[arg-type]
    try:
        yield one
    finally:
        one.queue.close()
        one.workers.join(WAIT_S)


def test_a_key_is_handled_in_order_while_others_overtake_it():
    order: list[tuple[bytes | None, int]] = []
    release = threading.Event()

    def handle(one: Record) -> None:
        if one.offset == 0:
            release.wait(WAIT_S)
        order.append((one.key, one.offset))

    with team(handle) as four:
        four.add(*(record(offset, key=b"ab"[offset % 2 :][:1]) for offset in range(10)))
        four.wait(lambda: len(order) == 5)
        assert order == [(b"b", offset) for offset in range(1, 10, 2)]
        assert four.position() is None, "the first record is not finished"
        release.set()
        four.wait(lambda: four.position() == 10)
    assert [offset for key, offset in order if key == b"a"] == list(range(0, 10, 2))


def test_a_retry_holds_back_its_own_key_only_and_counts_its_attempts():
    seen: list[tuple[int, int]] = []

    def handle(one: Record) -> None:
        seen.append((one.offset, one.attempt))
        if one.offset == 0 and one.attempt < 3:
            raise OSError("not yet")

    with team(handle) as four:
        four.add(record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, None))
        four.wait(lambda: four.position() == 4)
        assert four.queue.counts.retried == 2
    assert [item for item in seen if item[0] < 2] == [(0, 1), (0, 2), (0, 3), (1, 1)]
    assert seen.index((2, 1)) < seen.index((0, 2))


def test_a_record_out_of_retries_becomes_a_dead_letter():
    letters = Letters()

    def handle(one: Record) -> None:
        if one.offset == 0:
            raise ValueError("bad")
        if one.offset == 1:
            raise PoisonRecord("never")

    with team(handle, letters=letters, retries=1, order="partition") as four:
        four.add(record(0), record(1), record(2))
        four.wait(lambda: four.position() == 3)
        assert four.queue.counts.dead_lettered == 2
    assert [(one.offset, one.attempt) for one, _ in letters.sent] == [(0, 2), (1, 1)]
    headers = dict(dead_letter_headers(*letters.sent[0], group="g"))
    assert headers == {
        "h": b"1",
        "headrace.topic": b"orders",
        "headrace.partition": b"0",
        "headrace.offset": b"0",
        "headrace.timestamp": b"1",
        "headrace.group": b"g",
        "headrace.attempts": b"2",
        "headrace.error": b"ValueError: bad",
    }


@pytest.mark.parametrize(
    ("letters", "error", "expected"),
    [
        (None, ValueError("bad"), RecordFailed),
        (Letters(ClientError("no disk")), ValueError("bad"), ClientError),
        (Letters(), FatalError("the database is gone"), FatalError),
        (Letters(), SystemExit(3), SystemExit),
    ],
)
def test_a_fatal_error_stops_all_workers_and_handles_nothing_more(letters, error, expected):
    handled: list[int] = []

    def handle(one: Record) -> None:
        handled.append(one.offset)
        if one.offset == 1:
            raise error

    with team(handle, letters=letters, retries=0) as four:
        four.add(*(record(offset) for offset in range(5)))
        four.wait(lambda: four.queue.error is not None)
        assert isinstance(four.queue.error, expected)
        four.wait(lambda: four.queue.running == 0)
        assert four.position() == 1
    assert handled == [0, 1]


def test_a_revoked_partition_finishes_what_runs_and_a_lost_one_does_not_count():
    release = threading.Event()
    told: list[bool] = []

    def handle(_: Record) -> None:
        release.wait(WAIT_S)
        told.append(cancelled())

    with team(handle, workers=1) as one:
        one.add(record(0), record(1))
        one.wait(lambda: one.queue.running == 1)
        one.queue.begin_end([PARTITION])
        assert one.queue.wait_until_idle([PARTITION], 0.01) == 1
        release.set()
        assert one.queue.wait_until_idle([PARTITION], WAIT_S) == 0
        assert one.position() == 1, "what ran is finished, what waited is dropped"
        assert one.queue.held == (0, 0)
        one.queue.end([PARTITION])

        release.clear()
        one.queue.assign([PARTITION])
        one.add(record(1), record(2))
        one.wait(lambda: one.queue.running == 1)
        one.queue.end([PARTITION])
        one.queue.assign([PARTITION])
        one.add(record(1))
        assert one.queue.running == 1, "the same key waits for the one that is still handled"
        release.set()
        one.wait(lambda: one.position() == 2)
        assert one.queue.counts.dropped == 1
    assert told == [False, True, False]


def test_a_failure_in_a_revoked_partition_is_not_tried_again():
    release = threading.Event()
    attempts: list[int] = []

    def handle(one: Record) -> None:
        attempts.append(one.attempt)
        release.wait(WAIT_S)
        raise ValueError

    with team(handle, workers=1, retries=None) as one:
        one.add(record(0))
        one.wait(lambda: one.queue.running == 1)
        one.queue.begin_end([PARTITION])
        release.set()
        assert one.queue.wait_until_idle([PARTITION], WAIT_S) == 0
        assert one.position() is None
        assert one.queue.held == (0, 0)
    assert attempts == [1]


def test_a_revoked_partition_fills_the_gaps_before_what_was_done_already():
    release = threading.Event()
    handled: list[int] = []

    def handle(one: Record) -> None:
        if one.offset == 0:
            release.wait(WAIT_S)
        handled.append(one.offset)

    with team(handle, workers=2) as two:
        two.add(record(0, b"a"), record(1, b"a"), record(2, b"b"))
        two.wait(lambda: handled == [2])
        two.queue.begin_end([PARTITION])
        two.add(record(3, b"b"))
        release.set()
        assert two.queue.wait_until_idle([PARTITION], WAIT_S) == 0
        assert two.position() == 3, "1 was handled too, so that 2 need not be handled again"
    assert handled == [2, 0, 1]


def test_a_budget_is_spent_by_finished_records_also_after_retries():
    budget = Budget(3)
    handled: list[int] = []

    def handle(one: Record) -> None:
        handled.append(one.offset)
        if one.attempt == 1:
            raise ValueError

    with team(handle, budget=budget, workers=2, order="none") as two:
        two.add(*(record(offset) for offset in range(6)))
        two.wait(lambda: budget.spent)
        assert two.queue.running == 0
    assert sorted(handled) == [0, 0, 1, 1, 2, 2]


def test_delays_double_up_to_their_limit_and_jitter_only_shortens():
    backoff = ExponentialBackoff(first_ms=100, max_ms=1_000, jitter=0.2)
    assert [backoff.delay_ms(failures, 0.0) for failures in range(1, 7)] == [100, 200, 400, 800, 1000, 1000]
    assert backoff.delay_ms(10_000, 0.0) == 1_000
    assert all(later >= sooner for sooner, later in pairwise(backoff.delay_ms(n, 0.5) for n in range(1, 9)))
    assert 80 <= backoff.delay_ms(1, 0.999) < 100


# -- processes ---------------------------------------------------------------------------------------------


def in_a_child(one: Record) -> None:
    """Runs in a worker process: what the value says."""
    match one.value:
        case b"die":
            os._exit(7)
        case b"fail":
            raise ValueError("no good")
        case b"poison":
            raise PoisonRecord("never")
        case b"fatal":
            raise FatalError("gone")
        case b"hang":
            time.sleep(WAIT_S)  # until it is cancelled


@pytest.mark.timeout(120)
def test_a_worker_process_answers_dies_is_cancelled_and_is_replaced():
    child = InProcess(in_a_child)
    child.call(record(0))
    for value, kind, text in (
        (b"fail", RemoteError, "ValueError: no good"),
        (b"poison", PoisonRecord, "never"),
        (b"fatal", FatalError, "gone"),
        (b"die", RemoteError, "ended with exit code 7"),
    ):
        with pytest.raises(kind, match=text):
            child.call(record(1, value=value))
    child.call(record(2))
    killer = threading.Timer(0.2, child.cancel)
    killer.start()
    with pytest.raises(RemoteError, match="-9"):
        child.call(record(3, value=b"hang"))
    child.call(record(4))
    child.close()
    child.close()


def test_a_handler_that_cannot_travel_is_refused_before_anything_starts():
    with pytest.raises(ClientError, match="cannot be sent to worker processes"):
        ParallelConsumer("localhost:1", "g", "t", lambda record: None, executor="processes")


def test_a_script_without_a_guard_does_not_join_twice(monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ClientError, match="if __name__ == '__main__'"):
        ParallelConsumer("localhost:1", "g", "t", in_a_child, executor="processes")


@pytest.mark.parametrize(
    "options",
    [{"workers": 0}, {"order": "time"}, {"executor": "magic"}, {"protocol": "x"}, {"max_records": 0}],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ClientError):
        ParallelConsumer("localhost:1", "g", "t", print, **options)
