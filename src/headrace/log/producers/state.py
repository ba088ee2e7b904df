"""What each idempotent producer last wrote to this partition: a fold of the log (R28).

`check` says whether a batch is new, a duplicate or out of order, as Kafka 4's ProducerAppendInfo does.
`update` is the only mutator and runs live, in recovery and in replay. Files: producer_snapshot.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from headrace.errors import ApiError
from headrace.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from headrace.wire.error_codes import ErrorCode

BATCHES_KEPT = 5
"""Clients keep at most this many requests in flight, so older duplicates cannot come."""
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
LAST_SEQUENCE = 2**31 - 1
"""After it comes 0; as a mask it wraps."""

BATCH = Struct(">iqiq")
"""Last sequence, last offset, offset delta, timestamp: a batch as Kafka's snapshot holds it."""
_BATCH_BYTES = BATCH.size
_HISTORY_BYTES = BATCHES_KEPT * _BATCH_BYTES


class EndTransactionMarker(NamedTuple):
    """The record of a control batch."""

    commits: bool
    coordinator_epoch: int


class ProducerEntry:
    """One producer id. The last batches are stored packed: ten thousand producers cost a few MiB."""

    __slots__ = (
        "coordinator_epoch",
        "epoch",
        "history",
        "last_sequence",
        "last_timestamp",
        "producer_id",
        "seen_ms",
        "transaction_start",
    )

    def __init__(self, producer_id: int, epoch: int = NO_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.last_sequence = NO_SEQUENCE
        self.transaction_start = NO_OFFSET
        self.seen_ms = 0
        self.history = b""

    def __repr__(self) -> str:
        return f"ProducerEntry({self.producer_id}, epoch {self.epoch}, sequence {self.last_sequence})"

    @property
    def last_offset(self) -> int:
        """Of the last data batch; -1 when only markers are known."""
        if not self.history:
            return NO_OFFSET
        last_offset: int = BATCH.unpack_from(self.history, len(self.history) - _BATCH_BYTES)[1]
        return last_offset

    def add_batch(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        history = self.history + BATCH.pack(last_sequence, last_offset, offset_delta, timestamp)
        self.history = history[-_HISTORY_BYTES:]
        self.last_sequence = last_sequence
        self.last_timestamp = timestamp

    def begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_sequence = NO_SEQUENCE
        self.history = b""

    def find_duplicate(self, first_sequence: int, last_sequence: int) -> int | None:
        """The base offset of the remembered batch with exactly these sequences."""
        for last, last_offset, delta, _ in BATCH.iter_unpack(self.history):
            if last == last_sequence and (last - delta) & LAST_SEQUENCE == first_sequence:
                return int(last_offset - delta)
        return None


class ProducerState:
    def __init__(self, *, expiration_ms: int, now_ms: int = 0) -> None:
        self.expiration_ms = expiration_ms
        self._now_ms = now_ms
        """As of the last `expire`: precise enough for a day's expiry and free on the append path."""
        self._awaited: set[int] = set()
        """Producers unknown here whose first batch was refused, until it is written or they expire."""
        self._entries: dict[int, ProducerEntry] = {}
        self._open_transactions: dict[int, int] = {}
        """First offset -> producer id."""
        self._ended_transactions: dict[int, int] = {}
        """First offset -> offset of the marker, until the high watermark has passed the marker."""
        self.first_unstable_offset: int | None = None
        """Where the oldest transaction that is not decided and replicated began."""

    def __len__(self) -> int:
        return len(self._entries)

    def active(self) -> Iterable[ProducerEntry]:
        return self._entries.values()

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def check(self, header: BatchHeader) -> int | None:
        """None: append it. An offset: a duplicate, already written there. ApiError: refuse it."""
        entry = self._entries.get(header.producer_id)
        if entry is None and not (header.base_sequence and header.producer_id in self._awaited):
            return None  # unknown, or forgotten with its records: any sequence may begin
        if entry is None:
            raise ApiError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {header.producer_id}: sequence {header.base_sequence} came before 0 was written",
            )
        epoch, sequence = header.producer_epoch, header.base_sequence
        if epoch == entry.epoch:
            if sequence == entry.last_sequence + 1:
                return None
            duplicate = entry.find_duplicate(sequence, header.last_sequence)
            if duplicate is not None:
                return duplicate
            if sequence == 0 and entry.last_sequence == LAST_SEQUENCE:
                return None
        elif epoch < entry.epoch:
            raise ApiError(
                ErrorCode.invalid_producer_epoch,
                f"producer {header.producer_id} comes with epoch {epoch}, but {entry.epoch} was seen",
            )
        elif sequence == 0 or entry.epoch == NO_EPOCH:
            return None
        raise ApiError(
            ErrorCode.out_of_order_sequence_number,
            f"producer {header.producer_id}, epoch {epoch}: sequence {sequence} does not follow "
            f"{entry.last_sequence} of epoch {entry.epoch}",
        )

    def refused(self, header: BatchHeader) -> None:
        """The batch is not written now: those sent right behind it must not overtake it."""
        if header.producer_id >= 0 and not header.base_sequence and header.producer_id not in self._entries:
            self._awaited.add(header.producer_id)

    def update(
        self, header: BatchHeader, base_offset: int, marker: EndTransactionMarker | None = None
    ) -> None:
        """The batch was written at `base_offset`. `marker` is the record of a control batch."""
        _, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, base_sequence, _ = header
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.begin_epoch(epoch)
        entry.seen_ms = self._now_ms
        if attributes & CONTROL_BIT:
            if marker is not None:
                self._end_transaction(entry, marker, base_offset, timestamp)
            return
        last_sequence = (base_sequence + delta) & LAST_SEQUENCE if base_sequence >= 0 else NO_SEQUENCE
        entry.add_batch(last_sequence, base_offset + delta, delta, timestamp)
        if attributes & TRANSACTIONAL_BIT and entry.transaction_start == NO_OFFSET:
            entry.transaction_start = base_offset
            self._open_transactions[base_offset] = producer_id
            self._find_first_unstable()

    def _end_transaction(
        self, entry: ProducerEntry, marker: EndTransactionMarker, offset: int, timestamp: int
    ) -> None:
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        if entry.transaction_start != NO_OFFSET:
            self._open_transactions.pop(entry.transaction_start, None)
            self._ended_transactions[entry.transaction_start] = offset
            entry.transaction_start = NO_OFFSET

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Markers below it are replicated: their transactions are decided for good."""
        if self._ended_transactions:
            ended = self._ended_transactions.items()
            self._ended_transactions = {s: marker for s, marker in ended if marker >= high_watermark}
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        unstable = [*self._open_transactions, *self._ended_transactions]
        self.first_unstable_offset = min(unstable) if unstable else None

    def restore(self, entries: Iterable[ProducerEntry]) -> None:
        """Starts from a snapshot; all that is known otherwise is forgotten."""
        self._entries = {entry.producer_id: entry for entry in entries}
        for entry in self._entries.values():
            entry.seen_ms = self._now_ms
        self._open_transactions = {
            entry.transaction_start: entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_start != NO_OFFSET
        }
        self._ended_transactions = {}
        self._find_first_unstable()

    def expire(self, now_ms: int) -> int:
        """Forgets producers that wrote nothing for so long; how many. Open transactions keep theirs."""
        self._now_ms = now_ms
        self._awaited.clear()
        idle = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.transaction_start == NO_OFFSET
            and now_ms - max(entry.seen_ms, entry.last_timestamp) >= self.expiration_ms
        ]
        for producer_id in idle:
            del self._entries[producer_id]
        return len(idle)
