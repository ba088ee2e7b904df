# SPDX-License-Identifier: Apache-2.0
"""headrace.transform on Apache Kafka and Headrace: every record once, over errors, aborts and kills."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.arrow.transform.transformer import Transformed, TransformFailed
from headrace.client.arrow.write.transaction_session import (
    OutcomeUnknown,
    TransactionFenced,
    TransactionSession,
)
from headrace.client.connection import ConnectionLost
from headrace.client.coordinator import Coordinator
from headrace.client.errors import ClientError
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.wire.api_key import ApiKey
from tests.compat.transaction_nodes import ENGINES, QUICK_TIMEOUTS, transactional_node
from tests.harness.groups.polled_consumers import QUICK_GROUPS
from tests.harness.groups.stream_members import QUICK
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.compat_jvm

WORKER = Path(__file__).with_name("transform_worker.py")
PARTITIONS = 4
RECORDS = 20_000
KILLS = 3
SETTINGS = {**QUICK_GROUPS, **QUICK_TIMEOUTS}
with_both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module", params=ENGINES)
def kafka(
    request: pytest.FixtureRequest, kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("transform")
    with transactional_node(request.param, kafka_engine, folder, SETTINGS) as node:
        yield node.bootstrap


@pytest.fixture
def topics(kafka: str, topic: str) -> tuple[str, str]:
    """Source and target."""
    source, target = f"{topic}-in", f"{topic}-out"
    admin = AdminClient({"bootstrap.servers": kafka})
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (source, target)]).values():
        created.result(30)
    return source, target


@pytest.fixture
def options(kafka: str, topic: str) -> dict[str, Any]:
    return {"bootstrap": kafka, "group": topic, "write": {"partition": "partition"}, **QUICK}


def write(bootstrap: str, topic: str, numbers: range) -> None:
    rows = pa.table({"key": [f"{n % 7}" for n in numbers], "value": [f"{n}" for n in numbers]})
    headrace.write(rows, topic, bootstrap=bootstrap, key="key", partitioner="round_robin", batch_bytes=2000)


def records(bootstrap: str, topic: str) -> list[list[tuple[Any, ...]]]:
    """Committed keys, values and timestamps of each partition, in order."""
    columns = ["key", "value", "timestamp"]
    tables = [
        headrace.read(topic, bootstrap=bootstrap, columns=columns, partitions=[number]).read_all()
        for number in range(PARTITIONS)
    ]
    return [[tuple(row.values()) for row in table.to_pylist()] for table in tables]


def assert_copied(bootstrap: str, source: str, target: str) -> None:
    """Leaders hear of a commit some milliseconds after it returned."""
    wanted = records(bootstrap, source)
    wait_until(
        lambda: sum(map(len, records(bootstrap, target))) >= sum(map(len, wanted)),
        lambda: [len(each) for each in records(bootstrap, target)],
    )
    assert records(bootstrap, target) == wanted


def unchanged(batch: Any) -> Any:
    return batch


class FaultyEnds:
    """Ends of transactions in this process: some are refused, some have an outcome that is not known."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self._chance = random.Random(seed)
        self._end = TransactionSession.end
        self.faults: list[str] = []
        faults = self

        async def end(session: TransactionSession, *, committed: bool) -> None:
            await faults.happen(session, committed)

        monkeypatch.setattr(TransactionSession, "end", end)

    async def happen(self, session: TransactionSession, committed: bool) -> None:
        fault = self._chance.choice(["none"] * 5 + ["refused", "done", "not done"]) if committed else "none"
        if session.transactional_id.endswith("-last"):
            fault = "none"
        if fault != "none":
            self.faults.append(fault)
        if fault == "refused":
            raise ClientError("a fault of this test", code="TRANSACTION_ABORTABLE")
        if fault != "not done":
            await self._end(session, committed=committed)
        if fault != "none":
            raise OutcomeUnknown("a fault of this test")


class FaultyMember:
    """Transforms in a thread of its own; starts again when its function failed."""

    def __init__(self, *arguments: Any, seed: int, **options: Any) -> None:
        self.stopping = threading.Event()
        self.failures: list[TransformFailed] = []
        self.aborted = 0
        self._chance = random.Random(seed)
        self._run_once = lambda: headrace.transform(
            *arguments, self._copy, stop=self.stopping, commit_interval_ms=20, **options
        )
        self._pool = ThreadPoolExecutor(1)
        self._running = self._pool.submit(self._run)

    def stop(self) -> None:
        self.stopping.set()
        self._running.result()
        self._pool.shutdown()

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.aborted += self._run_once().aborted
            except TransformFailed as error:
                self.failures.append(error)

    def _copy(self, batch: Any) -> Any:
        if self._chance.random() < 0.1:
            raise ValueError("this batch is not wanted")
        return pa.Table.from_batches([batch])


class Source:
    """Writes to a topic, some records at a time, as long as it is open, and no fewer than all."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._closing = threading.Event()
        self._arguments = (bootstrap, topic)
        self._pool = ThreadPoolExecutor(1)
        self._running = self._pool.submit(self._run)

    def close(self) -> None:
        self._closing.set()
        self._running.result()
        self._pool.shutdown()

    def _run(self) -> None:
        written = 0
        while written < RECORDS or not self._closing.is_set():
            write(*self._arguments, range(written, written + 500))
            written += 500
            self._closing.wait(0.1)


class Worker:
    """A process that transforms until it is killed."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self.batches = 0
        self._start()

    def kill_after(self, batches: int) -> None:
        assert self._process.stdout is not None
        for _ in range(batches):
            assert self._process.stdout.readline()
            self.batches += 1
        self.stop()

    def again(self, batches: int) -> None:
        self._start()
        self.kill_after(batches)

    def stop(self) -> None:
        with self._process as process:  # closes its pipe
            process.kill()

    def _start(self) -> None:
        command = [sys.executable, str(WORKER), *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@with_both_protocols
def test_a_copy_is_exact_over_errors_aborts_rebalances_and_kills(
    kafka: str,
    topic: str,
    topics: tuple[str, str],
    options: Any,
    protocol: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = topics
    options |= {"protocol": protocol, "budget": 40_000, "transaction_timeout_ms": 4000}
    growing = Source(kafka, source)
    ends = FaultyEnds(monkeypatch, seed=3)
    member = FaultyMember(source, target, seed=4, transactional_id=f"{topic}-faulty", **options)
    worker = Worker(kafka, source, target, topic, protocol)
    try:
        worker.kill_after(5)
        for kill in range(1, KILLS):
            worker.again(3 + kill)
        growing.close()
        headrace.transform(
            source, target, unchanged, until="end", transactional_id=f"{topic}-last", **options
        )
    finally:
        worker.stop()
        growing.close()
        member.stop()
    assert_copied(kafka, source, target)
    assert sum(map(len, records(kafka, target))) >= RECORDS
    assert worker.batches == 5 + 4 + 5
    assert member.failures
    assert set(ends.faults) == {"refused", "done", "not done"}


@with_both_protocols
def test_a_rebalance_aborts_the_open_transaction(
    kafka: str, topic: str, topics: tuple[str, str], options: Any, protocol: Any
) -> None:
    """The first would commit in a minute; the second joins, gets a share, and reads it from the beginning."""
    source, target = topics
    write(kafka, source, range(2000))
    options |= {"protocol": protocol, "budget": 40_000}
    read = threading.Event()
    stop = threading.Event()

    def copy(batch: Any) -> Any:
        read.set()
        return batch

    def run(name: str, **more: Any) -> Transformed:
        return headrace.transform(source, target, copy, transactional_id=f"{topic}-{name}", **more, **options)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run, "first", commit_interval_ms=60_000, commit_records=10**9, stop=stop)
        assert read.wait(30)
        second = pool.submit(run, "second", stop=stop)
        wait_until(
            lambda: first.done() or second.done() or sum(map(len, records(kafka, target))) > 0,
            lambda: "the second commits",
            timeout_s=30,
        )
        stop.set()
        done = [first.result(30), second.result(30)]
    assert done[0].aborted == 1
    assert done[1].read > 0
    headrace.transform(source, target, unchanged, until="end", **options)
    assert_copied(kafka, source, target)


def test_what_a_function_may_return(kafka: str, topic: str, topics: tuple[str, str], options: Any) -> None:
    source, target = topics
    write(kafka, source, range(2000))

    def odd_ones(batch: Any) -> Any:
        rows = [row for row in batch.to_pylist() if int(row["value"]) % 2]
        if batch["partition"].to_pylist()[0] == 0:
            return None
        return pa.table({"key": [row["key"] for row in rows], "value": [int(row["value"]) for row in rows]})

    options |= {"write": {"key": None}, "columns": ["key", "value", "partition"], "budget": 40_000}
    done = headrace.transform(source, target, odd_ones, until="end", value="string", **options)
    assert done.read == 2000
    assert 0 < done.written <= 1000
    assert done.transactions > 0
    copied = headrace.read(target, bootstrap=kafka, value="int64").read_all()
    assert copied["key"].null_count == copied.num_rows == done.written
    assert all(number % 2 for number in copied["value"].to_pylist())
    again = headrace.transform(source, target, odd_ones, until="end", **options)
    assert again == Transformed()


def test_an_error_names_its_records_and_nothing_is_written(
    kafka: str, topics: tuple[str, str], options: Any
) -> None:
    source, target = topics
    rows = pa.table({"value": ["1", "2", "x"], "partition": [2, 2, 2]})
    headrace.write(rows, source, bootstrap=kafka, partition="partition")

    def fail(batch: Any) -> Any:
        raise ValueError("no number")

    where = f"for records of '{source}': partition 2, offsets 0 to 2"
    with pytest.raises(TransformFailed, match=f"raised ValueError: no number, {where}") as raised:
        headrace.transform(source, target, fail, until="end", **options)
    assert (raised.value.topic, raised.value.ranges) == (source, {2: (0, 3)})
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(TransformFailed, match="returned a list, not a RecordBatch, a Table or None"):
        headrace.transform(source, target, lambda batch: batch.to_pylist(), until="end", **options)
    with pytest.raises(TransformFailed, match=r"cannot be written .*no column 'partition'.*offsets 0 to 2"):
        headrace.transform(source, target, lambda batch: batch.select(["key"]), until="end", **options)
    assert sum(map(len, records(kafka, target))) == 0
    headrace.transform(source, target, unchanged, until="end", **options)
    assert_copied(kafka, source, target)


def test_a_newer_member_with_the_same_id_fences_the_older(
    kafka: str, topics: tuple[str, str], options: Any
) -> None:
    source, target = topics
    write(kafka, source, range(100))
    began, go_on = threading.Event(), threading.Event()

    def wait(batch: Any) -> Any:
        began.set()
        go_on.wait(60)
        return batch

    with ThreadPoolExecutor(1) as pool:
        older = pool.submit(headrace.transform, source, target, wait, **options)
        assert began.wait(30)
        newer = headrace.atransaction(options["group"], bootstrap=kafka)
        asyncio.run(open_and_close(newer))
        go_on.set()
        with pytest.raises(TransactionFenced, match=r"give every member .* its own transactional_id"):
            older.result(60)
    headrace.transform(source, target, unchanged, until="end", **options)
    assert_copied(kafka, source, target)


async def open_and_close(transaction: Any) -> None:
    await transaction.begin()
    await transaction.close()


def test_a_commit_without_a_reply_that_is_fenced_then_tells_its_outcome(
    kafka: str, topics: tuple[str, str], options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = topics
    write(kafka, source, range(100))
    call: Callable[..., Any] = Coordinator.call
    lost: list[bool] = []

    async def lose_the_reply(self: Coordinator, api_key: int, *arguments: Any, **more: Any) -> Any:
        reply = await call(self, api_key, *arguments, **more)
        if api_key == ApiKey.END_TXN and not lost:
            lost.append(True)
            await open_and_close(headrace.atransaction(options["group"], bootstrap=kafka))
            raise ConnectionLost("the reply was lost")
        return reply

    monkeypatch.setattr(Coordinator, "call", lose_the_reply)
    with pytest.raises(TransactionFenced, match="its last transaction was committed; give every member"):
        headrace.transform(source, target, unchanged, **options)
    assert headrace.transform(source, target, unchanged, until="end", **options).read < 100
    assert_copied(kafka, source, target)


def test_transform_with_asyncio(kafka: str, topics: tuple[str, str], options: Any) -> None:
    source, target = topics
    write(kafka, source, range(1000))

    async def slowly(batch: Any) -> Any:
        await asyncio.sleep(0)
        return batch

    async def main() -> None:
        done = await headrace.atransform(source, target, slowly, limit=1, budget=40_000, **options)
        assert 1 <= done.read == done.written
        with pytest.raises(TransformFailed, match="ZeroDivisionError"):
            await headrace.atransform(source, target, lambda batch: 1 / 0, **options)
        stop = asyncio.Event()
        running = asyncio.create_task(
            headrace.atransform(source, target, unchanged, stop=stop, commit_interval_ms=10, **options)
        )
        await asyncio.to_thread(assert_copied, kafka, source, target)
        stop.set()
        assert (await running).read == 1000 - done.read

    asyncio.run(main())


def test_a_stop_commits_what_is_open(kafka: str, topics: tuple[str, str], options: Any) -> None:
    source, target = topics
    write(kafka, source, range(100))
    stop = threading.Event()

    def last(batch: Any) -> Any:
        stop.set()
        return batch

    done = headrace.transform(source, target, last, stop=stop, commit_interval_ms=60_000, **options)
    assert (done.transactions, done.aborted) == (1, 0)
    assert done.read == done.written > 0
    headrace.transform(source, target, unchanged, until="end", **options)
    assert_copied(kafka, source, target)
