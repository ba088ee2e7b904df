# SPDX-License-Identifier: Apache-2.0
"""Markers of decided transactions: to whom they go, in which request, and that each is answered once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.replication.peers import PeerLost, PeerTimedOut
from headrace.broker.transactions import marker_sender
from headrace.broker.transactions.marker_sender import LONGEST_WAIT_S, MOST_IN_FLIGHT, PURPOSE, MarkerSender
from headrace.broker.transactions.marker_writer import Marker, OnWritten
from headrace.errors import CoordinationError
from headrace.machines.transactions.events import (
    LeaderElected,
    MarkerOutcome,
    MarkersAnswered,
    Producer,
    SendMarkers,
)
from headrace.testing.simworld import Simulation, SimWorld
from headrace.types import NO_NODE, ClusterView, Endpoint, Node, PartitionState, Topic, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import new_uuid
from tests.harness.transactions.coordinator import partitions

OWN, OTHER, THIRD = 1, 2, 3
WRITTEN, RETRY, DELETED, FENCED = (
    MarkerOutcome.WRITTEN, MarkerOutcome.RETRY, MarkerOutcome.PARTITION_DELETED, MarkerOutcome.FENCED,
)  # fmt: skip


class FakeCluster:
    def __init__(self, world: SimWorld) -> None:
        self._world = world
        self.view = ClusterView(version=1, cluster_id="c")
        self.newest: ClusterView | None = None
        """What `catch_up` finds; None: the store does not answer."""
        self.caught_up = 0

    def lead(self, nodes: Iterable[int] = (OWN, OTHER, THIRD), **leaders: tuple[int, ...]) -> ClusterView:
        """A view with these topics; the leader of each partition."""
        topics = {
            name: Topic(
                name=name,
                topic_id=new_uuid(self._world.random),
                partitions=tuple(_state(leader) for leader in of_partitions),
            )
            for name, of_partitions in leaders.items()
        }
        self.view = self.newest = ClusterView(
            version=self.view.version + 1,
            cluster_id="c",
            nodes={node_id: _node(node_id) for node_id in nodes},
            topics=topics,
        )
        return self.view

    async def catch_up(self) -> None:
        self.caught_up += 1
        await asyncio.sleep(1)
        if self.newest is None:
            raise CoordinationError("the store is down")
        self.view = self.newest


def _state(leader: int) -> PartitionState:
    nodes = (OWN, OTHER, THIRD)
    return PartitionState(replicas=nodes, isr=nodes, leader=leader, leader_epoch=1)


def _node(node_id: int) -> Node:
    endpoint = Endpoint(listener="A", host="h", port=1)
    return Node(node_id=node_id, epoch=1, host_id="h", hostname="h", endpoints=(endpoint,))


class FakePeers:
    """Answers a request when the test says so."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, Mapping[str, Any], asyncio.Future[Any]]] = []
        self.dropped: list[int] = []

    def drop(self, node_id: int, purpose: str) -> None:
        """As Peers: the requests of the connection that are not answered are lost."""
        assert purpose == PURPOSE
        self.dropped.append(node_id)
        for number, (asked, _, reply) in enumerate(self.requests):
            if asked == node_id and not reply.done():
                self.lose(to=number)

    async def request(
        self,
        node_id: int,
        api_key: int,
        version: int | None,
        body: Mapping[str, Any],
        timeout_ms: int,
        *,
        purpose: str,
    ) -> Any:
        assert (api_key, version) == (ApiKey.WRITE_TXN_MARKERS, None)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.requests.append((node_id, body, reply))
        return await reply

    def asked(self) -> list[tuple[int, list[tuple[int, dict[str, list[int]]]]]]:
        """Of each request the node, and the producers with their partitions by topic."""
        return [
            (
                node_id,
                [
                    (
                        marker["producer_id"],
                        {topic["name"]: topic["partition_indexes"] for topic in marker["topics"]},
                    )
                    for marker in body["markers"]
                ],
            )
            for node_id, body, _ in self.requests
        ]

    def reply(self, codes: Mapping[tuple[int, str, int], ErrorCode], *, to: int = 0) -> None:
        self.requests[to][2].set_result(
            SimpleNamespace(
                markers=[
                    SimpleNamespace(
                        producer_id=producer_id,
                        topics=[
                            SimpleNamespace(
                                name=topic,
                                partitions=[SimpleNamespace(partition_index=index, error_code=code)],
                            )
                        ],
                    )
                    for (producer_id, topic, index), code in codes.items()
                ]
            )
        )

    def lose(self, *, to: int = 0) -> None:
        self.requests[to][2].set_exception(PeerLost("node 2: gone", sent=True))

    def time_out(self, *, to: int = 0) -> None:
        self.requests[to][2].set_exception(PeerTimedOut("node 2: no reply", sent=True))


class FakeWriter:
    def __init__(self) -> None:
        self.written: list[tuple[Marker, tuple[TopicPartition, ...]]] = []
        self.code = ErrorCode.none

    def write(self, marker: Marker, names: Iterable[TopicPartition], answer: OnWritten) -> None:
        self.written.append((marker, tuple(names)))
        answer(dict.fromkeys(self.written[-1][1], self.code))


class Lab:
    def __init__(self, world: SimWorld) -> None:
        self.cluster = FakeCluster(world)
        self.peers = FakePeers()
        self.writer = FakeWriter()
        self.answers: list[tuple[int, dict[str, MarkerOutcome]]] = []
        self.elected: list[tuple[int, str]] = []
        self.sender = MarkerSender(
            node_id=OWN,
            cluster=self.cluster,
            peers=self.peers,
            writer=self.writer,
            clock=world.clock,
            tasks=world.tasks,
        )

    def send(self, *names: str, number: int = 1, producer_id: int = 7) -> None:
        command = SendMarkers(
            number=number,
            producer=Producer(producer_id, 4),
            committed=True,
            transaction_version=2,
            partitions=partitions(*names),
        )
        self.sender.send(command, 9, self._answered)

    def change(self, **leaders: tuple[int, ...]) -> None:
        """Another view, with all nodes."""
        old = self.cluster.view
        self.sender.apply_view(old, self.cluster.lead(**leaders))

    def _answered(self, answer: MarkersAnswered | LeaderElected) -> None:
        if isinstance(answer, LeaderElected):
            self.elected.append((answer.number, str(answer.partition)))
            return
        self.answers.append((answer.number, {str(name): outcome for name, outcome in answer.outcomes}))

    async def turns(self) -> None:
        await asyncio.sleep(0.01)


def in_lab(scenario: Callable[[Lab], Awaitable[None]]) -> None:
    with Simulation(1) as simulation:
        world = simulation.start_process("node")

        async def run() -> None:
            await scenario(Lab(world))

        simulation.run(run())


def test_partitions_of_this_node_are_written_in_the_same_turn_without_a_socket() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(OWN, OWN))
        lab.send("t-1", "t-0")
        ((marker, names),) = lab.writer.written
        assert names == (("t", 0), ("t", 1))
        assert marker == Marker(
            producer_id=7, producer_epoch=4, committed=True, coordinator_epoch=9, transaction_version=2
        )
        assert lab.answers == [(1, {"t-0": WRITTEN, "t-1": WRITTEN})]
        await lab.turns()
        assert lab.peers.requests == []

    in_lab(scenario)


def test_markers_of_one_turn_go_to_a_node_in_one_request() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(OTHER, THIRD, OTHER), u=(OTHER,))
        lab.send("t-0", "t-1", "t-2", "u-0", producer_id=7)
        lab.send("t-0", number=5, producer_id=8)
        await lab.turns()
        assert sorted(lab.peers.asked()) == [
            (OTHER, [(7, {"t": [0, 2], "u": [0]}), (8, {"t": [0]})]),
            (THIRD, [(7, {"t": [1]})]),
        ]
        (_, body, _) = lab.peers.requests[0]
        assert (body["markers"][0]["coordinator_epoch"], body["markers"][0]["transaction_version"]) == (9, 2)
        assert body["markers"][0]["transaction_result"] is True

    in_lab(scenario)


def test_markers_are_collected_while_earlier_requests_are_not_answered() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(OTHER,))
        for number in range(MOST_IN_FLIGHT + 3):
            lab.send("t-0", number=number, producer_id=number)
            await asyncio.sleep(LONGEST_WAIT_S / 40)
        await asyncio.sleep(LONGEST_WAIT_S / 4)
        assert len(lab.peers.requests) == MOST_IN_FLIGHT
        lab.peers.reply({(0, "t", 0): ErrorCode.none})
        await asyncio.sleep(LONGEST_WAIT_S / 4)
        together = [(number, {"t": [0]}) for number in range(MOST_IN_FLIGHT, MOST_IN_FLIGHT + 3)]
        assert lab.peers.asked()[MOST_IN_FLIGHT:] == [(OTHER, together)]
        assert lab.answers == [(0, {"t-0": WRITTEN})]

    in_lab(scenario)


def test_a_transaction_of_many_partitions_is_ended_by_several_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(marker_sender, "MOST_PARTITIONS", 2)

    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(OTHER,) * 5)
        lab.send(*(f"t-{index}" for index in range(5)))
        for number, indexes in enumerate(([0, 1], [2, 3], [4])):
            await lab.turns()
            assert lab.peers.asked()[number:] == [(OTHER, [(7, {"t": indexes})])]
            lab.peers.reply({(7, "t", index): ErrorCode.none for index in indexes}, to=number)
        await lab.turns()
        told = {name: outcome for _, outcomes in lab.answers for name, outcome in outcomes.items()}
        assert told == {f"t-{index}": WRITTEN for index in range(5)}

    in_lab(scenario)


def test_markers_do_not_wait_for_a_request_that_waits_for_replicas() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(OTHER,))
        for number in range(MOST_IN_FLIGHT + 1):
            lab.send("t-0", number=number, producer_id=number)
            await asyncio.sleep(LONGEST_WAIT_S / 40)
        await asyncio.sleep(2 * LONGEST_WAIT_S)
        assert len(lab.peers.requests) == MOST_IN_FLIGHT + 1

    in_lab(scenario)


def test_a_reply_that_cannot_be_read_is_answered_as_retry() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(OTHER,))
        lab.send("t-0")
        await lab.turns()
        lab.peers.requests[0][2].set_result(None)
        await lab.turns()
        assert lab.answers == [(1, {"t-0": RETRY})]

    in_lab(scenario)


def test_nothing_is_sent_after_the_stop() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(OTHER,))
        lab.send("t-0")
        await lab.turns()
        await lab.sender.stop()
        lab.send("t-0", "deleted-0", number=2)
        await asyncio.sleep(2)
        assert (len(lab.peers.requests), lab.cluster.caught_up, lab.answers) == (1, 0, [])

    in_lab(scenario)


def test_each_partition_is_answered_by_its_own_code() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(OTHER, OTHER, OTHER))
        lab.send("t-0", "t-1", producer_id=7)
        lab.send("t-0", "t-2", number=5, producer_id=8)
        await lab.turns()
        lab.peers.reply(
            {
                (7, "t", 0): ErrorCode.none,
                (7, "t", 1): ErrorCode.not_leader_or_follower,
                (8, "t", 0): ErrorCode.transaction_coordinator_fenced,
            }
        )
        await lab.turns()
        assert lab.answers == [
            (1, {"t-0": WRITTEN, "t-1": RETRY}),
            (5, {"t-0": FENCED, "t-2": RETRY}),
        ], "what the reply does not name is not known"

    in_lab(scenario)


def test_a_lost_connection_is_answered_as_retry_and_the_leader_is_looked_up_again() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(OTHER,))
        lab.send("t-0")
        await lab.turns()
        lab.peers.lose()
        await lab.turns()
        assert lab.answers == [(1, {"t-0": RETRY})]
        lab.cluster.lead(t=(THIRD,))
        lab.send("t-0")
        await lab.turns()
        assert [node_id for node_id, _ in lab.peers.asked()] == [OTHER, THIRD]

    in_lab(scenario)


def test_a_connection_whose_reply_is_late_is_dropped_once() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(OTHER, THIRD))
        lab.send("t-0", "t-1")
        await lab.turns()
        lab.send("t-0", number=2)
        await lab.turns()
        lab.peers.time_out()
        await lab.turns()
        assert lab.answers == [(1, {"t-0": RETRY}), (2, {"t-0": RETRY})], "it would wait behind the first"
        lab.send("t-0", number=3)
        await lab.turns()
        assert lab.peers.dropped == [OTHER], "the next request has a connection of its own"
        lab.peers.reply({(7, "t", 0): ErrorCode.none}, to=-1)
        await lab.turns()
        assert lab.answers[2:] == [(3, {"t-0": WRITTEN})]

    in_lab(scenario)


def test_an_election_is_told_where_a_marker_is_to_be_retried_and_nowhere_else() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(NO_NODE, OTHER, OTHER, NO_NODE))
        lab.send("t-0", "t-1", "t-2", "t-3")
        await lab.turns()
        lab.peers.reply({(7, "t", 1): ErrorCode.none, (7, "t", 2): ErrorCode.not_leader_or_follower})
        await lab.turns()
        lab.change(t=(NO_NODE, OTHER, OTHER, NO_NODE))
        await lab.turns()
        assert lab.elected == [], "nothing has changed for them"
        lab.change(t=(OWN, THIRD, THIRD, NO_NODE))
        await lab.turns()
        assert sorted(lab.elected) == [(1, "t-0"), (1, "t-2")]
        lab.change(t=(OTHER, OTHER, OTHER, OTHER))
        await lab.turns()
        assert lab.elected[2:] == [(1, "t-3")], "each is told once"

    in_lab(scenario)


def test_a_marker_that_is_sent_again_waits_for_no_election() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(NO_NODE,))
        lab.send("t-0")
        lab.cluster.lead(t=(OTHER,))
        lab.send("t-0")
        await lab.turns()
        lab.change(t=(THIRD,))
        await lab.turns()
        assert lab.elected == [], "it was not answered yet"

    in_lab(scenario)


def test_what_nobody_retried_for_long_is_forgotten() -> None:
    """The coordinator has moved to another node."""

    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(NO_NODE,))
        lab.send("t-0")
        await asyncio.sleep(3)
        lab.change(t=(NO_NODE,))
        lab.change(t=(OTHER,))
        await lab.turns()
        assert lab.elected == []

    in_lab(scenario)


def test_a_node_that_left_the_cluster_is_waited_for_no_longer() -> None:
    async def scenario(lab: Lab) -> None:
        old = lab.cluster.lead(t=(OTHER, THIRD))
        lab.send("t-0", "t-1")
        await lab.turns()
        lab.sender.apply_view(old, lab.cluster.lead(nodes=(OWN, THIRD), t=(OTHER, THIRD)))
        await lab.turns()
        assert (lab.peers.dropped, lab.answers) == ([OTHER], [(1, {"t-0": RETRY})])
        lab.change(t=(THIRD, THIRD))
        await lab.turns()
        assert lab.elected == [(1, "t-0")]

    in_lab(scenario)


def test_without_a_live_leader_nothing_is_sent() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(nodes=(OWN,), t=(NO_NODE, OTHER))
        lab.send("t-0", "t-1")
        await lab.turns()
        merged = {name: outcome for _, each in lab.answers for name, outcome in each.items()}
        assert merged == {"t-0": RETRY, "t-1": RETRY}
        assert sum(len(each) for _, each in lab.answers) == 2
        assert lab.peers.requests == []

    in_lab(scenario)


def test_a_partition_counts_as_deleted_only_when_the_newest_view_lacks_it() -> None:
    async def scenario(lab: Lab) -> None:
        newest = lab.cluster.lead(created=(OWN,))
        lab.cluster.lead(t=(OWN,))
        lab.cluster.newest = newest
        lab.send("created-0", "created-1", "deleted-0")
        assert lab.answers == [], "this node's view may be old"
        await asyncio.sleep(2)
        assert lab.answers == [(1, {"created-0": RETRY, "created-1": DELETED, "deleted-0": DELETED})]

    in_lab(scenario)


def test_nothing_counts_as_deleted_while_the_store_does_not_answer() -> None:
    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(OWN,))
        lab.cluster.newest = None
        lab.send("deleted-0")
        lab.send("deleted-1", number=2)
        await asyncio.sleep(2)
        assert lab.answers == [(1, {"deleted-0": RETRY}), (2, {"deleted-1": RETRY})]
        assert lab.cluster.caught_up == 1, "one question for all"
        lab.send("deleted-0", number=3)
        await asyncio.sleep(2)
        assert lab.answers[2:] == [(3, {"deleted-0": RETRY})]

    in_lab(scenario)


def test_a_partition_that_became_unknown_during_a_question_waits_for_the_next() -> None:
    """The answer may be from before its topic was created."""

    async def scenario(lab: Lab) -> None:
        lab.cluster.lead(t=(OWN,))
        lab.send("deleted-0")
        await asyncio.sleep(0.5)
        lab.send("deleted-1", number=2)
        await asyncio.sleep(1)
        assert lab.answers == [(1, {"deleted-0": DELETED})]
        await asyncio.sleep(1)
        assert lab.answers[1:] == [(2, {"deleted-1": DELETED})]

    in_lab(scenario)
