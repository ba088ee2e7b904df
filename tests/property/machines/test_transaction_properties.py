# SPDX-License-Identifier: Apache-2.0
"""A transactional id under arbitrary histories: clients of both versions, lost answers, crashes, time.

The coordinator of the harness checks after every step that the live state is a fold of the log, that each
request is answered once, that epochs never fall and rise at every end that has to raise them, that a marker
goes out only when its decision is committed, and that no transaction gets both. Here: an accepted end has
exactly one decision, no two producers are the same, and once faults end every transaction ends. Rules are
also broken on purpose, and the test must notice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.machines.machine import Event, Loaded, Now, ReplyToken, Step
from headrace.machines.transactions import ends, transitions
from headrace.machines.transactions.events import (
    ErrorReply,
    ExpirationCheck,
    LeaderElected,
    MarkerOutcome,
    Producer,
    ProducerReply,
)
from headrace.machines.transactions.transactional_id import TransactionalId, TransactionSettings
from headrace.machines.transactions.transitions import MAX_EPOCH
from headrace.machines.transactions.versions import BEFORE_KIP_890, KIP_890
from headrace.types import TopicPartition
from headrace.wire.coordinator.transaction_records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from headrace.wire.error_codes import ErrorCode
from tests.harness.transactions.coordinator import (
    ID,
    START,
    TIMEOUT_MS,
    Coordinator,
    Held,
    new_machine,
    partitions,
)

S = TransactionState
PREPARED = {S.PREPARE_COMMIT: True, S.PREPARE_ABORT: False}
WEEK_MS = 7 * 24 * 60 * 60 * 1000
some_partitions = st.lists(st.sampled_from(["t-0", "t-1", "u-0"]), min_size=1, max_size=2, unique=True)
some_client = st.sampled_from([None, None, None, 0, 1, 2])
"""None: whoever is the present producer."""


@dataclass(slots=True, kw_only=True)
class Request:
    """A request whose answer is on its way. `log_end`: of the coordinator when it had decided."""

    kind: str
    client: Client
    producer: Producer | None = None
    committed: bool = False
    names: tuple[str, ...] = ()
    log_end: int = 0


@dataclass(slots=True)
class Client:
    version: int
    producer: Producer
    """What it believes to be."""


class TransactionHistory(RuleBasedStateMachine):
    coordinator_type: type[Coordinator] = Coordinator
    make: Callable[[], TransactionalId] = staticmethod(new_machine)

    def __init__(self) -> None:
        super().__init__()
        self.clients = [
            Client(version, Producer(number, 0))
            for number, version in enumerate((BEFORE_KIP_890, KIP_890, KIP_890))
        ]
        self.requests: dict[ReplyToken, Request] = {}
        self.owners: dict[Producer, Client] = {}
        self.fenced = False

    @initialize(
        epoch=st.sampled_from([None, 0, 32763, 32764, 32765, 32766, 32767]),
        starting=st.lists(st.sampled_from([0, 1, 2]), max_size=3),
    )
    def begin(self, epoch: int | None, starting: list[int]) -> None:
        history = []
        if epoch is not None:
            loaded = TransactionMetadata(
                7, epoch, TIMEOUT_MS, S.EMPTY, frozenset(), START.wall_ms, previous_producer_id=7
            )
            history.append(TransactionRecord(ID, loaded))
            self.clients[1].producer = Producer(7, epoch)
            self.owners[self.clients[1].producer] = self.clients[1]
        self.coordinator = self.coordinator_type(self.make, history=history, commits=False)
        for number in starting:
            self.a_producer_starts(number)

    def pick(self, number: int | None) -> Client:
        if number is not None:
            return self.clients[number]
        metadata = self.coordinator.machine.metadata
        present = None if metadata is None else Producer(metadata.producer_id, metadata.producer_epoch)
        return next((client for client in self.clients if client.producer == present), self.clients[0])

    # --- what clients do ---------------------------------------------------------------------------------

    @rule(number=some_client, goes_on=st.booleans())
    def a_producer_is_initialized(self, number: int | None, goes_on: bool) -> None:
        client = self.pick(number)
        expected = client.producer if goes_on else None
        token = self.coordinator.send_init(expected=expected)
        self.expect(token, Request(kind="init", client=client))

    @rule(number=some_client, names=some_partitions)
    def partitions_are_added(self, number: int | None, names: list[str]) -> None:
        client = self.pick(number)
        token = self.coordinator.send_add(client.producer, *names, version=client.version)
        self.expect(token, Request(kind="add", client=client, producer=client.producer, names=tuple(names)))

    @rule(number=some_client, committed=st.booleans())
    def a_transaction_is_ended(self, number: int | None, committed: bool) -> None:
        client = self.pick(number)
        token = self.coordinator.send_end(client.producer, committed=committed, version=client.version)
        self.expect(token, Request(kind="end", client=client, producer=client.producer, committed=committed))

    @rule(number=some_client, names=some_partitions)
    def partitions_are_verified(self, number: int | None, names: list[str]) -> None:
        client = self.pick(number)
        token = self.coordinator.send_verify(client.producer, *names)
        self.expect(token, Request(kind="verify", client=client))

    @rule(number=some_client)
    def a_producer_starts(self, number: int | None) -> None:
        """Without faults, so that histories get somewhere; so do the transactions below."""
        client = self.pick(number)
        before = client.producer
        for _ in range(2):  # the first may have to abort a transaction
            if client.producer == before:
                self.a_producer_is_initialized(number, goes_on=False)
                self.all_is_well()

    @rule(number=some_client, committed=st.booleans(), names=some_partitions, whole=st.booleans())
    def a_transaction(self, number: int | None, committed: bool, names: list[str], whole: bool) -> None:
        self.partitions_are_added(number, names)
        self.records_are_committed(9)
        self.a_transaction_is_ended(number, committed)
        if whole:
            self.all_is_well()

    def all_is_well(self) -> None:
        self.coordinator.allocate_all()
        self.records_are_committed(9)
        self.all_markers_are_written()
        self.records_are_committed(9)

    # --- what happens around them ------------------------------------------------------------------------

    @rule(count=st.sampled_from([1, 2, 9]))
    def records_are_committed(self, count: int) -> None:
        coordinator = self.coordinator
        coordinator.commit(min(coordinator.committed + count, len(coordinator.log)))
        self.deliver()

    @precondition(lambda self: self.coordinator.questions)
    @rule(found=st.sampled_from([True, True, False]))
    def a_producer_id_is_allocated(self, found: bool) -> None:
        self.coordinator.allocate(ErrorCode.none if found else ErrorCode.coordinator_not_available)
        self.deliver()

    @precondition(lambda self: self.coordinator.sent[self.coordinator.answered_from :])
    @rule(
        place=st.integers(0, 9),
        names=some_partitions,
        outcome=st.sampled_from([*[MarkerOutcome.WRITTEN] * 4, *MarkerOutcome]),
    )
    def markers_are_answered(self, place: int, names: list[str], outcome: MarkerOutcome) -> None:
        sent = self.coordinator.sent[self.coordinator.answered_from :]
        command = sent[place % len(sent)]
        self.fenced |= outcome is MarkerOutcome.FENCED
        self.coordinator.answer(command, outcome, *names)
        self.deliver()

    @rule()
    def all_markers_are_written(self) -> None:
        self.coordinator.write_markers()
        self.deliver()

    @rule(milliseconds=st.sampled_from([10, 1_000, 30_000, TIMEOUT_MS]))
    def time_passes(self, milliseconds: int) -> None:
        self.coordinator.advance(milliseconds)
        self.deliver()

    @rule(jump_ms=st.sampled_from([0, 1000, 1000, -1000, -WEEK_MS, WEEK_MS]))
    def the_wall_clock_jumps_and_ids_expire(self, jump_ms: int) -> None:
        now = self.coordinator.now
        self.coordinator.now = Now(now.monotonic_ms, now.wall_ms + jump_ms)
        self.coordinator.submit(ExpirationCheck())
        self.deliver()

    @rule(keep=st.sampled_from([0, 0, 1, 2]))
    def the_coordinator_crashes(self, keep: int) -> None:
        """Requests under way are lost, records that are not committed perhaps."""
        self.requests.clear()
        self.fenced = False
        self.coordinator.crash(keep)
        self.deliver()

    # --- what must hold ----------------------------------------------------------------------------------

    def expect(self, token: ReplyToken, request: Request) -> None:
        request.log_end = len(self.coordinator.log)
        self.requests[token] = request
        self.deliver()

    def deliver(self) -> None:
        for token in [token for token in self.requests if token in self.coordinator.replies]:
            self.answered(self.requests.pop(token), self.coordinator.replies[token])

    def answered(self, request: Request, reply: object) -> None:
        if isinstance(reply, ErrorReply) and reply.error is ErrorCode.none:
            assert request.producer is not None
            assert self.was_added(request.producer, partitions(*request.names))
        if not isinstance(reply, ProducerReply) or reply.error is not ErrorCode.none:
            return
        if request.kind == "end":
            assert request.producer is not None
            decided = self.decisions_of(request, request.producer)
            assert decided[-1:] == [request.committed], "an accepted end was not decided so"
            once = request.client.version == BEFORE_KIP_890 or len(decided) == 1
            assert once, "an accepted end was decided twice"
        if reply.producer.producer_id != -1:
            owner = self.owners.setdefault(reply.producer, request.client)
            assert owner is request.client, f"{reply.producer} was given to two clients"
            request.client.producer = reply.producer

    def committed_values(self, end: int | None = None) -> list[TransactionMetadata]:
        records = self.coordinator.log[: self.coordinator.committed][:end]
        return [record.value for record in records if record.value is not None]

    def was_added(self, producer: Producer, added: frozenset[TopicPartition]) -> bool:
        return any(
            value.state is S.ONGOING
            and (value.producer_id, value.producer_epoch) == producer
            and added <= value.partitions
            for value in self.committed_values()
        )

    def decisions_of(self, request: Request, producer: Producer) -> list[bool]:
        """Of the transactions that a producer ended: with KIP-890 there is one for each epoch."""
        raised = request.client.version == KIP_890
        epoch = min(producer.epoch + 1, MAX_EPOCH) if raised else producer.epoch
        return [
            PREPARED[value.state]
            for value in self.committed_values(None if raised else request.log_end)
            if value.state in PREPARED and (value.producer_id, value.producer_epoch) == (producer[0], epoch)
        ]

    def teardown(self) -> None:
        """Faults end: every transaction is decided, every marker written, every request answered."""
        if sys.exc_info()[0] is not None or not hasattr(self, "coordinator"):
            return  # a rule failed, which is what is to be told
        coordinator = self.coordinator
        coordinator.commits = True
        coordinator.commit()
        self.deliver()
        if self.fenced:
            self.the_coordinator_crashes(0)
        for _ in range(4):
            coordinator.allocate_all()
            coordinator.write_markers()
            self.deliver()
            coordinator.advance(2 * TIMEOUT_MS)
        self.deliver()
        assert not self.requests, "a request was never answered"
        ended = (None, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
        assert coordinator.state in ended, "a transaction never ended"
        coordinator.check_every_transaction_has_its_markers()


class ElectionHistory(TransactionHistory):
    """By itself, because with one more rule fewer of the faults below are found by as many histories."""

    @precondition(lambda self: self.coordinator.sent)
    @rule(place=st.integers(0, 9), names=some_partitions)
    def leaders_are_elected(self, place: int, names: list[str]) -> None:
        """Perhaps of partitions whose marker is written, is under way, or belongs to another transaction."""
        command = self.coordinator.sent[-1 - place % len(self.coordinator.sent)]
        for partition in sorted(partitions(*names)):
            self.coordinator.submit(LeaderElected(number=command.number, partition=partition))
        self.deliver()


for each in (TransactionHistory, ElectionHistory):
    each.TestCase.settings = settings(
        max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
TestTransactionHistory = TransactionHistory.TestCase
TestElectionHistory = ElectionHistory.TestCase


# --- each rule, broken on purpose ------------------------------------------------------------------------


def assert_noticed(history: type[TransactionHistory], said: str) -> None:
    search = settings(
        max_examples=500,
        stateful_step_count=40,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(AssertionError, match=said):
        run_state_machine_as_test(history, settings=search)


class EarlyMarkers(Coordinator):
    """Starts commands at once, as questions are."""

    def _hold(self, held: Held) -> None:
        for command in held.commands:
            self.send(command)
        held.commands = []
        super()._hold(held)


class ForgetfulId(TransactionalId):
    """Sends no markers again after a load."""

    def decide(self, event: Event, step: Step) -> None:
        if not (isinstance(event, Loaded) and self.metadata is not None and self.metadata.state in PREPARED):
            super().decide(event, step)


class EarlyMarkersHistory(TransactionHistory):
    coordinator_type = EarlyMarkers


class ForgetfulHistory(TransactionHistory):
    make = staticmethod(lambda: ForgetfulId(ID, TransactionSettings()))


def test_a_marker_before_its_decision_is_committed_is_noticed() -> None:
    assert_noticed(EarlyMarkersHistory, "both markers for one transaction")


def test_markers_that_are_not_sent_again_after_a_load_are_noticed() -> None:
    assert_noticed(ForgetfulHistory, "a transaction never ended")


@pytest.mark.parametrize("name", ["ended_by_client", "aborted_by_coordinator"])
def test_an_end_that_does_not_raise_the_epoch_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(transitions, name)

    def without_a_bump(metadata: TransactionMetadata, *others: object) -> TransactionMetadata:
        prepared: TransactionMetadata = right(metadata, *others)
        return prepared._replace(producer_epoch=metadata.producer_epoch)

    monkeypatch.setattr(transitions, name, without_a_bump)
    assert_noticed(TransactionHistory, "raises the epoch once")


def test_a_decision_that_can_be_changed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prepared transaction that takes another EndTxn, as if it were open."""
    everything = transitions.OPEN | transitions.PREPARED
    monkeypatch.setattr(ends, "OPEN", everything)
    monkeypatch.setattr(TransactionalId, "_in_flight", property(lambda self: self._waiting is not None))
    assert_noticed(TransactionHistory, "after <TransactionState.PREPARE")
