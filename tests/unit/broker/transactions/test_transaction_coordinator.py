# SPDX-License-Identifier: Apache-2.0
"""Transactions on a whole simulated node, driven at the coordinator: records, markers, restarts, time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from headrace.broker.reporting.metrics_export import MetricsExport
from headrace.broker.transactions.coordinator import TRANSACTIONS_TOPIC
from headrace.errors import ApiError
from headrace.log.producers.markers import EndTransactionMarker, read_marker
from headrace.machines.groups.events import OffsetCommit, OffsetFetch, OffsetFetchReply, OffsetToCommit
from headrace.machines.transactions.events import (
    AddPartitionsToTxn,
    EndTxn,
    ErrorReply,
    InitProducerId,
    Producer,
    ProducerReply,
    VerifyPartitionsInTxn,
    VerifyPartitionsReply,
)
from headrace.machines.transactions.transitions import PREPARED
from headrace.machines.transactions.versions import BEFORE_KIP_890, KIP_890
from headrace.types import TopicPartition
from headrace.wire.batch import read_header
from headrace.wire.coordinator.transaction_records import TransactionState, decode
from headrace.wire.error_codes import ErrorCode
from headrace.wire.key_values import iter_key_values
from tests.harness.broker.simulated_node import SimBroker, on_a_node
from tests.harness.transactions.coordinator import partitions

ID = "copier"
NONE = ErrorCode.none
LONG_UNUSED_S = 200
S = TransactionState
COMMITTED = EndTransactionMarker(commits=True, coordinator_epoch=0)
ABORTED = EndTransactionMarker(commits=False, coordinator_epoch=0)


async def init(node: SimBroker, *, timeout_ms: int = 60_000, name: str = ID) -> ProducerReply:
    reply = await node.broker.transactions.ask(
        name, lambda token: InitProducerId(token=token, timeout_ms=timeout_ms)
    )
    assert isinstance(reply, ProducerReply)
    return reply


async def begin(node: SimBroker, *, timeout_ms: int = 60_000, name: str = ID) -> Producer:
    """A new producer of a topic with two partitions."""
    await node.create(partitions=2)
    await node.broker.transactions.ensure_topic()
    reply = await init(node, timeout_ms=timeout_ms, name=name)
    assert reply.error is NONE
    return reply.producer


async def add(
    node: SimBroker, producer: Producer, *names: str, version: int = KIP_890, name: str = ID
) -> ErrorCode:
    added = partitions(*names)
    reply = await node.broker.transactions.ask(
        name,
        lambda token: AddPartitionsToTxn(
            token=token, producer=producer, partitions=added, transaction_version=version
        ),
    )
    assert isinstance(reply, ErrorReply)
    return reply.error


async def end(
    node: SimBroker,
    producer: Producer,
    *,
    committed: bool = True,
    version: int = KIP_890,
    name: str = ID,
) -> ProducerReply:
    reply = await node.broker.transactions.ask(
        name,
        lambda token: EndTxn(
            token=token, producer=producer, committed=committed, transaction_version=version
        ),
    )
    assert isinstance(reply, ProducerReply)
    return reply


def batches(node: SimBroker, topic: str, index: int) -> list[memoryview]:
    log = node.partition(topic, index).log
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1, log.log_end_offset, at_least_one=True)
        assert piece is not None
        batch = memoryview(bytes(piece.bytes()))
        offset = piece.next_offset
        piece.release()
        found.append(batch)
    return found


def markers(node: SimBroker, index: int = 0, topic: str = "t") -> list[EndTransactionMarker | None]:
    control = (each for each in batches(node, topic, index) if read_header(each).is_control)
    return [read_marker(each) for each in control]


def states(node: SimBroker, name: str = ID) -> list[TransactionState | None]:
    """Of the records in the log: None for a tombstone."""
    found: list[TransactionState | None] = []
    for batch in batches(node, TRANSACTIONS_TOPIC, node.broker.transactions.partition_of(name)):
        for _, key, value in iter_key_values(batch):
            assert key is not None
            record = decode(key, value)
            assert record is not None
            found.append(None if record.value is None else record.value.state)
    return found


async def until_state(node: SimBroker, state: TransactionState | None, name: str = ID) -> None:
    for _ in range(2_000):
        found = await _state(node, name)
        if found is state:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"{found} and not {state}")


async def _state(node: SimBroker, name: str) -> TransactionState | None:
    try:
        machine = await node.broker.transactions.transactional_id(name)
    except ApiError:  # it is loaded
        return None
    return None if machine is None or machine.metadata is None else machine.metadata.state


def test_the_topic_is_made_as_kafka_does() -> None:
    async def scenario(node: SimBroker) -> None:
        transactions = node.broker.transactions
        assert TRANSACTIONS_TOPIC not in node.broker.cluster.view.topics
        assert (transactions.coordinator_of(ID), transactions.is_coordinator_of(ID)) == (None, False)
        topic = await transactions.ensure_topic()
        assert (len(topic.partitions), topic.internal) == (50, True)
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(100 * 1024 * 1024),
            "unclean.leader.election.enable": "false",
        }
        assert await transactions.ensure_topic() is node.broker.cluster.view.topics[TRANSACTIONS_TOPIC]
        assert transactions.is_coordinator_of(ID)

    on_a_node(scenario)


def test_the_settings_of_the_topic_are_used_and_fit_a_single_node() -> None:
    async def scenario(node: SimBroker) -> None:
        topic = await node.broker.transactions.ensure_topic()
        assert len(topic.partitions) == 3
        assert topic.configs["segment.bytes"] == "1048576"
        assert topic.configs["min.insync.replicas"] == "1", "there is one replica"

    settings = {"num.partitions": "3", "segment.bytes": "1048576", "min.isr": "2"}
    on_a_node(scenario, settings={f"transaction.state.log.{name}": value for name, value in settings.items()})


def test_without_the_topic_there_is_no_coordinator() -> None:
    async def scenario(node: SimBroker) -> None:
        with pytest.raises(ApiError) as refused:
            await init(node)
        assert refused.value.code is ErrorCode.not_coordinator
        assert await node.broker.transactions.listed() == []

    on_a_node(scenario)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [BEFORE_KIP_890, KIP_890])
def test_an_end_writes_markers_and_then_the_complete_record(committed: bool, version: int) -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await begin(node)
        assert await add(node, producer, "t-0", version=version) is NONE
        assert await add(node, producer, "t-1", version=version) is NONE
        reply = await end(node, producer, committed=committed, version=version)
        assert reply.error is NONE
        bumped = version == KIP_890
        assert reply.producer == (Producer(producer.producer_id, 1) if bumped else Producer(-1, -1))
        await until_state(node, S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT)
        marker = COMMITTED if committed else ABORTED
        assert [markers(node, index) for index in (0, 1)] == [[marker], [marker]]
        (batch,) = batches(node, "t", 0)
        header = read_header(batch)
        assert (header.producer_id, header.producer_epoch) == (producer.producer_id, int(bumped))
        decided = [S.PREPARE_COMMIT, S.COMPLETE_COMMIT] if committed else [S.PREPARE_ABORT, S.COMPLETE_ABORT]
        assert states(node) == [S.EMPTY, S.ONGOING, S.ONGOING, *decided]

    on_a_node(scenario)


def test_the_markers_of_this_node_are_written_in_the_turn_of_the_decision() -> None:
    """With flush `os`: commit latency is that of the append."""

    async def scenario(node: SimBroker) -> None:
        producer = await begin(node)
        await add(node, producer, "t-0", "t-1")
        await end(node, producer)
        assert [markers(node, index) for index in (0, 1)] == [[COMMITTED], [COMMITTED]]

    on_a_node(scenario, settings={"headrace.flush.default": "os"})


def test_transactions_follow_each_other_and_many_ids_share_the_coordinator() -> None:
    async def one(node: SimBroker, name: str) -> None:
        producer = (await init(node, name=name)).producer
        for _ in range(5):
            while (error := await add(node, producer, "t-0", name=name)) is not NONE:
                assert error is ErrorCode.concurrent_transactions
                await asyncio.sleep(0.01)
            reply = await end(node, producer, name=name)
            assert reply.error is NONE
            producer = reply.producer

    async def scenario(node: SimBroker) -> None:
        await begin(node)
        names = [f"id-{number}" for number in range(32)]
        await asyncio.gather(*(one(node, name) for name in names))
        for name in names:
            await until_state(node, S.COMPLETE_COMMIT, name)
        assert len(markers(node)) == 5 * len(names)
        listed = {each.transactional_id for each in await node.broker.transactions.listed()}
        assert listed == {ID, *names}

    on_a_node(scenario)


def test_a_marker_reaches_the_offsets_of_its_group() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await begin(node)
        groups = node.broker.groups
        await groups.ensure_topic()
        place = f"__consumer_offsets-{groups.partition_of('g')}"
        await add(node, producer, place)
        await groups.ask(
            "g",
            lambda token: OffsetCommit.of(
                (OffsetToCommit("t", 0, 41),),
                token=token,
                version=9,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
            ),
        )

        async def committed() -> int | None:
            reply = await groups.ask(
                "g", lambda token: OffsetFetch(token=token, partitions=(("t", 0),), version=9)
            )
            assert isinstance(reply, OffsetFetchReply)
            found = reply.offsets[0].committed
            return None if found is None else found.offset

        assert await committed() is None
        assert (await end(node, producer)).error is NONE
        await until_state(node, S.COMPLETE_COMMIT)
        assert await committed() == 41
        index = groups.partition_of("g")
        assert markers(node, index, "__consumer_offsets") == [COMMITTED]

    on_a_node(scenario)


def test_markers_that_a_restart_interrupted_are_sent_again() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await begin(node)
        await add(node, producer, "t-0")
        node.partition("t", 0).suspend()  # no marker can be written
        assert (await end(node, producer)).error is NONE, "the decision stands"
        assert await add(node, producer, "t-1") is ErrorCode.concurrent_transactions
        assert markers(node) == []
        await node.stop()
        await node.start()
        await until_state(node, S.COMPLETE_COMMIT)
        (marker,) = markers(node)
        assert marker is not None
        assert marker.commits
        again = await end(node, producer)
        assert (again.error, again.producer) == (NONE, Producer(producer.producer_id, 1))

    on_a_node(scenario)


def test_a_leader_that_takes_no_markers_gets_them_when_it_does() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await begin(node)
        await add(node, producer, "t-0", "t-1")
        node.partition("t", 1).suspend()
        await end(node, producer)
        await asyncio.sleep(5)
        assert (markers(node, 0), markers(node, 1)) == ([COMMITTED], [])
        machine = await node.broker.transactions.transactional_id(ID)
        assert machine is not None
        assert machine.partitions_without_marker == {TopicPartition("t", 1)}
        node.partition("t", 1).open_for_writes()
        await until_state(node, S.COMPLETE_COMMIT)
        assert (markers(node, 0), markers(node, 1)) == ([COMMITTED], [COMMITTED])

    on_a_node(scenario)


def test_the_partition_of_a_deleted_topic_needs_no_marker() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await begin(node)
        await add(node, producer, "t-0")
        assert await node.delete() == NONE
        assert (await end(node, producer)).error is NONE
        await until_state(node, S.COMPLETE_COMMIT)

    on_a_node(scenario)


def test_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await begin(node, timeout_ms=10_000)
        await add(node, producer, "t-0")
        await asyncio.sleep(9.9)
        assert markers(node) == []
        await asyncio.sleep(0.5)
        assert markers(node) == [ABORTED]
        assert await add(node, producer, "t-0") is ErrorCode.producer_fenced
        assert node.broker.metrics.transactions.ends["timeout"] == 1

    on_a_node(scenario)


def test_the_timeout_begins_anew_with_a_restart() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await begin(node, timeout_ms=10_000)
        await add(node, producer, "t-0")
        await asyncio.sleep(9)
        await node.stop()
        await node.start()
        await asyncio.sleep(9)
        assert markers(node) == []
        await until_state(node, S.COMPLETE_ABORT)

    on_a_node(scenario)


def test_another_producer_of_the_id_fences_the_first_and_aborts_its_transaction() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await begin(node)
        await add(node, producer, "t-0")
        assert (await init(node)).error is ErrorCode.concurrent_transactions
        await until_state(node, S.COMPLETE_ABORT)
        assert markers(node) == [ABORTED]
        second = await init(node)
        assert second.producer.producer_id == producer.producer_id
        assert await add(node, producer, "t-0") is ErrorCode.producer_fenced
        assert await add(node, second.producer, "t-0") is NONE

    on_a_node(scenario)


def test_an_id_that_is_not_used_expires_by_a_tombstone() -> None:
    async def scenario(node: SimBroker) -> None:
        await begin(node)
        await asyncio.sleep(0.5)
        await node.broker.transactions.check_expiration()
        assert await node.broker.transactions.transactional_id(ID) is not None
        await asyncio.sleep(1)
        await node.broker.transactions.check_expiration()
        await asyncio.sleep(0.1)
        assert await node.broker.transactions.transactional_id(ID) is None
        assert states(node) == [S.EMPTY, None]
        assert node.broker.metrics.transactions.expired == 1

    on_a_node(scenario, settings={"transactional.id.expiration.ms": "1000"})


def test_the_node_looks_for_expired_ids_by_itself() -> None:
    async def scenario(node: SimBroker) -> None:
        await begin(node)
        await asyncio.sleep(10)
        assert await node.broker.transactions.transactional_id(ID) is None

    name = "transaction.remove.expired.transaction.cleanup.interval.ms"
    on_a_node(scenario, settings={"transactional.id.expiration.ms": "1000", name: "2000"})


def test_the_longest_timeout_is_that_of_the_node() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.broker.transactions.ensure_topic()
        assert (await init(node, timeout_ms=5_001)).error is ErrorCode.invalid_transaction_timeout
        assert (await init(node, timeout_ms=5_000)).error is NONE

    on_a_node(scenario, settings={"transaction.max.timeout.ms": "5000"})


def test_verification_tells_partitions_of_the_transaction_from_others() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await begin(node)
        await add(node, producer, "t-0")
        asked = (TopicPartition("t", 0), TopicPartition("t", 1))
        reply = await node.broker.transactions.ask(
            ID, lambda token: VerifyPartitionsInTxn(token=token, producer=producer, partitions=asked)
        )
        assert isinstance(reply, VerifyPartitionsReply)
        assert reply.errors == (NONE, ErrorCode.transaction_abortable)

    on_a_node(scenario)


def test_without_producer_ids_a_client_is_told_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.broker.transactions.ensure_topic()

        async def fail(count: int) -> range:
            raise ApiError(ErrorCode.request_timed_out, "the store is down")

        with monkeypatch.context() as patched:
            patched.setattr(node.broker.cluster, "allocate_producer_ids", fail)
            assert (await init(node)).error is ErrorCode.coordinator_load_in_progress
        assert (await init(node)).error is NONE

    on_a_node(scenario)


def test_a_marker_has_the_leader_epoch_of_the_coordinator() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await begin(node)
        await add(node, producer, "t-0")
        node.partition(TRANSACTIONS_TOPIC, node.broker.transactions.partition_of(ID)).leader_epoch = 6
        await end(node, producer)
        await until_state(node, S.COMPLETE_COMMIT)
        assert markers(node) == [EndTransactionMarker(commits=True, coordinator_epoch=6)]

    on_a_node(scenario)


def test_no_marker_is_sent_once_another_node_may_coordinate() -> None:
    """Its leader epoch may be the other coordinator's already."""

    async def scenario(node: SimBroker) -> None:
        producer = await begin(node)
        await add(node, producer, "t-0")
        node.partition("t", 0).suspend()
        await end(node, producer)
        node.partition(TRANSACTIONS_TOPIC, node.broker.transactions.partition_of(ID)).suspend()
        node.partition("t", 0).open_for_writes()
        await asyncio.sleep(10)
        assert markers(node) == []

    on_a_node(scenario)


def test_a_scrape_counts_transactions() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await begin(node)
        await add(node, producer, "t-0")
        await end(node, producer)
        await until_state(node, S.COMPLETE_COMMIT)
        text = (await MetricsExport(node.broker.metric_sources(), node.world).render()).decode()
        assert 'headrace_transactions{state="CompleteCommit"} 1.0' in text
        assert 'headrace_transaction_ends_total{cause="client_commit"} 1.0' in text
        assert "headrace_transaction_commit_seconds_count 1.0" in text
        assert "headrace_transaction_markers_pending 0.0" in text

    on_a_node(scenario)


def walked(node: SimBroker) -> tuple[dict[str, int], int]:
    """What a scrape tells of transactional ids, worked out from all of them."""
    found = [
        (each.metadata.state, len(each.partitions_without_marker))
        for each in node.broker.transactions._topic.machines()
        if each.metadata is not None
    ]
    by_state = Counter(state.label for state, _ in found)
    return dict(by_state), sum(missing for state, missing in found if state in PREPARED)


def counted(node: SimBroker) -> tuple[dict[str, int], int]:
    figures = node.broker.transactions.figures()
    return dict(figures.by_state), figures.pending_markers


def test_ids_and_pending_markers_are_counted_by_every_step_restart_and_expiry() -> None:
    async def scenario(node: SimBroker) -> None:
        producers = {name: await begin(node, name=name) for name in ("idle", "open", "decided", "ended")}
        for name in ("open", "decided", "ended"):
            await add(node, producers[name], "t-0", "t-1", name=name)
        await end(node, producers["ended"], name="ended")
        await until_state(node, S.COMPLETE_COMMIT, name="ended")
        node.partition("t", 0).suspend()  # it takes no marker
        await end(node, producers["decided"], committed=False, name="decided")
        await asyncio.sleep(1)
        assert counted(node) == walked(node)
        expected = {"Empty": 1, "Ongoing": 1, "PrepareAbort": 1, "CompleteCommit": 1}
        assert counted(node) == (expected, 1), "the marker of t-1 is written"
        await node.stop()
        await node.start()
        await until_state(node, S.COMPLETE_ABORT, name="decided")
        assert counted(node) == walked(node)
        del expected["PrepareAbort"]
        assert counted(node) == ({**expected, "CompleteAbort": 1}, 0)
        await asyncio.sleep(LONG_UNUSED_S)
        await node.broker.transactions.check_expiration()
        await until_state(node, None, name="idle")
        assert counted(node) == walked(node) == ({}, 0)

    on_a_node(scenario, settings={"transactional.id.expiration.ms": str(LONG_UNUSED_S * 500)})


def test_ids_of_a_partition_that_this_node_lost_are_counted_no_more() -> None:
    async def scenario(node: SimBroker) -> None:
        await begin(node)
        assert counted(node) == ({"Empty": 1}, 0)
        (driver,) = (each for each in node.broker.transactions._topic.drivers.values() if each.names())
        driver.end()
        assert counted(node) == ({}, 0)
        await until_state(node, S.EMPTY)  # the driver is made again
        assert counted(node) == ({"Empty": 1}, 0)

    on_a_node(scenario)
