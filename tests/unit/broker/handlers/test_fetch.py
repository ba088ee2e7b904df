# SPDX-License-Identifier: Apache-2.0
"""Fetch on a whole node: waiting, limits, what ends a wait, and what a reply may hold."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from headrace.broker.handlers import fetch as fetch_module
from headrace.broker.partition.partition import Partition
from headrace.errors import CorruptLogError
from headrace.log.producers.markers import EndTransactionMarker
from headrace.wire.error_codes import ErrorCode
from tests.harness.batches.log_tools import Producer
from tests.harness.broker.simulated_node import (
    FETCH,
    FETCH_VERSION,
    TOPIC,
    SimBroker,
    directory_of,
    fetch_fields,
    on_a_node,
)
from tests.harness.simulation.clients import SimConnection, records_in

HUNDRED = b"x" * 100
BATCH_BYTES = 61 + 100 + 3 + 10
"""About what one record of 100 bytes takes."""


async def waiting_fetch(node: SimBroker, **options: Any) -> tuple[SimConnection, asyncio.Future[Any]]:
    """A fetch that is under way and waits."""
    connection = await node.connect()
    reply = connection.send(FETCH, fetch_fields(**options), version=FETCH_VERSION)
    await asyncio.sleep(0.1)
    assert not reply.done()
    return connection, reply


def first_part(reply: Any) -> Any:
    return reply.responses[0].partitions[0]


def now(node: SimBroker) -> float:
    return node.clients.clock.monotonic()


# Waiting


def test_a_fetch_waits_for_new_bytes_and_counts_only_those() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        for _ in range(10):
            await node.produce(HUNDRED)
        _, reply = await waiting_fetch(node, offset=10, min_bytes=3 * BATCH_BYTES, max_wait_ms=60_000)
        await node.produce(HUNDRED)
        await node.produce(HUNDRED)
        await asyncio.sleep(1)
        assert not reply.done()
        await node.produce(HUNDRED)
        part = first_part(await reply)
        assert len(list(records_in(part.records))) == 3

    on_a_node(scenario)


def test_a_fetch_whose_time_is_up_gets_what_there_is() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(HUNDRED)
        began = now(node)
        part = await node.fetch(0, min_bytes=1 << 20, max_wait_ms=3000)
        assert 2.9 < now(node) - began < 3.5
        assert len(list(records_in(part.records))) == 1

    on_a_node(scenario)


@pytest.mark.parametrize("options", [{"max_wait_ms": 0}, {"min_bytes": 0, "max_wait_ms": 60_000}])
def test_a_fetch_that_does_not_want_to_wait_is_answered_at_once(options: dict[str, int]) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        began = now(node)
        part = await node.fetch(0, **options)
        assert not part.records
        assert now(node) - began < 0.5

    on_a_node(scenario)


def test_a_fetch_of_nothing_does_not_wait() -> None:
    async def scenario(node: SimBroker) -> None:
        fields = {**fetch_fields(max_wait_ms=60_000), "topics": []}
        connection = await node.connect()
        began = now(node)
        reply = await connection.call(FETCH, fields, version=FETCH_VERSION)
        assert reply.responses == ()
        assert now(node) - began < 0.5

    on_a_node(scenario)


def test_a_fetch_does_not_wait_when_the_next_segment_has_records() -> None:
    """A reply holds a slice of one segment; the rest of the bytes asked for is there already."""

    async def scenario(node: SimBroker) -> None:
        await node.create(segment_ms="10")
        await node.produce(HUNDRED)
        await asyncio.sleep(5)
        await node.produce(HUNDRED)
        await node.produce(HUNDRED)
        assert node.partition().log.segment_count > 1
        began = now(node)
        part = await node.fetch(0, min_bytes=2 * BATCH_BYTES, max_wait_ms=60_000)
        assert now(node) - began < 0.5
        assert len(list(records_in(part.records))) == 1

    on_a_node(scenario)


def test_nobody_waits_for_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "LONGEST_WAIT_MS", 5_000)

    async def scenario(node: SimBroker) -> None:
        await node.create()
        _, reply = await waiting_fetch(node, max_wait_ms=2**31 - 1)
        await asyncio.sleep(6)
        assert reply.done()

    on_a_node(scenario)


def test_a_client_that_dies_while_it_waits_leaves_nothing_behind() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        connection, _ = await waiting_fetch(node, max_wait_ms=60_000)
        assert len(node.partition().commits._fetch_waiters) == 1
        connection.abort()
        await asyncio.sleep(1)
        assert not node.partition().commits._fetch_waiters
        await node.produce(HUNDRED)
        await asyncio.sleep(1)
        assert node.broker.metrics.connections == 0

    on_a_node(scenario)


# What ends a wait


def test_a_waiting_fetch_is_answered_when_its_topic_is_deleted() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        _, reply = await waiting_fetch(node, max_wait_ms=60_000)
        began = now(node)
        await node.delete()
        assert first_part(await reply).error_code == ErrorCode.unknown_topic_or_partition
        assert now(node) - began < 1

    on_a_node(scenario)


def test_waiting_fetches_are_answered_when_a_partition_goes_offline() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        _, reply = await waiting_fetch(node, max_wait_ms=60_000)
        node.partition().take_offline()
        assert first_part(await reply).error_code == ErrorCode.kafka_storage_error

    on_a_node(scenario)


def test_a_wait_over_two_partitions_is_ended_once_by_both() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        both = [(TOPIC, 0, 0), (TOPIC, 1, 0)]
        connection, reply = await waiting_fetch(node, partitions=both, max_wait_ms=60_000)
        for index in (0, 1):
            node.partition(index=index).take_offline()
        codes = {part.error_code for part in (await reply).responses[0].partitions}
        assert ErrorCode.kafka_storage_error in codes
        again = await connection.call(
            FETCH, fetch_fields(partitions=both, max_wait_ms=0), version=FETCH_VERSION
        )
        assert [part.error_code for part in again.responses[0].partitions] == [56, 56]

    on_a_node(scenario)


def test_a_topic_that_is_named_twice_gets_the_records_of_each_partition() -> None:
    """librdkafka lists partitions in the order it reads them in: topics alternate."""

    async def scenario(node: SimBroker) -> None:
        places = [(TOPIC, 1), ("other", 0), (TOPIC, 0)]
        await node.create(partitions=2)
        await node.create("other")
        for number, (name, index) in enumerate(places):
            await node.produce(b"x" * (10 + number), name=name, index=index)
        fields = fetch_fields()
        fields["topics"] = [fetch_fields(name=name, index=index)["topics"][0] for name, index in places]
        reply = await (await node.connect()).call(FETCH, fields, version=FETCH_VERSION)
        found = [
            (topic.topic, part.partition_index, len(record.value or b""))
            for topic in reply.responses
            for part in topic.partitions
            for record in records_in(part.records)
        ]
        assert found == [(TOPIC, 1, 10), ("other", 0, 11), (TOPIC, 0, 12)]

    on_a_node(scenario)


# Limits


def test_the_first_batch_is_returned_although_it_is_larger_than_everything_allowed() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        await node.produce(b"y" * 5000)
        await node.produce(b"z" * 5000, index=1)
        connection = await node.connect()
        fields = fetch_fields(partitions=[(TOPIC, 0, 0), (TOPIC, 1, 0)], max_bytes=10, partition_max_bytes=10)
        reply = await connection.call(FETCH, fields, version=FETCH_VERSION)
        sizes = [len(part.records or b"") for part in reply.responses[0].partitions]
        assert sizes[0] > 5000
        assert sizes[1] == 0

    on_a_node(scenario)


@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
def test_senseless_limits_mean_one_batch(limit: int) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(HUNDRED)
        await node.produce(HUNDRED)
        part = await node.fetch(0, max_bytes=limit, partition_max_bytes=limit)
        assert len(list(records_in(part.records))) == 1

    on_a_node(scenario)


def test_a_reply_does_not_keep_more_files_open_than_the_node_can_spare() -> None:
    async def scenario(node: SimBroker) -> None:
        pool = node.broker.partitions._descriptors
        pool.limit = 40
        await node.create(partitions=150)
        for index in range(150):
            await node.produce(HUNDRED, index=index, acks=1)
        connection = await node.connect()
        wanted = [(TOPIC, index, 0) for index in range(150)]
        seen = 0
        for _ in range(50):
            fields = fetch_fields(partitions=wanted, max_wait_ms=10_000)
            reply = await connection.call(FETCH, fields, version=FETCH_VERSION)
            parts = reply.responses[0].partitions
            got = {part.partition_index for part in parts if part.records}
            assert 0 < len(got) <= 10
            assert pool.open_count <= 41
            seen += len(got)
            wanted = [each for each in wanted if each[1] not in got]
            if not wanted:
                break
        assert seen == 150
        assert pool.pinned_count == 0

    on_a_node(scenario, settings={"headrace.flush.default": "os"})


def test_when_many_files_are_kept_open_a_reply_gets_one() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=3)
        for index in range(3):
            await node.produce(HUNDRED, index=index)
        node.broker.partitions._descriptors.pinned_count += 10_000
        connection = await node.connect()
        fields = fetch_fields(partitions=[(TOPIC, index, 0) for index in range(3)])
        reply = await connection.call(FETCH, fields, version=FETCH_VERSION)
        assert [bool(part.records) for part in reply.responses[0].partitions] == [True, False, False]

    on_a_node(scenario)


# Faults


def test_a_log_that_cannot_be_read_goes_offline_and_the_others_are_served(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        for index in (0, 1):
            await node.produce(HUNDRED, index=index)

        def rotten(*_: object, **__: object) -> None:
            raise CorruptLogError("bit rot at 17")

        monkeypatch.setattr(node.partition().log, "read", rotten)
        connection = await node.connect()
        fields = fetch_fields(partitions=[(TOPIC, 0, 0), (TOPIC, 1, 0)], max_wait_ms=10_000)
        for _ in range(3):
            reply = await connection.call(FETCH, fields, version=FETCH_VERSION)
            first, second = reply.responses[0].partitions
            assert first.error_code == ErrorCode.kafka_storage_error
            assert second.records
        assert node.broker.failure is None

    on_a_node(scenario)
    lines = [message for message in caplog.messages if "bit rot" in message]
    assert lines == ["t-0 goes offline: bit rot at 17"]


def test_a_lack_of_descriptors_is_an_error_that_passes() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(HUNDRED)
        pool = node.broker.partitions._descriptors
        for pooled in list(pool._open):
            pool.close(pooled)
        node.files.errors["open"] = OSError(errno.EMFILE, "too many open files")
        assert (await node.fetch(0)).error_code == ErrorCode.kafka_storage_error
        node.files.errors.clear()
        assert await node.values() == [HUNDRED]

    on_a_node(scenario)


def test_an_unexpected_error_closes_one_connection_and_releases_its_files(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        await node.produce(HUNDRED)
        await node.produce(HUNDRED, index=1)
        usual = Partition.check_leader_epoch

        def surprise(self: Partition, epoch: int) -> None:
            if self.topic_partition.partition == 1:
                raise ZeroDivisionError
            usual(self, epoch)

        monkeypatch.setattr(Partition, "check_leader_epoch", surprise)
        connection = await node.connect()
        fields = fetch_fields(partitions=[(TOPIC, 0, 0), (TOPIC, 1, 0)])
        connection.send(FETCH, fields, version=FETCH_VERSION)
        await asyncio.sleep(1)
        assert not connection.is_open
        assert node.broker.partitions._descriptors.pinned_count == 0
        assert await node.values() == [HUNDRED]

    on_a_node(scenario)
    assert sum(record.exc_info is not None for record in caplog.records) == 1


# What is told


def test_read_committed_gets_the_last_stable_offset_and_no_aborted_transactions() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(HUNDRED, HUNDRED)
        part = await node.fetch(0, isolation_level=1)
        assert part.last_stable_offset == part.high_watermark == 2
        assert part.aborted_transactions == ()

    on_a_node(scenario)


def transactional(node: SimBroker, producer: Producer) -> None:
    """Appends a batch of a transaction that was verified."""
    partition = node.partition()
    view, _ = producer.batch(HUNDRED, is_transactional=True, timestamp=node.clients.clock.wall_ms())
    guard = partition.begin_verification(view, 0, begins_at_zero=False)
    partition.append(view, 0, len(view), guard=guard)


def end_transaction(node: SimBroker, producer: Producer, *, commits: bool) -> None:
    node.partition().append_marker(
        EndTransactionMarker(commits=commits, coordinator_epoch=0),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_version=1,
    )


@pytest.mark.parametrize("version", [11, 12])
def test_read_committed_gets_the_aborted_transactions_of_its_records(version: int) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        first, second = Producer(71), Producer(72)
        transactional(node, first)
        transactional(node, second)
        end_transaction(node, second, commits=False)
        end_transaction(node, first, commits=True)
        await asyncio.sleep(1)
        connection = await node.connect()
        for isolation_level, expected in ((1, [(72, 1)]), (0, None)):
            fields = fetch_fields(isolation_level=isolation_level)
            part = first_part(await connection.call(FETCH, fields, version=version))
            told = part.aborted_transactions
            found = None if told is None else [(each.producer_id, each.first_offset) for each in told]
            assert (found, part.last_stable_offset, part.high_watermark) == (expected, 4, 4)

    on_a_node(scenario)


@pytest.mark.parametrize("commits", [True, False])
def test_read_committed_waits_for_the_end_of_a_transaction(commits: bool) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        producer = Producer(71)
        transactional(node, producer)
        await asyncio.sleep(1)
        _, reply = await waiting_fetch(node, isolation_level=1, min_bytes=1, max_wait_ms=60_000)
        transactional(node, producer)
        await node.produce(HUNDRED)
        await asyncio.sleep(1)
        assert not reply.done(), "nothing below the last stable offset is new"
        end_transaction(node, producer, commits=commits)
        part = first_part(await reply)
        assert part.last_stable_offset == 4
        assert len(part.aborted_transactions) == (0 if commits else 1)

    on_a_node(scenario)


def test_a_session_goes_on_over_a_topic_that_is_deleted_and_made_again() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.create("other")
        connection = await node.connect()
        fields = fetch_fields(partitions=[(TOPIC, 0, 0), ("other", 0, 0)], session_epoch=0, max_wait_ms=0)
        reply = await connection.call(FETCH, fields, version=FETCH_VERSION)
        session = reply.session_id
        assert session > 0
        await node.delete()
        codes: list[int] = []
        for epoch in (1, 2):
            fields = {**fetch_fields(session_id=session, session_epoch=epoch, max_wait_ms=0), "topics": []}
            reply = await connection.call(FETCH, fields, version=FETCH_VERSION)
            codes += [part.error_code for topic in reply.responses for part in topic.partitions]
        assert set(codes) == {ErrorCode.unknown_topic_or_partition}
        await node.create()
        await node.produce(HUNDRED)
        fields = {**fetch_fields(session_id=session, session_epoch=3, max_wait_ms=0), "topics": []}
        reply = await connection.call(FETCH, fields, version=FETCH_VERSION)
        (topic,) = reply.responses
        assert topic.partitions[0].records

    on_a_node(scenario)


def test_records_being_sent_outlive_their_topic() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        for _ in range(20):
            await node.produce(b"v" * 50_000)
        connection = await node.connect()
        connection.pause_reading()
        reply = connection.send(FETCH, fetch_fields(max_bytes=1 << 20), version=FETCH_VERSION)
        await asyncio.sleep(1)
        await node.delete()
        await asyncio.sleep(1)
        assert not node.files.exists(directory_of())
        connection.resume_reading()
        part = first_part(await reply)
        assert len(list(records_in(part.records))) == 20
        await asyncio.sleep(1)
        assert node.broker.partitions._descriptors.open_count == 0

    on_a_node(scenario)


# Many partitions, and what is not in memory


def many(count: int, offset: int = 0) -> list[tuple[str, int, int]]:
    return [(TOPIC, index, offset) for index in range(count)]


def test_a_fetch_over_many_partitions_waits_and_wakes_like_any_other() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=700)
        _, reply = await waiting_fetch(node, partitions=many(700), max_wait_ms=60_000)
        began = now(node)
        await node.produce(HUNDRED, index=650)
        parts = (await reply).responses[0].partitions
        assert now(node) - began < 2
        assert len(parts) == 700
        assert [part.partition_index for part in parts if part.records] == [650]
        assert node.broker.partitions._descriptors.pinned_count == 0

    on_a_node(scenario)


def test_a_fetch_over_many_partitions_whose_time_is_up_is_answered() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=700)
        connection, reply = await waiting_fetch(node, partitions=many(700), max_wait_ms=3000)
        began = now(node)
        await reply
        assert 2 < now(node) - began < 4
        again = await connection.call(FETCH, fetch_fields(max_wait_ms=0), version=FETCH_VERSION)
        assert again.responses[0].partitions[0].error_code == 0

    on_a_node(scenario)


def test_a_client_with_many_partitions_that_dies_while_it_waits_leaves_nothing_behind() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=700)
        connection, _ = await waiting_fetch(node, partitions=many(700), max_wait_ms=60_000)
        assert node.partition().commits._fetch_waiters
        connection.abort()
        await asyncio.sleep(1)
        assert not node.partition().commits._fetch_waiters
        assert not node.broker._request_tasks._running
        assert node.broker.metrics.connections == 0

    on_a_node(scenario)


def test_a_stop_does_not_wait_for_those_who_wait_for_many_partitions() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=700)
        await waiting_fetch(node, partitions=many(700), max_wait_ms=60_000)
        began = now(node)
        await node.stop()
        assert now(node) - began < 3

    on_a_node(scenario)


def test_a_fetch_of_many_partitions_yields_to_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "MOST_AT_ONCE", 10)

    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=100)
        await node.produce(HUNDRED, index=99)
        looked: list[int] = []
        counting: list[asyncio.Future[None]] = []
        usual = Partition.check_leader_epoch
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            for _ in range(50):
                turns += 1
                await asyncio.sleep(0)

        def look(self: Partition, epoch: int) -> None:
            if not looked:
                counting.append(asyncio.ensure_future(count_turns()))
            looked.append(turns)
            usual(self, epoch)

        monkeypatch.setattr(Partition, "check_leader_epoch", look)
        connection = await node.connect()
        await connection.call(FETCH, fetch_fields(partitions=many(100)), version=FETCH_VERSION)
        assert len(looked) == 100
        assert len(set(looked)) >= 5

    on_a_node(scenario)


def test_a_cold_read_runs_in_a_thread_and_the_fetch_waits_for_it() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        for _ in range(5):
            await node.produce(HUNDRED)
        node.files.cold_names.add("00000000000000000000.log")
        part = await node.fetch(2, partition_max_bytes=2 * BATCH_BYTES)
        assert next(record.offset for record in records_in(part.records)) == 2
        began = now(node)
        part = await node.fetch(3, min_bytes=1 << 20, partition_max_bytes=1 << 20, max_wait_ms=2000)
        assert len(list(records_in(part.records))) == 2
        assert now(node) - began > 1.9
        assert node.broker.partitions._descriptors.pinned_count == 0

    on_a_node(scenario)
