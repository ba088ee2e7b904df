# SPDX-License-Identifier: Apache-2.0
"""Whether EndTxn ends a transaction, repeats an end, or is refused: a plain function of state and request.

Before KIP-890 a repeated EndTxn has the epoch of the first, and an end that was asked for before is simply
confirmed. With KIP-890 the epoch tells which transaction is meant: the present epoch means the next one,
which may be aborted before it has begun; the epoch before means the last one, whose end is repeated.
Read next: transactional_id.py, transitions.py.
"""

from __future__ import annotations

from headrace.machines.transactions.events import EndTxn
from headrace.machines.transactions.transitions import LAST_CLIENT_EPOCH, OPEN
from headrace.machines.transactions.versions import bumps_epoch
from headrace.wire.coordinator.transaction_records import TransactionMetadata, TransactionState
from headrace.wire.error_codes import ErrorCode


def answer_without_a_change(
    metadata: TransactionMetadata, request: EndTxn, *, in_flight: bool
) -> ErrorCode | None:
    """None: the transaction is to be ended now. ErrorCode.none: it has ended as asked before.

    `in_flight`: a transition has begun and is not complete.
    """
    if bumps_epoch(request.transaction_version):
        return _answer(metadata, request, in_flight)
    return _answer_before_kip_890(metadata, request, in_flight)


def _answer_before_kip_890(
    metadata: TransactionMetadata, request: EndTxn, in_flight: bool
) -> ErrorCode | None:
    if request.producer.producer_id != metadata.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if request.producer.epoch != metadata.producer_epoch:
        return ErrorCode.producer_fenced
    if in_flight:
        return ErrorCode.concurrent_transactions
    return None if metadata.state in OPEN else _repeated(metadata, request)


def _answer(metadata: TransactionMetadata, request: EndTxn, in_flight: bool) -> ErrorCode | None:
    if in_flight:  # first, because the producer may have its next producer id already
        return ErrorCode.concurrent_transactions
    producer_id, epoch = request.producer
    rotated = (
        epoch == LAST_CLIENT_EPOCH
        and metadata.producer_epoch == 0
        and producer_id == metadata.previous_producer_id
    )
    if producer_id != metadata.producer_id and not rotated:
        return ErrorCode.invalid_producer_id_mapping
    if epoch == metadata.producer_epoch:
        if metadata.state in OPEN or not request.committed:
            return None
        return ErrorCode.invalid_txn_state
    if _ended_with_a_bump(metadata) and (rotated or epoch == metadata.producer_epoch - 1):
        return _repeated(metadata, request)
    return ErrorCode.producer_fenced


def _ended_with_a_bump(metadata: TransactionMetadata) -> bool:
    """Only then was the epoch before this one that of the transaction.

    An older client raises the epoch when it starts: the one before belongs to a producer that it fenced, and
    must not get the present epoch by repeating an abort. Apache Kafka 4.3 does not tell the two apart.
    """
    return metadata.state in _COMPLETE and bumps_epoch(metadata.client_transaction_version)


_COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


def _repeated(metadata: TransactionMetadata, request: EndTxn) -> ErrorCode:
    wanted = TransactionState.COMPLETE_COMMIT if request.committed else TransactionState.COMPLETE_ABORT
    return ErrorCode.none if metadata.state is wanted else ErrorCode.invalid_txn_state
