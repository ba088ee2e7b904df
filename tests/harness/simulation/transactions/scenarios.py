# SPDX-License-Identifier: Apache-2.0
"""Schedules of transactions written by hand: orders of events in which a missing rule shows.

Each runs on three simulated nodes under all invariants, and fails when its rule is missing (T3). Read next:
invariants.py, proof.py, cluster_scenarios.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from headrace.broker.coordinators.coordinated_topic import java_hash
from headrace.broker.partition.partition import Partition
from headrace.testing.simworld import ClockProfile, Simulation
from headrace.types import PartitionState, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.simulation.clients import TryAgain
from tests.harness.simulation.cluster import SimCluster
from tests.harness.simulation.cluster_plan import PORT, ClusterPlan
from tests.harness.simulation.routing import LeaderTarget
from tests.harness.simulation.transactions import requests as wire
from tests.harness.simulation.transactions.invariants import TRANSACTIONS_TOPIC, TransactionInvariants
from tests.harness.simulation.transactions.links import Coordinator, Links, Refused, Request
from tests.harness.simulation.transactions.requests import Producer
from tests.harness.transactions.history import copy_of

OUTPUT = "out"
PARTITION = TopicPartition(OUTPUT, 0)
STATE_PARTITIONS = 6
_SOON_S = 5.0


class Client:
    """One of protocol 1, whose requests are sent by hand."""

    def __init__(self, lab: TransactionLab, transactional_id: str) -> None:
        self.producer = Producer(transactional_id)
        self._lab = lab
        self._sequence = 0
        self._links = Links(
            lab.cluster.world,
            lab.cluster.addresses,
            transactional_id=transactional_id,
            group_id="group",
            name="lab",
        )

    async def _ask(self, request: Request) -> Any:
        return await self._links.ask(request, patience_s=30, timeout_ms=3_000, random=self._lab.random)

    async def init(self) -> None:
        """A new epoch, so that sequences begin at 0."""
        fields = wire.init_fields(self.producer, 60_000)
        request = Request(Coordinator.OF_TRANSACTIONS, ApiKey.INIT_PRODUCER_ID, fields, 4, wire.code_of)
        reply = await self._ask(request)
        self.producer = self.producer._replace(producer_id=reply.producer_id, epoch=reply.producer_epoch)
        self._sequence = 0

    async def add(self) -> None:
        fields = wire.add_partitions_fields(self.producer, [PARTITION])
        place, code_of = Coordinator.OF_TRANSACTIONS, wire.code_of_added
        await self._ask(Request(place, ApiKey.ADD_PARTITIONS_TO_TXN, fields, 3, code_of))

    async def produce(self, number: int) -> None:
        """A record of the transaction with this number. Raises Refused."""
        fields = wire.produce_fields(
            self.producer, PARTITION, [copy_of(b"value", number)], self._sequence, self._lab.wall_ms()
        )
        self._sequence += 1
        await self._ask(Request(self._lab.target, ApiKey.PRODUCE, fields, 9, wire.code_of_produce))

    async def end(self, *, committed: bool) -> None:
        fields = wire.end_fields(self.producer, committed=committed)
        await self._ask(Request(Coordinator.OF_TRANSACTIONS, ApiKey.END_TXN, fields, 4, wire.code_of))


class TransactionLab:
    """Three nodes that start once, and one partition that transactions write to."""

    def __init__(self, simulation: Simulation) -> None:
        plan = ClusterPlan(
            nodes=3,
            profile="zookeeper",
            flush="os",
            partitions=0,
            replicas=3,
            session_ms=3000,
            moves=False,
            duration_s=0,
            producers=(),
            allowed_faults=(),
        )
        settings = {"transaction.state.log.num.partitions": str(STATE_PARTITIONS)}
        self.cluster = SimCluster(simulation, plan, busy_topics=(OUTPUT,), settings=settings)
        self.invariants = TransactionInvariants(
            self.cluster.nodes, simulation.loop, lambda: self.cluster.invariants.view, output=OUTPUT
        )
        self.network = simulation.network
        self.random: Random = simulation.random_for("lab")
        self.target = LeaderTarget(
            host="", port=PORT, topic=OUTPUT, partitions=1, index=0, addresses=self.cluster.addresses
        )
        self.on_step: Callable[[], None] = lambda: None
        """Called behind every step, for faults at an exact time."""
        self._runs: list[asyncio.Task[None]] = []

    def check(self) -> None:
        self.cluster.invariants.check()
        self.invariants.check()
        self.on_step()

    def when(self, holds: Callable[[], bool], act: Callable[[], None]) -> None:
        """Behind the first step after which it holds."""

        def look() -> None:
            if holds():
                self.on_step = lambda: None
                act()

        self.on_step = look

    def wall_ms(self) -> int:
        return self.cluster.world.clock.wall_ms()

    def start(self, node_id: int) -> None:
        self._runs.append(asyncio.ensure_future(self.cluster.nodes[node_id]._run_once()))

    async def start_all(self) -> None:
        for node_id in range(3):
            self.start(node_id)
        for node in self.cluster.nodes:
            await node.wait_until_serving()
        await self.cluster.create_topic(OUTPUT, 1, {})
        await Client(self, "first").init()  # creates the topic of the coordinators

    def end(self) -> None:
        for run in self._runs:
            run.cancel()

    @property
    def state(self) -> PartitionState:
        return self.cluster.invariants.view.topics[OUTPUT].partitions[0]

    def coordinator_of(self, transactional_id: str) -> int:
        index = java_hash(transactional_id) % STATE_PARTITIONS
        return self.cluster.invariants.view.topics[TRANSACTIONS_TOPIC].partitions[index].leader

    def client(self, *, beside_the_leader: bool) -> Client:
        """Whose coordinator leads the partition, too, or does not."""
        names = (f"client-{number}" for number in range(100))
        leader = self.state.leader
        found = next(n for n in names if (self.coordinator_of(n) == leader) is beside_the_leader)
        return Client(self, found)

    def clients_beside_the_leader(self, count: int) -> list[Client]:
        """All of one partition of the coordinator's log."""
        first = self.client(beside_the_leader=True)
        index = java_hash(first.producer.transactional_id) % STATE_PARTITIONS
        names = (f"other-{number}" for number in range(1000))
        found = (name for name in names if java_hash(name) % STATE_PARTITIONS == index)
        return [first, *(Client(self, name) for name, _ in zip(found, range(count - 1), strict=False))]

    def state_partition(self, client: Client) -> Partition:
        """Of the coordinator's log, on the node that leads it."""
        name = client.producer.transactional_id
        broker = self.cluster.nodes[self.coordinator_of(name)].broker
        assert broker is not None
        partition = broker.partitions.get(TRANSACTIONS_TOPIC, java_hash(name) % STATE_PARTITIONS)
        assert partition is not None
        return partition

    async def after_an_append(
        self, partition: Partition, asking: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        """The request, once it has written a record."""
        end = partition.log_end_offset
        task = asyncio.ensure_future(asking)
        await self.cluster.until(lambda: partition.log_end_offset > end, "a record is written")
        return task

    def partition(self, node_id: int) -> Partition:
        broker = self.cluster.nodes[node_id].broker
        assert broker is not None
        partition = broker.partitions.get(*PARTITION)
        assert partition is not None
        return partition

    def host(self, node_id: int) -> str:
        return self.cluster.nodes[node_id].machine.name

    async def nothing_hangs(self) -> None:
        """All is decided, for readers too."""

        async def look() -> None:
            partition = self.partition(self.state.leader)
            if not partition.leads or partition.last_stable_offset < partition.log_end_offset:
                raise TryAgain(f"stable {partition.last_stable_offset}, end {partition.log_end_offset}")

        async with asyncio.timeout(_SOON_S):
            await self.cluster.retry(look, "nothing hangs")


def simulate(scenario: Callable[[TransactionLab], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    with Simulation(seed, clock=ClockProfile()) as simulation:
        lab = TransactionLab(simulation)

        async def run() -> None:
            simulation.loop.after_step = lab.check
            await lab.start_all()
            await scenario(lab)
            lab.end()

        simulation.run(run())


def a_batch_behind_the_end_of_its_transaction_is_refused() -> None:
    """R32: it was under way when its client gave up, and its epoch is still the newest in the partition."""

    async def scenario(lab: TransactionLab) -> None:
        client = lab.client(beside_the_leader=False)
        await client.init()
        await client.add()
        await client.produce(1)
        await client.end(committed=False)
        await lab.nothing_hangs()
        try:
            await client.produce(1)
        except Refused as refusal:
            assert refusal.code is ErrorCode.invalid_txn_state  # noqa: PT017 - the code is what is tested
        else:
            raise AssertionError("written behind its marker")
        await lab.nothing_hangs()

    simulate(scenario)


def a_marker_between_verification_and_append_refuses_the_batch() -> None:
    """R32: coordinator and leader are one node. The answer to the verification waits for the record of
    another client; when that is committed, the end of the transaction is committed with it."""

    async def scenario(lab: TransactionLab) -> None:
        client, *others = lab.clients_beside_the_leader(3)
        for each in (client, *others):
            await each.init()
        await client.add()
        leader = lab.state.leader
        log, partition = lab.state_partition(client), lab.partition(leader)
        followers = [node_id for node_id in range(3) if node_id != leader]
        for follower in followers:
            lab.network.cut(lab.host(follower), lab.host(leader))
        asked = []
        for other in others:  # the first is sent to the followers, the second waits until they ask again
            asked.append(await lab.after_an_append(log, other.add()))
            await asyncio.sleep(0.1)
        late = asyncio.ensure_future(client.produce(1))
        await lab.cluster.until(lambda: len(partition.log.producers.guards) == 1, "it is verified")
        await asyncio.sleep(0.1)
        ending = await lab.after_an_append(log, client.end(committed=False))
        lab.network.mend_all()
        await asyncio.gather(*asked, ending)
        (refusal,) = await asyncio.gather(late, return_exceptions=True)
        await lab.nothing_hangs()
        assert isinstance(refusal, Refused)
        assert refusal.code is ErrorCode.invalid_txn_state

    simulate(scenario)


def a_late_marker_of_an_earlier_coordinator_ends_nothing() -> None:
    """R32: it is held back by the network until the producer's next transaction is open."""

    async def scenario(lab: TransactionLab) -> None:
        client = lab.client(beside_the_leader=False)
        await client.init()
        await client.add()
        await client.produce(1)
        await client.end(committed=True)
        await client.add()  # the marker was sent, by a connection that stays
        await client.produce(2)
        old, leader = lab.coordinator_of(client.producer.transactional_id), lab.state.leader
        lab.when(
            lambda: lab.invariants.is_prepared(client.producer.producer_id),
            lambda: lab.network.cut(lab.host(old), lab.host(leader)),
        )
        await client.end(committed=True)
        world = lab.cluster.nodes[old].world
        assert world is not None
        lab.cluster.store.expire(world.process)
        await lab.cluster.until(partial(_is_replaced, lab, client, old), "another node coordinates")
        await client.add()  # the new coordinator has sent the marker again
        await client.produce(3)
        assert lab.state.leader == leader
        lab.network.mend_all()
        await asyncio.sleep(2)
        await client.produce(3)
        await client.end(committed=True)
        await lab.nothing_hangs()

    simulate(scenario)


def _is_replaced(lab: TransactionLab, client: Client, old: int) -> bool:
    return lab.coordinator_of(client.producer.transactional_id) not in (old, -1)


def a_replica_that_is_truncated_forgets_the_abort_that_it_lost() -> None:
    """R28: a leader wrote an abort marker that nobody fetched, and died."""

    async def scenario(lab: TransactionLab) -> None:
        client = lab.client(beside_the_leader=False)
        await client.init()
        await client.add()
        await client.produce(1)
        old = lab.state.leader
        others = [node_id for node_id in range(3) if node_id != old]
        alone = lab.partition(old)

        def cut_off() -> None:
            for other in others:
                lab.network.cut(lab.host(old), lab.host(other))

        lab.when(lambda: alone.log_end_offset == 2, cut_off)
        await client.end(committed=False)
        await lab.cluster.until(lambda: alone.log_end_offset == 2, "the leader has the marker")
        assert all(lab.partition(other).log_end_offset == 1 for other in others)
        lab.cluster.nodes[old].kill()
        await lab.cluster.until(lambda: lab.state.leader in others, "another leads")
        await client.add()
        await client.produce(2)
        lab.network.mend_all()
        lab.start(old)
        await lab.cluster.until(lambda: set(lab.state.isr) == {0, 1, 2}, "all are in sync")
        await client.end(committed=True)
        await lab.nothing_hangs()

    simulate(scenario)


SCENARIOS = (
    a_batch_behind_the_end_of_its_transaction_is_refused,
    a_marker_between_verification_and_append_refuses_the_batch,
    a_late_marker_of_an_earlier_coordinator_ends_nothing,
    a_replica_that_is_truncated_forgets_the_abort_that_it_lost,
)
