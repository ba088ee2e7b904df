# SPDX-License-Identifier: Apache-2.0
"""Which events of a transactional id need no log (R17): the driver refuses the others below the minimum."""

from __future__ import annotations

from headrace.machines.machine import Loaded, ReplyToken, TimerFired
from headrace.machines.transactions.events import (
    EndTxn,
    ExpirationCheck,
    InitProducerId,
    LeaderElected,
    Producer,
    VerifyPartitionsInTxn,
)
from headrace.machines.transactions.transactional_id import MARKERS, TIMEOUT
from headrace.types import TopicPartition
from headrace.wire.coordinator.transaction_records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from tests.harness.transactions.coordinator import ID, new_machine

PRODUCER, TOKEN = Producer(1, 0), ReplyToken(1)


def test_verification_and_resent_markers_need_no_log() -> None:
    machine = new_machine()
    asked = (TopicPartition("t", 0),)
    assert not machine.may_write(VerifyPartitionsInTxn(token=TOKEN, producer=PRODUCER, partitions=asked))
    assert not machine.may_write(TimerFired(MARKERS))
    assert not machine.may_write(LeaderElected(number=1, partition=asked[0]))


def test_what_changes_the_state_needs_it() -> None:
    machine = new_machine()
    assert machine.may_write(InitProducerId(token=TOKEN, timeout_ms=1))
    assert machine.may_write(EndTxn(token=TOKEN, producer=PRODUCER, committed=True, transaction_version=2))
    assert machine.may_write(TimerFired(TIMEOUT))
    assert machine.may_write(ExpirationCheck())


def test_a_load_needs_it_only_to_complete_a_transaction_without_partitions() -> None:
    machine = new_machine()
    assert not machine.may_write(Loaded())
    for partitions, writes in ((frozenset({TopicPartition("t", 0)}), False), (frozenset(), True)):
        prepared = TransactionMetadata(1, 0, 60_000, TransactionState.PREPARE_ABORT, partitions, 0)
        machine.apply(TransactionRecord(ID, prepared))
        assert machine.may_write(Loaded()) is writes
