# SPDX-License-Identifier: Apache-2.0
"""The next state of a transactional id, as plain functions of the present one.

Each takes the metadata of the newest record and gives that of the next. When a transition is allowed is
decided in transactional_id.py and ends.py. Kafka's rules, kept so that its tools and a mixed log agree:
- `previous_producer_id` is the producer id of the record before, also where it did not change.
- `client_transaction_version` changes when partitions are added and when the transaction is ended.
- An epoch is 16 bits. The last one that a client may have is 32766, so that there is always one more to fence
  it with; what comes after needs a new producer id, with epoch 0.
"""

from __future__ import annotations

from headrace.machines.transactions.versions import bumps_epoch
from headrace.types import TopicPartition
from headrace.wire.coordinator.transaction_records import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TransactionMetadata,
    TransactionState,
)

MAX_EPOCH = 32767
LAST_CLIENT_EPOCH = MAX_EPOCH - 1

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()
OPEN = frozenset({TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE})
"""A transaction that is not decided. The second is never written; if found, it has to be aborted, too."""
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


def is_exhausted(epoch: int) -> bool:
    return epoch >= LAST_CLIENT_EPOCH


def created(producer_id: int, timeout_ms: int, wall_ms: int) -> TransactionMetadata:
    """The first record of a transactional id."""
    return TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=NO_PARTITIONS,
        last_update_timestamp=wall_ms,
        previous_producer_id=producer_id,
    )


def initialized(
    metadata: TransactionMetadata, producer_id: int, epoch: int, timeout_ms: int, wall_ms: int
) -> TransactionMetadata:
    """InitProducerId of a known transactional id."""
    return metadata._replace(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=NO_PARTITIONS,
        last_update_timestamp=wall_ms,
        start_timestamp=NO_TIMESTAMP,
        previous_producer_id=metadata.producer_id,
    )


def with_partitions(
    metadata: TransactionMetadata,
    partitions: frozenset[TopicPartition],
    transaction_version: int,
    wall_ms: int,
) -> TransactionMetadata:
    """Partitions were added: the first ones begin the transaction."""
    return metadata._replace(
        state=TransactionState.ONGOING,
        partitions=metadata.partitions | partitions,
        last_update_timestamp=wall_ms,
        start_timestamp=metadata.start_timestamp if metadata.state in OPEN else wall_ms,
        previous_producer_id=metadata.producer_id,
        client_transaction_version=transaction_version,
    )


def ended_by_client(
    metadata: TransactionMetadata,
    committed: bool,
    transaction_version: int,
    next_producer_id: int,
    wall_ms: int,
) -> TransactionMetadata:
    """The decision a client asked for. An abort may end a transaction that never began (KIP-890)."""
    epoch = metadata.producer_epoch
    return metadata._replace(
        producer_epoch=min(epoch + 1, MAX_EPOCH) if bumps_epoch(transaction_version) else epoch,
        state=TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
        last_update_timestamp=wall_ms,
        start_timestamp=metadata.start_timestamp if metadata.state in OPEN else wall_ms,
        previous_producer_id=metadata.producer_id,
        next_producer_id=next_producer_id,
        client_transaction_version=transaction_version,
    )


def aborted_by_coordinator(
    metadata: TransactionMetadata, next_producer_id: int, wall_ms: int
) -> TransactionMetadata:
    """Timed out, or left over by an earlier producer: the epoch rises once, whatever the client's version.

    The transaction is ended by the version in its own record, because clients of both may share an id.
    """
    return metadata._replace(
        producer_epoch=min(metadata.producer_epoch + 1, MAX_EPOCH),
        state=TransactionState.PREPARE_ABORT,
        last_update_timestamp=wall_ms,
        previous_producer_id=metadata.producer_id,
        next_producer_id=next_producer_id,
    )


def completed(metadata: TransactionMetadata, wall_ms: int) -> TransactionMetadata:
    """All markers of a prepared transaction are written."""
    commit = metadata.state is TransactionState.PREPARE_COMMIT
    rotates = bumps_epoch(metadata.client_transaction_version) and metadata.next_producer_id != NO_PRODUCER_ID
    return metadata._replace(
        producer_id=metadata.next_producer_id if rotates else metadata.producer_id,
        producer_epoch=0 if rotates else metadata.producer_epoch,
        state=TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT,
        partitions=NO_PARTITIONS,
        last_update_timestamp=wall_ms,
        previous_producer_id=metadata.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
