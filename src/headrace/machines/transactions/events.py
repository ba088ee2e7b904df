# SPDX-License-Identifier: Apache-2.0
"""Events, replies, questions and commands of the transaction state machine.

Events have no API versions; `transaction_version` is the version of the transaction protocol that the request
uses (versions.py). Replies are free of both. Like the events of a group they are not frozen, because a frozen
dataclass takes twice the time to make; nothing changes one once it is made.
Read next: transactional_id.py, versions.py, machines/machine.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from headrace.machines.machine import Command, Event, Question, ReplyBody, ReplyToken
from headrace.types import TopicPartition
from headrace.wire.coordinator.transaction_records import NO_EPOCH, NO_PRODUCER_ID
from headrace.wire.error_codes import ErrorCode


class Producer(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_EPOCH)


@dataclass(slots=True, kw_only=True)
class TransactionRequest(Event):
    """Base of every request that waits for a reply."""

    token: ReplyToken


@dataclass(slots=True, kw_only=True)
class InitProducerId(TransactionRequest):
    """`expected`: who the producer was before an error that it wants to go on after (KIP-360)."""

    timeout_ms: int
    expected: Producer | None = None


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxn(TransactionRequest):
    """Also AddOffsetsToTxn, with the group's partition of `__consumer_offsets`.

    The reply is an ErrorReply: all partitions are added, or none.
    """

    producer: Producer
    partitions: frozenset[TopicPartition]
    transaction_version: int


@dataclass(slots=True, kw_only=True)
class VerifyPartitionsInTxn(TransactionRequest):
    """AddPartitionsToTxn of a leader that only asks whether its partitions are part of the transaction."""

    producer: Producer
    partitions: Sequence[TopicPartition]


@dataclass(slots=True, kw_only=True)
class EndTxn(TransactionRequest):
    """`committed`: to commit; else to abort."""

    producer: Producer
    committed: bool
    transaction_version: int


@dataclass(slots=True, kw_only=True)
class ErrorReply(ReplyBody):
    error: ErrorCode = ErrorCode.none


@dataclass(slots=True, kw_only=True)
class ProducerReply(ReplyBody):
    """The reply to InitProducerId and EndTxn: with whom the producer goes on."""

    error: ErrorCode = ErrorCode.none
    producer: Producer = NO_PRODUCER


@dataclass(slots=True, kw_only=True)
class VerifyPartitionsReply(ReplyBody):
    """`errors` in the order of the request's partitions."""

    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class AllocateProducerId(Question):
    """Answered by ProducerIdAllocated, with an id that nobody ever had."""


@dataclass(slots=True, kw_only=True)
class ProducerIdAllocated(Event):
    """`error`: what the request that needs the id is answered with, when none could be had."""

    producer_id: int = NO_PRODUCER_ID
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarkers(Command):
    """Write a marker to each of these partitions, by WriteTxnMarkers to their leaders.

    Every partition is answered once, by a MarkersAnswered with the same `number`; answers may come one by
    one, and an answer that was lost is RETRY.
    The driver adds the coordinator epoch, which is the leader epoch of its partition.
    """

    number: int
    producer: Producer
    committed: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]


class MarkerOutcome(Enum):
    """What came of a marker; markers.py has the error codes of each."""

    WRITTEN = auto()
    PARTITION_DELETED = auto()
    """The cluster metadata has no such partition any more: counts as written."""
    RETRY = auto()
    """Not written, or nobody knows: is sent again."""
    FENCED = auto()
    """Another coordinator has taken over, and ends the transaction: no marker of this one is sent again."""


@dataclass(slots=True, kw_only=True)
class MarkersAnswered(Event):
    number: int
    outcomes: Sequence[tuple[TopicPartition, MarkerOutcome]]


@dataclass(slots=True, kw_only=True)
class LeaderElected(Event):
    """The partition has another leader: a marker that waits to be sent again is sent at once."""

    number: int
    partition: TopicPartition


@dataclass(slots=True, kw_only=True)
class ExpirationCheck(Event):
    """Sent every transaction.remove.expired.transaction.cleanup.interval.ms: removes an expired id."""
