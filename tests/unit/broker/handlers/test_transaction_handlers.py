# SPDX-License-Identifier: Apache-2.0
"""Requests of transactional producers, nodes and tools to a started node: every version, every code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.broker.transactions.concurrent_retry import RETRY_S
from headrace.client.errors import ClientError
from headrace.machines.transactions.events import Producer
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from headrace.wire.request_bounds import max_items
from tests.harness.broker.acl_node import Client
from tests.harness.broker.simulated_node import SimBroker, on_a_node
from tests.harness.transactions.sim_producer import (
    ONE_PARTITION,
    add,
    add_for,
    add_offsets,
    addition,
    describe,
    end,
    find_coordinator,
    init,
    listed,
    marker,
    new_producer,
    write_markers,
)

ID, OTHER, TOPIC, PARTITIONS = "id", "other", "t", 3
NOBODY = Producer(999_999, 0)
NO_PRODUCER = Producer(-1, -1)
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
MAPPING = ErrorCode.invalid_producer_id_mapping
FENCED, OLD_FENCED = ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch
CLIENT_VERSIONS, NODE_VERSIONS = range(4), range(4, 6)

Scenario = Callable[[SimBroker, Client], Awaitable[None]]


def with_node(scenario: Scenario, settings: dict[str, str] | None = None) -> None:
    async def main(node: SimBroker) -> None:
        assert await node.create(TOPIC, PARTITIONS) == 0
        await scenario(node, Client(await node.connect()))

    on_a_node(main, settings={**ONE_PARTITION, **(settings or {})})


async def settled(node: SimBroker, client: Client, name: str = ID) -> Any:
    """The description of an id whose markers are all written."""
    while True:
        (found,) = await describe(client, name)
        if not found.transaction_state.startswith("Prepare"):
            return found
        await node.clients.tasks.sleep(0.01)


# InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_each_init_raises_the_epoch_of_the_transactional_id(version: int) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        assert await find_coordinator(client, ID) is ErrorCode.none
        error, first = await init(client, ID, version=version)
        assert (error, first.epoch) == (ErrorCode.none, 0)
        assert await init(client, ID, version=version) == (ErrorCode.none, first._replace(epoch=1))
        _, other = await init(client, OTHER, version=version)
        assert other.producer_id != first.producer_id

    with_node(scenario)


@pytest.mark.parametrize("version", range(6))
def test_an_empty_transactional_id_is_an_invalid_request(version: int) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        await find_coordinator(client, ID)
        assert await init(client, "", version=version) == (ErrorCode.invalid_request, NO_PRODUCER)
        assert node.broker.metrics.errors == {(ApiKey.INIT_PRODUCER_ID, ErrorCode.invalid_request): 1}

    with_node(scenario)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001, 2**31 - 1])
@pytest.mark.parametrize("version", range(6))
def test_a_timeout_beyond_the_limit_is_refused(version: int, timeout_ms: int) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        await find_coordinator(client, ID)
        refused = await init(client, ID, version=version, timeout_ms=timeout_ms)
        assert refused == (ErrorCode.invalid_transaction_timeout, NO_PRODUCER)
        assert (await init(client, ID, version=version, timeout_ms=900_000))[0] is ErrorCode.none

    with_node(scenario)


@pytest.mark.parametrize(("version", "fenced"), [(3, OLD_FENCED), (4, FENCED), (5, FENCED)])
def test_a_producer_goes_on_after_an_error_unless_another_took_its_place(
    version: int, fenced: ErrorCode
) -> None:
    """KIP-360."""

    async def scenario(node: SimBroker, client: Client) -> None:
        known = await new_producer(client, ID)
        raised = known._replace(epoch=known.epoch + 1)
        assert await init(client, ID, version=version, expected=known) == (ErrorCode.none, raised)
        assert await init(client, ID, version=version, expected=known) == (ErrorCode.none, raised)
        await init(client, ID)
        assert await init(client, ID, version=version, expected=known) == (fenced, NO_PRODUCER)
        assert await init(client, ID, version=version, expected=NOBODY) == (fenced, NO_PRODUCER)
        for half in (known._replace(epoch=-1), known._replace(producer_id=-1)):
            refused = await init(client, ID, version=version, expected=half)
            assert refused == (ErrorCode.invalid_request, NO_PRODUCER)

    with_node(scenario)


def test_an_init_that_finds_a_transaction_aborts_it_and_is_asked_again() -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await new_producer(client, ID)
        await add(client, ID, producer, {TOPIC: [0]})
        assert await init(client, ID) == (ErrorCode.concurrent_transactions, NO_PRODUCER)
        assert (await settled(node, client)).transaction_state == "CompleteAbort"
        error, after = await init(client, ID)
        assert (error, after.epoch) == (ErrorCode.none, producer.epoch + 2)

    with_node(scenario)


@pytest.mark.parametrize("version", range(6))
def test_without_its_topic_nobody_is_coordinator(version: int) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        assert await init(client, ID, version=version) == (ErrorCode.not_coordinator, NO_PRODUCER)
        wanted = {FIRST: ErrorCode.not_coordinator}
        assert await add(client, ID, NOBODY, {TOPIC: [0]}) == wanted
        assert await add_for(client, addition(ID, NOBODY, {TOPIC: [0]})) == {ID: wanted}
        verified = addition(ID, NOBODY, {TOPIC: [0]}, verify_only=True)
        assert await add_for(client, verified) == {ID: wanted}
        assert await add_offsets(client, ID, NOBODY, "g") is ErrorCode.not_coordinator
        assert await end(client, ID, NOBODY, version=version) == (
            ErrorCode.not_coordinator,
            NOBODY if version < 5 else NO_PRODUCER,
        )
        assert [found.error_code for found in await describe(client, ID)] == [ErrorCode.not_coordinator]
        assert (await listed(client)).transaction_states == ()

    with_node(scenario)


# AddPartitionsToTxn


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_partitions_are_added_all_or_none(version: int) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await new_producer(client, ID)
        topics = {TOPIC: [0, PARTITIONS, -1], "ghost": [0], "__consumer_offsets": [0]}
        assert await add(client, ID, producer, topics, version=version) == {
            FIRST: ErrorCode.operation_not_attempted,
            TopicPartition(TOPIC, PARTITIONS): ErrorCode.unknown_topic_or_partition,
            TopicPartition(TOPIC, -1): ErrorCode.unknown_topic_or_partition,
            TopicPartition("ghost", 0): ErrorCode.unknown_topic_or_partition,
            TopicPartition("__consumer_offsets", 0): ErrorCode.topic_authorization_failed,
        }
        (found,) = await describe(client, ID)
        assert (found.transaction_state, found.topics) == ("Empty", ())
        added = await add(client, ID, producer, {TOPIC: [0, 1]}, version=version)
        assert added == {FIRST: ErrorCode.none, SECOND: ErrorCode.none}
        (found,) = await describe(client, ID)
        assert found.transaction_state == "Ongoing"
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [(TOPIC, (0, 1))]

    with_node(scenario)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__headrace_events"])
def test_internal_topics_are_no_part_of_a_clients_transaction(name: str) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await new_producer(client, ID)
        refused = {TopicPartition(name, 0): ErrorCode.topic_authorization_failed}
        assert await add(client, ID, producer, {name: [0]}) == refused

    with_node(scenario)


@pytest.mark.parametrize(("version", "fenced"), [(0, OLD_FENCED), (1, OLD_FENCED), (2, FENCED), (3, FENCED)])
def test_partitions_of_a_wrong_producer_are_refused(version: int, fenced: ErrorCode) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await new_producer(client, ID)

        async def code(name: str, of: Producer) -> ErrorCode:
            (found,) = (await add(client, name, of, {TOPIC: [0]}, version=version)).values()
            return found

        assert await code("unknown", producer) is MAPPING
        assert await code(ID, NOBODY) is MAPPING
        assert await code(ID, producer._replace(epoch=producer.epoch + 1)) is fenced
        assert await code("", producer) is ErrorCode.invalid_request
        counted = node.broker.metrics.errors
        assert counted[(ApiKey.ADD_PARTITIONS_TO_TXN, fenced)] == 1
        assert counted[(ApiKey.ADD_PARTITIONS_TO_TXN, MAPPING)] == 2

    with_node(scenario)


@pytest.mark.parametrize("version", NODE_VERSIONS)
def test_nodes_add_partitions_of_several_transactions_at_once(version: int) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        one, two = await new_producer(client, ID), await new_producer(client, OTHER)
        await client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
        offsets = TopicPartition("__consumer_offsets", 0)
        found = await add_for(
            client,
            addition(ID, one, {TOPIC: [0], offsets.topic: [0]}),
            addition(OTHER, two, {TOPIC: [1], "ghost": [0]}),
            addition("unknown", one, {TOPIC: [0]}),
            addition("", one, {TOPIC: [0]}),
            version=version,
        )
        assert found == {
            ID: {FIRST: ErrorCode.none, offsets: ErrorCode.none},
            OTHER: {
                SECOND: ErrorCode.operation_not_attempted,
                TopicPartition("ghost", 0): ErrorCode.unknown_topic_or_partition,
            },
            "unknown": {FIRST: MAPPING},
            "": {FIRST: ErrorCode.invalid_request},
        }
        states = [state.transaction_state for state in await describe(client, ID, OTHER)]
        assert states == ["Ongoing", "Empty"]
        assert await add_for(client, version=version) == {}

    with_node(scenario)


@pytest.mark.parametrize("version", NODE_VERSIONS)
def test_nodes_ask_whether_partitions_are_part_of_a_transaction(version: int) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await new_producer(client, ID)
        await add(client, ID, producer, {TOPIC: [1]})

        async def verified(of: Producer, name: str = ID) -> dict[TopicPartition, ErrorCode]:
            asked = addition(name, of, {TOPIC: [0, 1]}, verify_only=True)
            return (await add_for(client, asked, version=version))[name]

        assert await verified(producer) == {FIRST: ErrorCode.transaction_abortable, SECOND: ErrorCode.none}
        assert set((await verified(producer._replace(epoch=9))).values()) == {FENCED}
        assert set((await verified(NOBODY)).values()) == {MAPPING}
        assert set((await verified(producer, "")).values()) == {ErrorCode.invalid_request}
        (found,) = await describe(client, ID)
        assert [topic.partitions for topic in found.topics] == [(1,)]

    with_node(scenario)


def test_the_version_of_a_transaction_is_that_of_the_request_that_begins_it() -> None:
    """Nodes begin transactions of KIP-890, whose markers need a raised epoch."""

    async def scenario(node: SimBroker, client: Client) -> None:
        for name, version in ((ID, 0), (OTHER, 2)):
            producer = await new_producer(client, name)
            if version:
                await add_for(client, addition(name, producer, {TOPIC: [0]}))
            else:
                await add(client, name, producer, {TOPIC: [0]})
            machine = await node.broker.transactions.transactional_id(name)
            assert machine is not None
            assert machine.metadata is not None
            assert machine.metadata.client_transaction_version == version

    with_node(scenario)


# AddOffsetsToTxn


@pytest.mark.parametrize(
    ("version", "fenced"),
    [(0, OLD_FENCED), (1, OLD_FENCED), (2, FENCED), (3, FENCED), (4, FENCED)],
)
def test_the_offsets_of_a_group_are_added_as_the_partition_they_are_kept_in(
    version: int, fenced: ErrorCode
) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await new_producer(client, ID)
        stale = producer._replace(epoch=7)
        assert await add_offsets(client, "unknown", producer, "g", version=version) is MAPPING
        assert await add_offsets(client, ID, NOBODY, "g", version=version) is MAPPING
        assert await add_offsets(client, ID, stale, "g", version=version) is fenced
        assert await add_offsets(client, "", producer, "g", version=version) is ErrorCode.invalid_request
        assert await add_offsets(client, ID, producer, "hello", version=version) is ErrorCode.none
        (found,) = await describe(client, ID)
        index = node.broker.groups.partition_of("hello")
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [
            ("__consumer_offsets", (index,))
        ]

    with_node(scenario, {"offsets.topic.num.partitions": "7"})


# EndTxn


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_a_transaction_is_ended_once_and_the_answer_repeated(version: int, committed: bool) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await new_producer(client, ID)
        await add(client, ID, producer, {TOPIC: [0, 1]})
        after = producer._replace(epoch=1) if version >= 5 else producer
        done = ErrorCode.none, after
        assert await end(client, ID, producer, committed=committed, version=version) == done
        found = await settled(node, client)
        state = "CompleteCommit" if committed else "CompleteAbort"
        assert (found.transaction_state, found.producer_epoch, found.topics) == (state, after.epoch, ())
        assert await end(client, ID, producer, committed=committed, version=version) == done
        other, _ = await end(client, ID, producer, committed=not committed, version=version)
        assert other is ErrorCode.invalid_txn_state

    with_node(scenario)


@pytest.mark.parametrize("version", range(6))
def test_what_never_began_cannot_be_committed_and_by_kip_890_be_aborted(version: int) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await new_producer(client, ID)
        code, _ = await end(client, ID, producer, version=version)
        assert code is ErrorCode.invalid_txn_state
        code, after = await end(client, ID, producer, committed=False, version=version)
        if version < 5:
            assert code is ErrorCode.invalid_txn_state
        else:
            assert (code, after.epoch) == (ErrorCode.none, producer.epoch + 1)

    with_node(scenario)


@pytest.mark.parametrize("version", range(6))
def test_the_end_of_a_wrong_producer_is_refused(version: int) -> None:
    fenced = OLD_FENCED if version < 2 else FENCED

    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await new_producer(client, ID)

        async def code(name: str, of: Producer) -> ErrorCode:
            found, after = await end(client, name, of, version=version)
            assert after == (of if version < 5 else NO_PRODUCER)
            return found

        assert await code("unknown", producer) is MAPPING
        assert await code(ID, NOBODY) is MAPPING
        assert await code(ID, producer._replace(epoch=5)) is fenced
        assert await code("", producer) is ErrorCode.invalid_request

    with_node(scenario)


# WriteTxnMarkers


def open_transaction(node: SimBroker, producer: Producer) -> None:
    """A record in the first partition, as if its coordinator had confirmed it."""
    partition = node.partition()
    batch = memoryview(
        build_batch(
            [Record(0, 0, b"key", b"value")],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=partition.log_end_offset // 2,
            is_transactional=True,
        )
    )
    guard = partition.begin_verification(batch, 0, begins_at_zero=False)
    partition.append(batch, 0, len(batch), guard=guard)


@pytest.mark.parametrize("version", [1, 2])
def test_markers_are_written_where_this_node_leads(version: int) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = Producer(7, 3)
        written = marker(producer, {TOPIC: [0, 0, 1, PARTITIONS], "ghost": [0]})
        ((producer_id, codes),) = await write_markers(client, written, version=version)
        assert producer_id == 7
        assert codes == {
            FIRST: ErrorCode.none,
            SECOND: ErrorCode.none,
            TopicPartition(TOPIC, PARTITIONS): ErrorCode.unknown_topic_or_partition,
            TopicPartition("ghost", 0): ErrorCode.unknown_topic_or_partition,
        }
        ends = [node.partition(TOPIC, index).log_end_offset for index in range(PARTITIONS)]
        assert ends == [1, 1, 0]

    with_node(scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_markers_of_the_past_are_refused(version: int) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        async def code(epoch: int, coordinator_epoch: int) -> ErrorCode:
            written = marker(Producer(7, epoch), {TOPIC: [0]}, coordinator_epoch=coordinator_epoch)
            ((_, codes),) = await write_markers(client, written, version=version)
            return codes[FIRST]

        assert await code(3, 5) is ErrorCode.none
        assert await code(2, 5) is OLD_FENCED
        assert await code(3, 4) is ErrorCode.transaction_coordinator_fenced
        assert node.partition().log_end_offset == 1

    with_node(scenario)


def test_a_marker_of_kip_890_needs_a_raised_epoch() -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = Producer(7, 3)
        for version in (1, 2):
            open_transaction(node, producer)
            same = marker(producer, {TOPIC: [0]}, transaction_version=2)
            raised = marker(producer._replace(epoch=4), {TOPIC: [0]}, transaction_version=2)
            wanted = OLD_FENCED if version == 2 else ErrorCode.none  # version 1 cannot say it
            assert await write_markers(client, same, version=version) == [(7, {FIRST: wanted})]
        assert await write_markers(client, raised, version=2) == [(7, {FIRST: ErrorCode.none})]

    with_node(scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_several_markers_are_answered_by_producer(version: int) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        markers = (
            marker(Producer(7, 0), {TOPIC: [0]}),
            marker(Producer(8, 0), {TOPIC: [0]}),
            marker(Producer(7, 0), {TOPIC: [1]}),
            marker(Producer(9, 0), {}),
        )
        found = await write_markers(client, *markers, version=version)
        none = ErrorCode.none
        assert found == [(7, {FIRST: none, SECOND: none}), (8, {FIRST: none}), (9, {})]
        assert await write_markers(client, version=version) == []

    with_node(scenario)


# DescribeTransactions and ListTransactions


def test_transactions_are_described() -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await new_producer(client, ID)
        await add(client, ID, producer, {TOPIC: [2, 0]})
        opened, unknown, empty = await describe(client, ID, "unknown", "", ID)
        assert (opened.transactional_id, opened.error_code) == (ID, ErrorCode.none)
        assert (opened.producer_id, opened.producer_epoch) == producer
        assert opened.transaction_timeout.total_seconds() == 60
        assert opened.transaction_start_time.timestamp() * 1000 <= node.clients.clock.wall_ms()
        assert [(topic.topic, topic.partitions) for topic in opened.topics] == [(TOPIC, (0, 2))]
        assert unknown.error_code is ErrorCode.transactional_id_not_found
        assert (empty.transactional_id, empty.error_code) == ("", ErrorCode.invalid_request)
        assert await describe(client) == []

    with_node(scenario)


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed_by_state_and_producer(version: int) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer, other = await new_producer(client, ID), await new_producer(client, OTHER)
        await add(client, ID, producer, {TOPIC: [0]})

        async def found(**filters: Any) -> dict[str, tuple[int, str]]:
            reply = await listed(client, version=version, **filters)
            assert (reply.error_code, reply.unknown_state_filters) == (ErrorCode.none, ())
            return {
                each.transactional_id: (each.producer_id, each.transaction_state)
                for each in reply.transaction_states
            }

        both = {ID: (producer.producer_id, "Ongoing"), OTHER: (other.producer_id, "Empty")}
        assert await found() == both
        assert list(await found(state_filters=["Ongoing", "Dead"])) == [ID]
        assert list(await found(producer_id_filters=[other.producer_id, -1])) == [OTHER]
        assert await found(producer_id_filters=[other.producer_id], state_filters=["Ongoing"]) == {}
        reply = await listed(client, version=version, state_filters=["ongoing", "Empty", "ongoing"])
        assert reply.unknown_state_filters == ("ongoing",)
        assert [each.transactional_id for each in reply.transaction_states] == [OTHER]

    with_node(scenario)


def test_transactions_are_listed_by_duration() -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await new_producer(client, ID)
        await add(client, ID, producer, {TOPIC: [0]})
        await node.clients.tasks.sleep(5)

        async def found(duration_ms: int, version: int) -> bool:
            reply = await listed(client, version=version, duration_filter=duration_ms)
            return bool(reply.transaction_states)

        for version in (1, 2):
            assert [await found(each, version) for each in (-1, 0, 4_000, 6_000)] == [True, True, True, False]

    with_node(scenario)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", [ID, OTHER]),
        (None, [ID, OTHER]),
        ("i", []),
        ("i.", [ID]),
        ("id|o.*", [ID, OTHER]),
        ("(a*)*b", []),
    ],
)
def test_transactions_are_listed_by_a_pattern_of_the_whole_id(pattern: str | None, names: list[str]) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        for name in (ID, OTHER):
            await new_producer(client, name)
        reply = await listed(client, transactional_id_pattern=pattern)
        assert [each.transactional_id for each in reply.transaction_states] == names

    with_node(scenario)


@pytest.mark.parametrize("pattern", ["(", "[", "*", "\\", "(?=x)", "a{1001}", "((a{100}){100}){100}"])
def test_a_pattern_that_re2_does_not_take_is_refused(pattern: str) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        reply = await listed(client, transactional_id_pattern=pattern)
        assert reply.error_code is ErrorCode.invalid_regular_expression
        assert reply.transaction_states == ()

    with_node(scenario)


# Hostile input


def test_a_null_transactional_id_ends_the_connection() -> None:
    """The field cannot be null: only InitProducerId has producers without one."""

    async def scenario(node: SimBroker, client: Client) -> None:
        frames = {
            ApiKey.END_TXN: b"\0" + b"\0" + bytes(8) + bytes(2) + b"\1\0",
            ApiKey.ADD_OFFSETS_TO_TXN: b"\0" + b"\0" + bytes(8) + bytes(2) + b"\2g\0",
            ApiKey.ADD_PARTITIONS_TO_TXN: b"\0" + b"\0" + bytes(8) + bytes(2) + b"\1\0",
        }
        for key, rest in frames.items():
            other = await node.connect()
            with pytest.raises(ClientError):
                await other.call_raw(key, 3, rest, timeout_ms=1000)

    with_node(scenario)


def test_the_largest_request_of_a_client_is_answered_for_each_partition_once() -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await new_producer(client, ID)
        bound = max_items(ApiKey.ADD_PARTITIONS_TO_TXN)
        same = [0] * (bound - 1)
        assert await add(client, ID, producer, {TOPIC: same}) == {FIRST: ErrorCode.none}
        absent = range(bound - 1)
        codes = await add(client, ID, producer, {"ghost": absent})
        assert len(codes) == bound - 1
        assert set(codes.values()) == {ErrorCode.unknown_topic_or_partition}
        with pytest.raises(ClientError):
            await add(client, ID, producer, {TOPIC: [0] * bound})

    with_node(scenario)


def test_the_largest_transaction_is_added_and_ended() -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        assert await node.create("wide", 1000) == 0
        producer = await new_producer(client, ID)
        codes = await add(client, ID, producer, {"wide": range(1000)})
        assert set(codes.values()) == {ErrorCode.none}
        assert len(codes) == 1000
        assert (await end(client, ID, producer))[0] is ErrorCode.none
        assert (await settled(node, client)).transaction_state == "CompleteCommit"
        assert node.partition("wide", 999).log_end_offset == 1

    with_node(scenario)


def test_many_transactions_of_one_request_are_all_answered() -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        await find_coordinator(client, ID)
        count = max_items(ApiKey.ADD_PARTITIONS_TO_TXN) // 3
        asked = [addition(f"id-{number}", NOBODY, {TOPIC: [0]}) for number in range(count)]
        found = await add_for(client, *asked)
        assert len(found) == count
        assert all(codes == {FIRST: MAPPING} for codes in found.values())

    with_node(scenario)


def test_a_marker_for_very_many_partitions_is_answered_for_each_once() -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        bound = max_items(ApiKey.WRITE_TXN_MARKERS)
        written = marker(Producer(7, 0), {TOPIC: [0] * (bound // 2), "ghost": range(bound // 2 - 10)})
        ((_, codes),) = await write_markers(client, written)
        assert len(codes) == bound // 2 - 9
        assert codes[FIRST] is ErrorCode.none
        assert node.partition().log_end_offset == 1

    with_node(scenario)


# A transaction whose last one has no markers yet


async def decided(node: SimBroker, client: Client) -> Producer:
    """A producer whose transaction is committed, and a partition that takes no marker."""
    producer = await new_producer(client, ID)
    await add(client, ID, producer, {TOPIC: [0]})
    node.partition(TOPIC, 0).suspend()
    assert await end(client, ID, producer, version=3) == (ErrorCode.none, producer)
    return producer


async def add_offsets_of_a_group(client: Client, producer: Producer) -> ErrorCode:
    return await add_offsets(client, ID, producer, "g")


async def add_second(client: Client, producer: Producer) -> ErrorCode:
    return (await add(client, ID, producer, {TOPIC: [1]}))[SECOND]


@pytest.mark.parametrize("ask", [add_second, add_offsets_of_a_group])
def test_a_client_that_adds_to_its_next_transaction_waits_for_the_markers_of_the_last(
    ask: Callable[[Client, Producer], Awaitable[ErrorCode]],
) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await decided(node, client)
        node.clients.tasks.call_later(0.03, node.partition(TOPIC, 0).open_for_writes)
        assert await ask(client, producer) is ErrorCode.none
        (found,) = await describe(client, ID)
        assert found.transaction_state == "Ongoing"
        assert node.broker.metrics.errors == {}

    with_node(scenario)


@pytest.mark.parametrize("ask", [add_second, add_offsets_of_a_group])
def test_it_is_told_of_concurrent_transactions_when_the_markers_take_long(
    ask: Callable[[Client, Producer], Awaitable[ErrorCode]],
) -> None:
    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await decided(node, client)
        began = node.clients.clock.monotonic()
        assert await ask(client, producer) is ErrorCode.concurrent_transactions
        assert node.clients.clock.monotonic() - began == pytest.approx(RETRY_S, abs=0.02)

    with_node(scenario)


def test_a_node_that_adds_for_its_producers_is_answered_at_once() -> None:
    """It asks again itself: other producers' transactions may be in the same request."""

    async def scenario(node: SimBroker, client: Client) -> None:
        producer = await decided(node, client)
        began = node.clients.clock.monotonic()
        codes = await add_for(client, addition(ID, producer, {TOPIC: [1]}))
        assert codes == {ID: {SECOND: ErrorCode.concurrent_transactions}}
        assert node.clients.clock.monotonic() - began < RETRY_S / 2

    with_node(scenario)
