# SPDX-License-Identifier: Apache-2.0
"""What DescribeTransactions and ListTransactions tell of transactional ids, as plain values.

Read only when all state is committed (`when_all_committed` of the driver), for a machine is ahead of its log.
Read next: transactional_id.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from headrace.machines.transactions.transactional_id import TransactionalId
from headrace.types import TopicPartition
from headrace.wire.coordinator.transaction_records import TransactionMetadata, TransactionState

_STATES = {state.label: state for state in TransactionState}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """`partitions`: those that have no marker yet. `start_timestamp`: -1 without a transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_timestamp: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingFilter:
    """Empty collections, None and a negative duration let everything pass."""

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int = -1
    matches_id: Callable[[str], bool] | None = None
    """The compiled pattern of ListTransactions 2, against the whole id."""

    @property
    def unknown_states(self) -> list[str]:
        """They are told to the client, and let nothing pass."""
        return [state for state in self.states if state not in _STATES]


def describe(machine: TransactionalId) -> TransactionDescription | None:
    """None: TRANSACTIONAL_ID_NOT_FOUND."""
    metadata = machine.metadata
    if metadata is None:
        return None
    return TransactionDescription(
        transactional_id=machine.transactional_id,
        state=metadata.state.label,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        timeout_ms=metadata.timeout_ms,
        start_timestamp=metadata.start_timestamp,
        partitions=tuple(sorted(machine.partitions_without_marker)),
    )


def listing(machine: TransactionalId, wanted: ListingFilter, wall_ms: int) -> TransactionListing | None:
    """None: it does not exist, or the filter excludes it."""
    metadata = machine.metadata
    if metadata is None or not _passes(machine.transactional_id, metadata, wanted, wall_ms):
        return None
    return TransactionListing(
        transactional_id=machine.transactional_id,
        producer_id=metadata.producer_id,
        state=metadata.state.label,
    )


def _passes(
    transactional_id: str, metadata: TransactionMetadata, wanted: ListingFilter, wall_ms: int
) -> bool:
    """As in Kafka, an id without a transaction (-1) counts as older than any duration."""
    if wanted.producer_ids and metadata.producer_id not in wanted.producer_ids:
        return False
    if wanted.states and metadata.state.label not in wanted.states:
        return False
    if 0 <= wanted.longer_than_ms >= wall_ms - metadata.start_timestamp:
        return False
    return wanted.matches_id is None or wanted.matches_id(transactional_id)
