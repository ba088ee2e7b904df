# SPDX-License-Identifier: Apache-2.0
"""Writes transaction markers to partitions that this node leads, and waits until they are committed.

For WriteTxnMarkers of other nodes and tools, and, without a socket, for the coordinator on this node. One in
`__consumer_offsets` goes through the group coordinator, which commits or drops the offsets that wait for it.
Independent of the coordinator of transactions. Read next: partition/partition.py (`append_marker`),
groups/coordinator.py (`end_transaction`), marker_sender.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.broker.coordinators.machine_driver import Answer
from headrace.broker.groups.coordinator import OFFSETS_TOPIC
from headrace.broker.partition.partition import Appended
from headrace.errors import ApiError
from headrace.log.producers.markers import EndTransactionMarker
from headrace.machines.machine import ReplyBody
from headrace.types import TopicPartition
from headrace.wire.coordinator.group_records import TransactionMarkerRecord
from headrace.wire.error_codes import ErrorCode
from headrace.world import Clock

ACK_TIMEOUT_S = 10.0
"""Until a marker that is not committed counts as failed; its coordinator sends it again."""

MarkerCodes = Mapping[TopicPartition, ErrorCode]
OnWritten = Callable[[MarkerCodes], None]

_GROUPS_OUT_OF_REACH = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The end of a producer's transaction, as its coordinator decided. `transaction_version`: of the client
    that wrote it (2: KIP-890)."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int


class MarkedPartition(Protocol):
    @property
    def takes_writes(self) -> bool: ...

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> Appended: ...

    def wait_for_ack(self, last_offset: int, deadline: float, done: Callable[[ErrorCode], None]) -> None: ...


class PendingOffsets(Protocol):
    """The group coordinator, as this module needs it."""

    def end_transaction(
        self, index: int, marker: TransactionMarkerRecord, append: Callable[[], int], answer: Answer
    ) -> None: ...


class MarkerWriter:
    def __init__(
        self,
        *,
        find_led: Callable[[str, int], MarkedPartition],
        groups: PendingOffsets,
        clock: Clock,
    ) -> None:
        """`find_led`: raises ApiError where this node does not lead the partition."""
        self._find_led = find_led
        self._groups = groups
        self._clock = clock

    def write(self, marker: Marker, partitions: Iterable[TopicPartition], answer: OnWritten) -> None:
        """`answer` is called once, perhaps before this returns, with the code of every partition: that of
        acks=all, or why nothing was written."""
        names = dict.fromkeys(partitions)
        codes: dict[TopicPartition, ErrorCode] = {}

        def answered(partition: TopicPartition, code: ErrorCode) -> None:
            codes[partition] = code
            if len(codes) == len(names):
                answer(codes)

        for name in names:
            self._write_one(marker, name, answered)
        if not names:
            answer(codes)

    def _write_one(
        self, marker: Marker, name: TopicPartition, answered: Callable[[TopicPartition, ErrorCode], None]
    ) -> None:
        try:
            partition = self._find_led(*name)
            if name.topic == OFFSETS_TOPIC:
                self._end_in_groups(marker, name, partition, answered)
                return
            appended = _append(marker, partition)
        except ApiError as refusal:
            answered(name, refusal.code)
            return
        if appended.answer is not None:
            answered(name, appended.answer)
        else:
            deadline = self._clock.monotonic() + ACK_TIMEOUT_S
            partition.wait_for_ack(appended.last_offset, deadline, lambda code: answered(name, code))

    def _end_in_groups(
        self,
        marker: Marker,
        name: TopicPartition,
        partition: MarkedPartition,
        answered: Callable[[TopicPartition, ErrorCode], None],
    ) -> None:
        if not partition.takes_writes:  # the group coordinator would take a failed append for its own
            raise ApiError(ErrorCode.not_leader_or_follower)

        def answer(body: ReplyBody | ApiError) -> None:
            answered(name, _code_of(body))

        record = TransactionMarkerRecord(producer_id=marker.producer_id, committed=marker.committed)
        self._groups.end_transaction(
            name.partition, record, lambda: _append(marker, partition).last_offset, answer
        )


def _append(marker: Marker, partition: MarkedPartition) -> Appended:
    return partition.append_marker(
        EndTransactionMarker(commits=marker.committed, coordinator_epoch=marker.coordinator_epoch),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_version=marker.transaction_version,
    )


def _code_of(body: ReplyBody | ApiError) -> ErrorCode:
    """As in Kafka, a coordinator of transactions gets the codes of a leader, not those of a group."""
    if not isinstance(body, ApiError):
        return ErrorCode.none
    return ErrorCode.not_leader_or_follower if body.code in _GROUPS_OUT_OF_REACH else body.code
