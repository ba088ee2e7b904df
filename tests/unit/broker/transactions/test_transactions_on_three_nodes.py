# SPDX-License-Identifier: Apache-2.0
"""Transactions on three simulated nodes: markers over the network, another coordinator, lost leaders."""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.transactions.concurrent_retry import RETRY_S
from headrace.broker.transactions.coordinator import TRANSACTIONS_TOPIC
from headrace.errors import ApiError
from headrace.log.producers.markers import EndTransactionMarker, read_marker
from headrace.machines.machine import Event, ReplyBody, ReplyToken
from headrace.machines.transactions.events import (
    AddPartitionsToTxn,
    EndTxn,
    ErrorReply,
    InitProducerId,
    Producer,
    ProducerReply,
)
from headrace.machines.transactions.versions import KIP_890
from headrace.types import TopicPartition
from headrace.wire.batch import read_header
from headrace.wire.coordinator.transaction_records import TransactionState
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.acl_node import Client
from tests.harness.broker.simulated_node import TOPIC
from tests.harness.broker.three_nodes import NODES, SimMember, SimTrio, on_three_nodes
from tests.harness.transactions.sim_producer import add, end

ID = "copier"
S = TransactionState
RETRIED = (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress)


class Lab:
    """A topic whose partitions are led by one node each, and requests that find the coordinator."""

    def __init__(self, trio: SimTrio) -> None:
        self.trio = trio

    async def create(self) -> None:
        assignments = [[node, *(each for each in NODES if each != node)] for node in NODES]
        fields = {
            "topics": [
                {
                    "name": TOPIC,
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [
                        {"partition_index": index, "broker_ids": nodes}
                        for index, nodes in enumerate(assignments)
                    ],
                    "configs": [],
                }
            ],
            "timeout": 5000,
            "validate_only": False,
        }
        reply = await self.trio.up[0].ask(19, fields)
        assert int(reply.topics[0].error_code) == 0
        await self.trio.members[2].broker.transactions.ensure_topic()

        def all_known() -> bool:
            views = [member.broker.cluster.view for member in self.trio.up]
            return all({TOPIC, TRANSACTIONS_TOPIC} <= view.topics.keys() for view in views)

        await self.trio.until(all_known)

    @property
    def coordinator(self) -> SimMember | None:
        node = self.trio.up[0].broker.transactions.coordinator_of(ID)
        member = None if node is None else self.trio.members[node.node_id]
        return member if member is not None and member.is_up else None

    async def ask(self, make_event: Callable[[ReplyToken], Event]) -> ReplyBody:
        for _ in range(3000):
            if (member := self.coordinator) is not None:
                try:
                    return await member.broker.transactions.ask(ID, make_event)
                except ApiError as error:
                    if error.code not in RETRIED:
                        raise
            await self.trio.clients.tasks.sleep(0.01)
        raise AssertionError("no coordinator answers")

    async def init(self) -> Producer:
        reply = await self.ask(lambda token: InitProducerId(token=token, timeout_ms=60_000))
        assert isinstance(reply, ProducerReply)
        assert reply.error is ErrorCode.none
        return reply.producer

    async def add(self, producer: Producer, *indexes: int) -> None:
        names = frozenset(TopicPartition(TOPIC, index) for index in indexes)
        reply = await self.ask(
            lambda token: AddPartitionsToTxn(
                token=token, producer=producer, partitions=names, transaction_version=KIP_890
            )
        )
        assert reply == ErrorReply()

    async def end(self, producer: Producer) -> None:
        reply = await self.ask(
            lambda token: EndTxn(token=token, producer=producer, committed=True, transaction_version=KIP_890)
        )
        assert isinstance(reply, ProducerReply)
        assert reply.error is ErrorCode.none

    @property
    def state(self) -> TransactionState | None:
        member = self.coordinator
        machine = None if member is None else member.broker.transactions._topic.peek(ID)
        return None if machine is None or machine.metadata is None else machine.metadata.state

    async def until(self, state: TransactionState) -> None:
        await self.trio.until(lambda: self.state is state)

    def markers(self, member: SimMember, index: int) -> list[EndTransactionMarker]:
        log = member.partition(TOPIC, index).log
        found = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            piece = log.read(offset, 1, log.log_end_offset, at_least_one=True)
            assert piece is not None
            batch = memoryview(bytes(piece.bytes()))
            offset = piece.next_offset
            piece.release()
            if read_header(batch).is_control and (marker := read_marker(batch)) is not None:
                found.append(marker)
        return found


def test_markers_reach_the_leaders_on_other_nodes_and_their_followers() -> None:
    async def scenario(trio: SimTrio) -> None:
        lab = Lab(trio)
        await lab.create()
        producer = await lab.init()
        await lab.add(producer, 0, 1, 2)
        await lab.end(producer)
        await lab.until(S.COMPLETE_COMMIT)
        for index in range(3):
            for member in trio.up:
                assert [marker.commits for marker in lab.markers(member, index)] == [True]

    on_three_nodes(scenario)


def test_another_coordinator_sends_the_markers_of_a_decision_that_it_found() -> None:
    async def scenario(trio: SimTrio) -> None:
        lab = Lab(trio)
        await lab.create()
        producer = await lab.init()
        first = lab.coordinator
        assert first is not None
        other = next(index for index, node in enumerate(NODES) if node != first.node_id)
        leader = trio.members[NODES[other]]
        await lab.add(producer, other)
        leader.partition(TOPIC, other).suspend()  # it takes no marker
        await lab.end(producer)
        assert lab.markers(leader, other) == []
        await first.kill()
        await trio.until(lambda: lab.coordinator not in (None, first))
        leader.partition(TOPIC, other).open_for_writes()
        await lab.until(S.COMPLETE_COMMIT)
        (marker,) = lab.markers(leader, other)
        assert marker.commits
        assert marker.coordinator_epoch > 0, "that of the second coordinator"

    on_three_nodes(scenario)


def test_markers_for_a_node_that_died_go_to_the_next_leader() -> None:
    async def scenario(trio: SimTrio) -> None:
        lab = Lab(trio)
        await lab.create()
        producer = await lab.init()
        coordinator = lab.coordinator
        assert coordinator is not None
        other = next(index for index, node in enumerate(NODES) if node != coordinator.node_id)
        await lab.add(producer, other)
        await trio.members[NODES[other]].kill()
        await lab.end(producer)
        await lab.until(S.COMPLETE_COMMIT)
        assert [marker.commits for marker in lab.markers(coordinator, other)] == [True]

    on_three_nodes(scenario)


def test_a_marker_does_not_wait_for_its_backoff_once_there_is_another_leader() -> None:
    async def scenario(trio: SimTrio) -> None:
        lab = Lab(trio)
        await lab.create()
        producer = await lab.init()
        coordinator = lab.coordinator
        assert coordinator is not None
        other = next(index for index, node in enumerate(NODES) if node != coordinator.node_id)
        leader = trio.members[NODES[other]]
        await lab.add(producer, other)
        leader.partition(TOPIC, other).suspend()  # it takes no marker
        await lab.end(producer)
        await trio.clients.tasks.sleep(5)  # the backoff is a second now
        await leader.kill()

        def led_again() -> bool:
            state = coordinator.broker.cluster.view.topics[TOPIC].partitions[other]
            member = trio.members.get(state.leader)
            return member is not None and member.is_up and member.partition(TOPIC, other).takes_writes

        await trio.until(led_again)
        await trio.until(lambda: lab.state is S.COMPLETE_COMMIT, within_s=0.1)

    on_three_nodes(scenario)


def test_a_client_before_kip_890_begins_its_next_transaction_without_a_retry() -> None:
    """While the markers of the last one are on their way, for as long as the node tries again itself."""
    waited_for_markers = 0

    async def scenario(trio: SimTrio) -> None:
        nonlocal waited_for_markers
        lab = Lab(trio)
        await lab.create()
        producer = await lab.init()
        coordinator = lab.coordinator
        assert coordinator is not None
        client = Client(await coordinator.connect())
        added = {TopicPartition(TOPIC, index): ErrorCode.none for index in range(3)}
        clock = trio.clients.clock
        for _ in range(10):
            are_underway = lab.state is S.PREPARE_COMMIT
            asked_at = clock.monotonic()
            while (codes := await add(client, ID, producer, {TOPIC: [0, 1, 2]})) != added:
                assert set(codes.values()) == {ErrorCode.concurrent_transactions}
                assert clock.monotonic() - asked_at >= RETRY_S
                are_underway = False
                asked_at = clock.monotonic()
            waited_for_markers += are_underway
            assert await end(client, ID, producer, version=3) == (ErrorCode.none, producer)

    for seed in range(1, 4):
        on_three_nodes(scenario, seed=seed)
    assert waited_for_markers > 5
