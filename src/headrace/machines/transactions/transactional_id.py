# SPDX-License-Identifier: Apache-2.0
"""One transactional id of the coordinator: its producer, and its transaction.

A driver keeps one for each transactional id of a partition of `__transaction_state` that its node leads: it
makes one at the first record or request of that id, and may drop it when `is_gone`. A record holds the whole
state (transitions.py); the newest one is what a load finds.

How a transaction goes: partitions are added (Ongoing); a record decides between commit and abort (Prepare);
when that record is committed the decision stands, EndTxn is answered and markers are sent to the partitions;
when all are written, a last record says so (Complete). A load sends the markers of a prepared transaction
again. A transaction without partitions is prepared and completed in one step.

Who may do what:
- A request must name the present producer id and epoch. InitProducerId raises the epoch, so that a producer
  that was replaced is fenced; it aborts a transaction that it finds open, answers CONCURRENT_TRANSACTIONS and
  is asked again. With KIP-890 the end of each transaction raises the epoch, too (ends.py).
- A transaction that is open longer than its timeout is aborted, with a raised epoch. The time counts on the
  monotonic clock and begins anew at a load (R34): no wall clock ends a transaction.
- An epoch that is used up needs another producer id. It is asked for (AllocateProducerId); what waits for it
  is decided again when it is there.
- CONCURRENT_TRANSACTIONS answers what comes while markers are missing or a producer id is awaited. Kafka also
  answers it while a record is not committed yet; here the next step builds on that record, and its reply
  waits for both.

Handlers check what needs no state: null or empty transactional ids, one of producer id and epoch without the
other, authorization, partitions that do not exist; and they spell errors as the API's version does
(versions.py). An expired id is removed by a tombstone (by the wall clock, as all retention: R34). Two-phase
commit (KIP-939) is not served.
Read next: events.py, transitions.py, ends.py, markers.py, listing.py, machines/machine.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.machines.machine import BaseMachine, Event, Loaded, ReplyToken, Step, TimerFired
from headrace.machines.timers import TimerBook
from headrace.machines.transactions import transitions
from headrace.machines.transactions.ends import answer_without_a_change
from headrace.machines.transactions.events import (
    AddPartitionsToTxn,
    AllocateProducerId,
    EndTxn,
    ErrorReply,
    ExpirationCheck,
    InitProducerId,
    LeaderElected,
    MarkersAnswered,
    Producer,
    ProducerIdAllocated,
    ProducerReply,
    SendMarkers,
    VerifyPartitionsInTxn,
    VerifyPartitionsReply,
)
from headrace.machines.transactions.markers import MarkerSending
from headrace.machines.transactions.transitions import IDLE, OPEN, PREPARED, is_exhausted
from headrace.machines.transactions.versions import bumps_epoch
from headrace.types import TopicPartition
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.coordinator.transaction_records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from headrace.wire.error_codes import ErrorCode

TIMEOUT = ("timeout",)
MARKERS = ("markers",)
ALLOCATION_BACKOFF_MS = 1000
"""Until a timed-out transaction asks for a producer id again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    max_timeout_ms: int = 15 * 60 * 1000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    """transactional.id.expiration.ms"""


class TransactionalId(BaseMachine):
    def __init__(self, transactional_id: str, settings: TransactionSettings) -> None:
        super().__init__()
        self.transactional_id = transactional_id
        self._settings = settings
        self._metadata: TransactionMetadata | None = None
        self._last_epoch = NO_EPOCH
        """The epoch before the present one, for a producer that repeats InitProducerId because the answer was
        lost (KIP-360). Not in the log, as in Kafka: after a load such a producer is fenced."""
        self._waiting: InitProducerId | EndTxn | TimerFired | None = None
        """What is decided when its producer id is there."""
        self._allocated: int | None = None
        self._sending: MarkerSending | None = None
        self._sendings = 0
        self._timers = TimerBook()

    # Interface for the driver.

    @property
    def is_gone(self) -> bool:
        """It has no state and can be dropped."""
        return self._metadata is None and self._waiting is None

    @property
    def is_idle(self) -> bool:
        """It has no transaction, or a complete one: a load has nothing to start."""
        return self._metadata is None or self._metadata.state in IDLE

    @property
    def metadata(self) -> TransactionMetadata | None:
        """To read only."""
        return self._metadata

    @property
    def partitions_without_marker(self) -> frozenset[TopicPartition]:
        """The partitions of the transaction that have no marker yet."""
        if self._sending is not None:
            return frozenset(self._sending.missing)
        return self._metadata.partitions if self._metadata is not None else transitions.NO_PARTITIONS

    @property
    def pending_markers(self) -> int:
        """Of a decided transaction: how many are not known to be written."""
        metadata = self._metadata
        if metadata is None or metadata.state not in PREPARED:
            return 0
        return len(metadata.partitions if self._sending is None else self._sending.missing)

    def apply(self, record: CoordinatorRecord) -> None:
        assert isinstance(record, TransactionRecord)
        value = record.value
        self._metadata = None if value is None or value.state is TransactionState.DEAD else value

    def may_write(self, event: Event) -> bool:
        """Verification must work while nothing can be written: the partition may be part of a transaction."""
        match event:
            case Loaded():  # completes a prepared transaction without partitions
                metadata = self._metadata
                return metadata is not None and metadata.state in PREPARED and not metadata.partitions
            case TimerFired():
                return event.key != MARKERS
            case _:
                return not isinstance(event, VerifyPartitionsInTxn | LeaderElected)

    def snapshot(self) -> TransactionMetadata | None:
        return self._metadata

    def open_tokens(self) -> Iterable[ReplyToken]:
        waiting = self._waiting
        return () if waiting is None or isinstance(waiting, TimerFired) else (waiting.token,)

    def decide(self, event: Event, step: Step) -> None:
        match event:
            case AddPartitionsToTxn():
                step.reply(event.token, ErrorReply(error=self._add_partitions(event, step)))
            case EndTxn():
                self._end(event, step)
            case MarkersAnswered():
                self._markers_answered(event, step)
            case LeaderElected():
                self._leader_elected(event, step)
            case VerifyPartitionsInTxn():
                step.reply(event.token, VerifyPartitionsReply(errors=self._verify(event)))
            case InitProducerId():
                self._init_producer_id(event, step)
            case ProducerIdAllocated():
                self._producer_id_allocated(event, step)
            case TimerFired():
                self._timer_fired(event, step)
            case Loaded():
                self._loaded(step)
            case ExpirationCheck():
                self._expire(step)
            case _:
                raise TypeError(f"no event of a transactional id: {event!r}")

    # Partitions.

    @property
    def _in_flight(self) -> bool:
        prepared = self._metadata is not None and self._metadata.state in PREPARED
        return prepared or self._waiting is not None

    def _add_partitions(self, event: AddPartitionsToTxn, step: Step) -> ErrorCode:
        metadata = self._metadata
        if metadata is None:
            return ErrorCode.invalid_producer_id_mapping
        if self._in_flight:  # first, because the producer may have its next producer id already
            return ErrorCode.concurrent_transactions
        error = _check_producer(metadata, event.producer)
        if error is not ErrorCode.none:
            return error
        if metadata.state in OPEN and event.partitions <= metadata.partitions:
            return ErrorCode.none
        begins = metadata.state not in OPEN
        version, wall_ms = event.transaction_version, step.now.wall_ms
        self._write(step, transitions.with_partitions(metadata, event.partitions, version, wall_ms))
        if begins:
            self._start_timeout(step)
        return ErrorCode.none

    def _verify(self, event: VerifyPartitionsInTxn) -> tuple[ErrorCode, ...]:
        metadata = self._metadata
        if metadata is None:
            error = ErrorCode.invalid_producer_id_mapping
        else:
            error = _check_producer(metadata, event.producer)
            if error is ErrorCode.none and metadata.state in PREPARED:
                error = ErrorCode.concurrent_transactions
        if metadata is None or error is not ErrorCode.none:
            return (error,) * len(event.partitions)
        known = metadata.partitions
        return tuple(
            ErrorCode.none if partition in known else ErrorCode.transaction_abortable
            for partition in event.partitions
        )

    # The end of a transaction.

    def _end(self, event: EndTxn, step: Step) -> None:
        metadata = self._metadata
        if metadata is None:
            step.reply(event.token, ProducerReply(error=ErrorCode.invalid_producer_id_mapping))
            return
        answer = answer_without_a_change(metadata, event, in_flight=self._in_flight)
        if answer is not None:
            self._reply_to_end(event, answer, metadata, step)
            return
        next_id = self._next_producer_id(metadata, event.transaction_version, event, step)
        if next_id is None:
            return
        prepared = transitions.ended_by_client(
            metadata, event.committed, event.transaction_version, next_id, step.now.wall_ms
        )
        if bumps_epoch(event.transaction_version):
            self._last_epoch = metadata.producer_epoch
        self._prepare(step, prepared, cause="client")
        self._reply_to_end(event, ErrorCode.none, transitions.completed(prepared, step.now.wall_ms), step)

    def _reply_to_end(self, event: EndTxn, error: ErrorCode, ended: TransactionMetadata, step: Step) -> None:
        """Since KIP-890 the producer is told with which id and epoch it goes on."""
        if error is ErrorCode.none and bumps_epoch(event.transaction_version):
            step.reply(event.token, ProducerReply(producer=_producer_of(ended)))
        else:
            step.reply(event.token, ProducerReply(error=error))

    def _abort(self, event: InitProducerId | TimerFired, step: Step, *, cause: str) -> bool:
        """Aborts the open transaction without its client. False: a producer id has to be awaited first."""
        metadata = self._metadata
        assert metadata is not None
        version = metadata.client_transaction_version
        next_id = self._next_producer_id(metadata, version, event, step)
        if next_id is None:
            return False
        self._last_epoch = metadata.producer_epoch
        prepared = transitions.aborted_by_coordinator(metadata, next_id, step.now.wall_ms)
        self._prepare(step, prepared, cause=cause)
        return True

    def _prepare(self, step: Step, prepared: TransactionMetadata, *, cause: str) -> None:
        """Writes the decision. It stands when the record is committed; then the markers go out."""
        self._write(step, prepared)
        self._timers.disarm(step, TIMEOUT)
        step.log_event("prepared", state=prepared.state.label, cause=cause)
        self._send_markers(step)

    # Markers.

    def _send_markers(self, step: Step) -> None:
        metadata = self._metadata
        assert metadata is not None
        self._sendings += 1
        self._sending = MarkerSending(self._sendings, metadata.partitions, step.now.monotonic_ms)
        if metadata.partitions:
            self._send_to(step, metadata.partitions)
        else:
            self._complete(step)

    def _send_to(self, step: Step, partitions: frozenset[TopicPartition]) -> None:
        metadata = self._metadata
        assert metadata is not None
        step.command(
            SendMarkers(
                number=self._sendings,
                producer=_producer_of(metadata),
                committed=metadata.state is TransactionState.PREPARE_COMMIT,
                transaction_version=metadata.client_transaction_version,
                partitions=partitions,
            )
        )

    def _markers_answered(self, event: MarkersAnswered, step: Step) -> None:
        sending = self._sending
        if sending is None or sending.number != event.number or sending.fenced:
            return
        sending.take(event.outcomes)
        if sending.fenced:
            self._timers.disarm(step, MARKERS)
            step.log_event("markers refused", missing=len(sending.missing))
        elif not sending.missing:
            self._complete(step)
        elif sending.to_retry and MARKERS not in self._timers.armed():
            self._timers.arm(step, MARKERS, sending.next_backoff_ms())

    def _leader_elected(self, event: LeaderElected, step: Step) -> None:
        sending = self._sending
        if sending is None or sending.number != event.number or not sending.take_elected(event.partition):
            return
        if not sending.to_retry:
            self._timers.disarm(step, MARKERS)
        self._send_to(step, frozenset({event.partition}))

    def _complete(self, step: Step) -> None:
        metadata, sending = self._metadata, self._sending
        assert metadata is not None
        assert sending is not None
        self._sending = None
        self._timers.disarm(step, MARKERS)
        done = transitions.completed(metadata, step.now.wall_ms)
        self._write(step, done)
        took_ms = step.now.monotonic_ms - sending.since_ms
        step.log_event("completed", state=done.state.label, milliseconds=took_ms)

    # InitProducerId.

    def _init_producer_id(self, event: InitProducerId, step: Step) -> None:
        error = self._check_init(event)
        if error is not ErrorCode.none:
            step.reply(event.token, ProducerReply(error=error))
        elif self._metadata is None:
            self._create(event, step)
        elif self._metadata.state in OPEN:
            if self._abort(event, step, cause="fenced"):
                step.reply(event.token, ProducerReply(error=ErrorCode.concurrent_transactions))
        else:
            self._initialize(event, self._metadata, step)

    def _check_init(self, event: InitProducerId) -> ErrorCode:
        if not 0 < event.timeout_ms <= self._settings.max_timeout_ms:
            return ErrorCode.invalid_transaction_timeout
        if self._in_flight:
            return ErrorCode.concurrent_transactions
        metadata, expected = self._metadata, event.expected
        if metadata is None or expected is None or expected.producer_id == metadata.producer_id:
            return ErrorCode.none
        replaced = expected.producer_id == metadata.previous_producer_id and is_exhausted(expected.epoch)
        return ErrorCode.none if replaced else ErrorCode.producer_fenced

    def _create(self, event: InitProducerId, step: Step) -> None:
        producer_id = self._new_producer_id(event, step)
        if producer_id is not None:
            created = transitions.created(producer_id, event.timeout_ms, step.now.wall_ms)
            self._start_producer(event, created, NO_EPOCH, step)

    def _initialize(self, event: InitProducerId, metadata: TransactionMetadata, step: Step) -> None:
        """Raises the epoch, unless the producer asks again because it did not receive the answer."""
        epoch = metadata.producer_epoch
        expected = None if event.expected is None else event.expected.epoch
        if expected in (None, epoch):
            producer = self._raised(event, metadata, step)
            last_epoch = NO_EPOCH if expected is None else epoch
        elif expected == self._last_epoch:
            producer, last_epoch = _producer_of(metadata), self._last_epoch
        else:
            step.reply(event.token, ProducerReply(error=ErrorCode.producer_fenced))
            return
        if producer is not None:
            begun = transitions.initialized(metadata, *producer, event.timeout_ms, step.now.wall_ms)
            self._start_producer(event, begun, last_epoch, step)

    def _raised(self, event: InitProducerId, metadata: TransactionMetadata, step: Step) -> Producer | None:
        """None: a producer id has to be awaited."""
        if not is_exhausted(metadata.producer_epoch):
            return Producer(metadata.producer_id, metadata.producer_epoch + 1)
        producer_id = self._new_producer_id(event, step)
        return None if producer_id is None else Producer(producer_id, 0)

    def _start_producer(
        self, event: InitProducerId, metadata: TransactionMetadata, last_epoch: int, step: Step
    ) -> None:
        self._last_epoch = last_epoch
        self._write(step, metadata)
        step.reply(event.token, ProducerReply(producer=_producer_of(metadata)))

    # Producer ids.

    def _next_producer_id(
        self,
        metadata: TransactionMetadata,
        transaction_version: int,
        event: InitProducerId | EndTxn | TimerFired,
        step: Step,
    ) -> int | None:
        """The id with which the producer goes on after a transaction that uses up its epochs; NO_PRODUCER_ID:
        the present one. None: it has to be awaited."""
        if bumps_epoch(transaction_version) and is_exhausted(metadata.producer_epoch):
            return self._new_producer_id(event, step)
        return NO_PRODUCER_ID

    def _new_producer_id(self, event: InitProducerId | EndTxn | TimerFired, step: Step) -> int | None:
        """A producer id that nobody has had. None: it was asked for, and the event is decided again then."""
        allocated, self._allocated = self._allocated, None
        if allocated is None:
            self._waiting = event
            step.ask(AllocateProducerId())
        return allocated

    def _producer_id_allocated(self, event: ProducerIdAllocated, step: Step) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        if event.error is ErrorCode.none:
            self._allocated = event.producer_id
            self.decide(waiting, step)
            self._allocated = None
        elif isinstance(waiting, TimerFired):
            self._timers.arm(step, TIMEOUT, ALLOCATION_BACKOFF_MS)
        else:
            step.reply(waiting.token, ProducerReply(error=event.error))

    # Time.

    def _start_timeout(self, step: Step) -> None:
        assert self._metadata is not None
        self._timers.arm(step, TIMEOUT, max(self._metadata.timeout_ms, 0))

    def _timer_fired(self, event: TimerFired, step: Step) -> None:
        """Also for a timeout that waited for its producer id: its timer has run out already."""
        if event.key == MARKERS:
            if self._timers.fired(step, MARKERS) and self._sending is not None:
                self._send_to(step, self._sending.take_failed())
        elif self._allocated is not None:
            self._abort(event, step, cause="timed out")
        elif self._timers.fired(step, TIMEOUT):
            if self._waiting is not None:
                self._timers.arm(step, TIMEOUT, ALLOCATION_BACKOFF_MS)
            else:
                self._abort(event, step, cause="timed out")

    def _loaded(self, step: Step) -> None:
        metadata = self._metadata
        if metadata is None:
            return
        if metadata.state in PREPARED:
            self._send_markers(step)
        elif metadata.state in OPEN:
            self._start_timeout(step)

    def _expire(self, step: Step) -> None:
        metadata = self._metadata
        if metadata is None or metadata.state not in IDLE or self._waiting is not None:
            return
        if metadata.last_update_timestamp <= step.now.wall_ms - self._settings.id_expiration_ms:
            step.emit(TransactionRecord(self.transactional_id, None))
            step.log_event("expired")

    def _write(self, step: Step, metadata: TransactionMetadata) -> None:
        step.emit(TransactionRecord(self.transactional_id, metadata))


def _producer_of(metadata: TransactionMetadata) -> Producer:
    return Producer(metadata.producer_id, metadata.producer_epoch)


def _check_producer(metadata: TransactionMetadata, producer: Producer) -> ErrorCode:
    if producer.producer_id != metadata.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    return ErrorCode.none if producer.epoch == metadata.producer_epoch else ErrorCode.producer_fenced
