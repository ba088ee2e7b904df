# SPDX-License-Identifier: Apache-2.0
"""Questions to the coordinator of a transactional id: here, on other nodes, together, repeated, and ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.coordinators.machine_driver import Answer
from headrace.broker.metrics import TransactionCounters
from headrace.broker.replication.peers import PeerLost
from headrace.broker.transactions import enrolment
from headrace.broker.transactions.concurrent_retry import RETRY_S
from headrace.broker.transactions.enrolment import Enrolment, Errors
from headrace.errors import ApiError
from headrace.machines.machine import Event, ReplyBody, ReplyToken
from headrace.machines.transactions.events import (
    AddPartitionsToTxn,
    ErrorReply,
    Producer,
    VerifyPartitionsInTxn,
    VerifyPartitionsReply,
)
from headrace.testing.simworld import Simulation, SimWorld
from headrace.types import Node, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import decode_reply, encode_reply, encode_request

HERE, ELSEWHERE = 1, 2
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = Producer(7, 3)


@dataclass
class FakeCoordinator:
    """Answers what the test says, in order; the last one again and again."""

    node_id: int | None = HERE
    replies: list[ReplyBody | ApiError] = field(default_factory=list)
    asked: list[Event] = field(default_factory=list)

    def coordinator_of(self, transactional_id: str) -> Node | None:
        if self.node_id is None:
            return None
        return SimpleNamespace(node_id=self.node_id)  # type: ignore[return-value]

    def submit(
        self, transactional_id: str, make_event: Callable[[ReplyToken], Event], answer: Answer
    ) -> None:
        self.asked.append(make_event(ReplyToken(1)))
        answer(self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])


@dataclass
class FakePeers:
    """Replies go through their bytes; each request waits until the test answers it."""

    requests: list[Any] = field(default_factory=list)
    answers: list[asyncio.Future[dict[str, Any]]] = field(default_factory=list)
    dropped: int = 0

    def drop(self, node_id: int, purpose: str) -> None:
        self.dropped += 1

    async def request(
        self, node_id: int, api_key: int, version: int, body: Any, timeout_ms: int, *, purpose: str
    ) -> Any:
        assert (node_id, api_key, version) == (ELSEWHERE, ApiKey.ADD_PARTITIONS_TO_TXN, 5)
        assert encode_request(api_key, version, 1, "node-1", body)
        self.requests.append(body["transactions"])
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        fields = await answer
        frame = encode_reply(api_key, version, 1, fields)
        return decode_reply(api_key, version, memoryview(frame)[4:])[1]


class Asked:
    """An enrolment in simulated time, and what it answered."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.coordinator = FakeCoordinator()
        self.peers = FakePeers()
        self.counters = TransactionCounters()
        self.enrolment = Enrolment(
            node_id=HERE,
            clock=world.clock,
            tasks=world.tasks,
            coordinator=self.coordinator,
            peers=self.peers,  # type: ignore[arg-type]
            counters=self.counters,
        )
        self.answers: dict[str, Errors] = {}

    def ask(
        self,
        name: str,
        *partitions: TopicPartition,
        verify_only: bool = False,
        transactional_id: str = "tx",
        producer: Producer = PRODUCER,
    ) -> None:
        def answer(errors: Errors) -> None:
            assert name not in self.answers, "answered twice"
            self.answers[name] = errors

        self.enrolment.enrol(
            transactional_id, producer, frozenset(partitions or (P0,)), verify_only=verify_only, answer=answer
        )

    def codes(self, name: str) -> dict[int, ErrorCode]:
        return {partition: code for (_, partition), code in sorted(self.answers[name].items())}

    async def pass_s(self, seconds: float) -> None:
        await self.world.tasks.sleep(seconds)


def in_simulated_time(scenario: Callable[[Asked], Awaitable[None]]) -> None:
    with Simulation(1) as simulation:

        async def main() -> None:
            await scenario(Asked(simulation.start_process("node")))

        simulation.run(main())


def reply_of(transactional_id: str = "tx", **codes: ErrorCode) -> dict[str, Any]:
    """`p0=…`: by partition of the topic t."""
    results = [
        {"partition_index": int(name[1:]), "partition_error_code": code} for name, code in codes.items()
    ]
    topics = [{"name": "t", "results_by_partition": results}]
    by_transaction = [{"transactional_id": transactional_id, "topic_results": topics}]
    return {"error_code": ErrorCode.none, "results_by_transaction": by_transaction}


OK, CONCURRENT = ErrorCode.none, ErrorCode.concurrent_transactions


def test_the_coordinator_of_this_node_adds_partitions_in_version_2() -> None:
    async def scenario(asked: Asked) -> None:
        asked.coordinator.replies = [ErrorReply()]
        asked.ask("a", P0, P1)
        assert asked.codes("a") == {0: OK, 1: OK}
        (event,) = asked.coordinator.asked
        assert isinstance(event, AddPartitionsToTxn)
        assert (event.producer, event.partitions, event.transaction_version) == (PRODUCER, {P0, P1}, 2)

    in_simulated_time(scenario)


def test_the_coordinator_of_this_node_verifies_each_partition() -> None:
    async def scenario(asked: Asked) -> None:
        asked.coordinator.replies = [VerifyPartitionsReply(errors=(OK, ErrorCode.transaction_abortable))]
        asked.ask("a", P0, P1, verify_only=True)
        (event,) = asked.coordinator.asked
        assert isinstance(event, VerifyPartitionsInTxn)
        refused = event.partitions[1]
        assert asked.answers["a"][refused] is ErrorCode.transaction_abortable
        assert sorted(asked.answers["a"].values()) == [OK, ErrorCode.transaction_abortable]
        assert asked.counters.failed_verifications == 1

    in_simulated_time(scenario)


def test_no_coordinator_and_one_that_is_loading_are_told_as_they_are() -> None:
    async def scenario(asked: Asked) -> None:
        asked.coordinator.replies = [ApiError(ErrorCode.coordinator_load_in_progress)]
        asked.ask("loading")
        asked.coordinator.node_id = None
        asked.ask("none")
        assert asked.codes("loading") == {0: ErrorCode.coordinator_load_in_progress}
        assert asked.codes("none") == {0: ErrorCode.coordinator_not_available}

    in_simulated_time(scenario)


def test_concurrent_transactions_are_retried_until_the_markers_are_written() -> None:
    async def scenario(asked: Asked) -> None:
        asked.coordinator.replies = [ErrorReply(error=CONCURRENT)] * 3 + [ErrorReply()]
        asked.ask("a")
        assert asked.answers == {}
        await asked.pass_s(RETRY_S)
        assert asked.codes("a") == {0: OK}
        assert len(asked.coordinator.asked) == 4

    in_simulated_time(scenario)


def test_concurrent_transactions_are_told_after_a_tenth_of_a_second() -> None:
    async def scenario(asked: Asked) -> None:
        asked.coordinator.replies = [ErrorReply(error=CONCURRENT)]
        asked.ask("a")
        await asked.pass_s(0.9 * RETRY_S)
        assert asked.answers == {}
        await asked.pass_s(0.2 * RETRY_S)
        assert asked.codes("a") == {0: CONCURRENT}
        assert 5 <= len(asked.coordinator.asked) <= 12

    in_simulated_time(scenario)


def test_a_verification_is_not_retried() -> None:
    async def scenario(asked: Asked) -> None:
        asked.coordinator.replies = [VerifyPartitionsReply(errors=(CONCURRENT,))]
        asked.ask("a", verify_only=True)
        assert asked.codes("a") == {0: CONCURRENT}

    in_simulated_time(scenario)


def test_one_request_is_in_flight_and_what_comes_meanwhile_is_sent_together() -> None:
    async def scenario(asked: Asked) -> None:
        asked.coordinator.node_id = ELSEWHERE
        asked.ask("a")
        await asked.pass_s(0.01)
        asked.ask("b", P1)
        asked.ask("c", P0, P1)
        asked.ask("d", transactional_id="other", producer=Producer(8, 0), verify_only=True)
        await asked.pass_s(0.01)
        assert len(asked.peers.requests) == 1
        asked.peers.answers[0].set_result(reply_of(p0=OK))
        await asked.pass_s(0.01)
        assert asked.codes("a") == {0: OK}
        together, other = asked.peers.requests[1]
        assert together["topics"] == [{"name": "t", "partitions": [0, 1]}]
        assert (together["producer_id"], together["producer_epoch"], together["verify_only"]) == (7, 3, False)
        assert (other["transactional_id"], other["verify_only"]) == ("other", True)
        reply = reply_of(p0=OK, p1=ErrorCode.producer_fenced)
        reply["results_by_transaction"] += reply_of("other", p0=OK)["results_by_transaction"]
        asked.peers.answers[1].set_result(reply)
        await asked.pass_s(0.01)
        assert asked.codes("b") == {1: ErrorCode.producer_fenced}
        assert asked.codes("c") == {0: OK, 1: ErrorCode.producer_fenced}
        assert asked.codes("d") == {0: OK}

    in_simulated_time(scenario)


def test_a_request_asks_about_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enrolment, "MOST_PARTITIONS", 2)

    async def scenario(asked: Asked) -> None:
        asked.coordinator.node_id = ELSEWHERE
        asked.ask("a", P0, P1)
        asked.ask("b", P0, transactional_id="other")
        for request, reply in enumerate((reply_of(p0=OK, p1=OK), reply_of("other", p0=OK))):
            await asked.pass_s(0.01)
            assert len(asked.peers.requests) == request + 1
            asked.peers.answers[request].set_result(reply)
        await asked.pass_s(0.01)
        assert (asked.codes("a"), asked.codes("b")) == ({0: OK, 1: OK}, {0: OK})

    in_simulated_time(scenario)


def test_verification_and_addition_of_one_transactional_id_go_one_after_the_other() -> None:
    """A request has one entry for each transactional id."""

    async def scenario(asked: Asked) -> None:
        asked.coordinator.node_id = ELSEWHERE
        asked.ask("a", verify_only=True)
        asked.ask("b", P1)
        for request, partition in ((0, 0), (1, 1)):
            await asked.pass_s(0.01)
            assert len(asked.peers.requests) == request + 1
            asked.peers.answers[request].set_result(reply_of(**{f"p{partition}": OK}))
        await asked.pass_s(0.01)
        assert [each["verify_only"] for (each,) in asked.peers.requests] == [True, False]
        assert (asked.codes("a"), asked.codes("b")) == ({0: OK}, {1: OK})

    in_simulated_time(scenario)


def test_a_newer_epoch_fences_the_questions_of_older_ones_that_wait() -> None:
    async def scenario(asked: Asked) -> None:
        asked.coordinator.node_id = ELSEWHERE
        asked.ask("in flight")
        await asked.pass_s(0.01)
        asked.ask("old")
        asked.ask("new", producer=Producer(7, 4))
        assert asked.codes("old") == {0: ErrorCode.invalid_producer_epoch}
        asked.ask("too late")
        assert asked.codes("too late") == {0: ErrorCode.invalid_producer_epoch}
        assert set(asked.answers) == {"old", "too late"}

    in_simulated_time(scenario)


def test_a_node_out_of_reach_answers_also_what_waits_behind_the_request() -> None:
    async def scenario(asked: Asked) -> None:
        asked.coordinator.node_id = ELSEWHERE
        asked.ask("a")
        await asked.pass_s(0.01)
        asked.ask("b")
        asked.peers.answers[0].set_exception(PeerLost("node 2: gone", sent=True))
        await asked.pass_s(0.01)
        network = {0: ErrorCode.network_exception}
        assert (asked.codes("a"), asked.codes("b")) == (network, network)
        assert asked.peers.dropped == 1, "the late reply must not delay those of the next requests"
        asked.ask("c")
        await asked.pass_s(0.01)
        asked.peers.answers[1].set_result(reply_of(p0=OK))
        await asked.pass_s(0.01)
        assert asked.codes("c") == {0: OK}

    in_simulated_time(scenario)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.cluster_authorization_failed, ErrorCode.invalid_txn_state),
        (ErrorCode.unknown_server_error, ErrorCode.unknown_server_error),
    ],
)
def test_an_error_of_the_whole_request_is_told_for_every_partition(code: ErrorCode, told: ErrorCode) -> None:
    async def scenario(asked: Asked) -> None:
        asked.coordinator.node_id = ELSEWHERE
        asked.ask("a", P0, P1)
        await asked.pass_s(0.01)
        asked.peers.answers[0].set_result({"error_code": code, "results_by_transaction": []})
        await asked.pass_s(0.01)
        assert asked.codes("a") == {0: told, 1: told}

    in_simulated_time(scenario)


def test_a_partition_that_the_reply_does_not_name_is_not_verified() -> None:
    async def scenario(asked: Asked) -> None:
        asked.coordinator.node_id = ELSEWHERE
        asked.ask("a", P0, P1)
        await asked.pass_s(0.01)
        asked.peers.answers[0].set_result(reply_of(p0=OK))
        await asked.pass_s(0.01)
        assert asked.codes("a") == {0: OK, 1: ErrorCode.network_exception}

    in_simulated_time(scenario)


def test_a_stop_answers_what_is_in_flight_what_waits_and_what_is_retried() -> None:
    async def scenario(asked: Asked) -> None:
        asked.coordinator.replies = [ErrorReply(error=CONCURRENT)]
        asked.ask("retried")
        asked.coordinator.node_id = ELSEWHERE
        asked.ask("in flight")
        await asked.pass_s(0.0005)
        asked.ask("waiting")
        assert asked.answers == {}
        asked.enrolment.stop()
        asked.ask("late")
        network = {0: ErrorCode.network_exception}
        assert [asked.codes(name) for name in ("retried", "in flight", "waiting", "late")] == [network] * 4
        asked.peers.answers[0].set_result(reply_of(p0=OK))
        await asked.pass_s(RETRY_S)

    in_simulated_time(scenario)
