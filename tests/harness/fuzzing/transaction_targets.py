# SPDX-License-Identifier: Apache-2.0
"""Target: a record of `__transaction_state`, and a transactional id that serves with what it says.

DecodeError may come out of the bytes, nothing out of the machine; what the machine writes can be written.
Read next: catalog.py, headrace/machines/transactions/transactional_id.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import DecodeError
from headrace.machines.machine import Effects, Event, Loaded, Now, ReplyToken, TimerFired
from headrace.machines.transactions.events import (
    AddPartitionsToTxn,
    EndTxn,
    ExpirationCheck,
    InitProducerId,
    MarkerOutcome,
    MarkersAnswered,
    Producer,
    ProducerIdAllocated,
    SendMarkers,
)
from headrace.machines.transactions.listing import describe
from headrace.machines.transactions.transactional_id import (
    MARKERS,
    TIMEOUT,
    TransactionalId,
    TransactionSettings,
)
from headrace.machines.transactions.versions import BEFORE_KIP_890, KIP_890
from headrace.types import TopicPartition
from headrace.wire.coordinator.transaction_records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
    decode,
    encode,
)
from tests.harness.fuzzing.target import Target

_NOW = Now(1_000_000, 1_700_000_000_000)
_PARTITION = TopicPartition("t", 0)
_TOKEN = ReplyToken(1)


def load_transaction(data: bytes) -> None:
    """The first byte is the size of the key; the value is what is left, if anything."""
    if not data:
        return
    key, value = data[1 : 1 + data[0]], data[1 + data[0] :] or None
    try:
        record = decode(key, value)
    except DecodeError:
        return
    if record is None:
        return
    assert decode(*encode(record)) == record
    for events in _histories(record):
        machine = TransactionalId(record.transactional_id, TransactionSettings())
        machine.apply(record)
        for event in (Loaded(), *events):
            _write(machine.step(event, _NOW), machine)
            describe(machine)


def _histories(record: TransactionRecord) -> Sequence[Sequence[Event]]:
    value = record.value
    producer = Producer(0, 0) if value is None else Producer(value.producer_id, value.producer_epoch)
    allocated = ProducerIdAllocated(producer_id=9)
    init = InitProducerId(token=_TOKEN, timeout_ms=1000)
    add = AddPartitionsToTxn(
        token=_TOKEN,
        producer=producer,
        partitions=frozenset({_PARTITION}),
        transaction_version=KIP_890,
    )
    ends = [
        EndTxn(token=_TOKEN, producer=producer, committed=committed, transaction_version=version)
        for committed in (False, True)
        for version in (BEFORE_KIP_890, KIP_890)
    ]
    return [
        [init, allocated, init, allocated],
        *([add, end, allocated] for end in ends),
        [TimerFired(TIMEOUT), allocated, TimerFired(MARKERS)],
        [ExpirationCheck(), init],
    ]


def _write(effects: Effects, machine: TransactionalId) -> None:
    """Markers that are sent are written at once."""
    for record in effects.records:
        assert isinstance(record, TransactionRecord)
        assert decode(*encode(record)) == record
    for command in effects.commands:
        assert isinstance(command, SendMarkers)
        written = [(each, MarkerOutcome.WRITTEN) for each in command.partitions]
        _write(machine.step(MarkersAnswered(number=command.number, outcomes=written), _NOW), machine)


def _records() -> Sequence[bytes]:
    values = [
        TransactionMetadata(
            producer_id=7,
            producer_epoch=epoch,
            timeout_ms=1000,
            state=state,
            partitions=frozenset() if state is TransactionState.EMPTY else partitions,
            last_update_timestamp=5,
            previous_producer_id=7,
            client_transaction_version=version,
        )
        for state in TransactionState
        for epoch in (0, 32766, 32767)
        for version in (BEFORE_KIP_890, KIP_890)
        for partitions in (frozenset[TopicPartition](), frozenset({_PARTITION, TopicPartition("u", 3)}))
    ]
    pairs = [encode(TransactionRecord("tx", value)) for value in (*values, None)]
    return [bytes([len(key)]) + key + (value or b"") for key, value in pairs]


TRANSACTION_TARGETS = (Target(name="transaction-log", run=load_transaction, sound=_records),)
