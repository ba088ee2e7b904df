# SPDX-License-Identifier: Apache-2.0
"""What each idempotent producer last wrote to this partition: a fold of the log (R28).

What is checked before an append depends on its origin, as in Kafka 4's ProducerAppendInfo. A client's batch
(`check`): epoch, duplicate, verification guard, sequence. A coordinator's (`check_own`, `check_marker`):
epochs only, since it has no sequences and never comes twice. The leader's: nothing, it was checked there.
`update` is the only mutator and runs live, in recovery and in replay. Files: snapshot.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from headrace.errors import ApiError
from headrace.log.producers.markers import EndTransactionMarker
from headrace.log.producers.open_transactions import EndedTransaction, OpenTransactions
from headrace.log.producers.verification import NotVerified, VerificationGuard, VerificationGuards
from headrace.log.segments.transaction_index import AbortedTransaction
from headrace.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from headrace.wire.error_codes import ErrorCode

BATCHES_KEPT = 5
"""Clients keep at most this many requests in flight, so older duplicates cannot come."""
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
NO_TIMESTAMP = -1
LAST_SEQUENCE = 2**31 - 1
"""After it comes 0; as a mask it wraps."""

BATCH = Struct(">iqiq")
"""Last sequence, last offset, offset delta, timestamp: a batch as Kafka's snapshot holds it."""
_BATCH_BYTES = BATCH.size
_HISTORY_BYTES = BATCHES_KEPT * _BATCH_BYTES


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
        "transaction_began_ms",
        "transaction_start",
    )

    def __init__(self, producer_id: int, epoch: int = NO_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.last_sequence = NO_SEQUENCE
        self.transaction_start = NO_OFFSET
        self.transaction_began_ms = NO_TIMESTAMP
        """The timestamp of its first batch. Not in snapshots: after a restore not known."""
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

    @property
    def has_transactions(self) -> bool:
        """Whether it has begun or ended one."""
        return self.coordinator_epoch != NO_EPOCH or self.transaction_start != NO_OFFSET

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
        self._open = OpenTransactions()
        self._ended: dict[int, int] = {}
        """First offset -> offset of the marker, until the high watermark has passed the marker."""
        self.ended_known_from = 0
        """`_ended` has every transaction whose marker is below neither this nor the high watermark."""
        self.guards = VerificationGuards()
        self.first_unstable_offset: int | None = None
        """Where the oldest transaction that is not decided and replicated began."""

    def __len__(self) -> int:
        return len(self._entries)

    def active(self) -> Iterable[ProducerEntry]:
        return self._entries.values()

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    # Checks before an append

    def check(self, header: BatchHeader, guard: VerificationGuard | None = None) -> int | None:
        """Of a client's batch. None: append it. An offset: a duplicate, already written there. ApiError: no.

        `guard`: the one that was taken before the transaction was verified; needed for the first batch, which
        is NotVerified without one, or with one that a marker has dropped.
        """
        entry = self._entries.get(header.producer_id)
        epoch, sequence = header.producer_epoch, header.base_sequence
        if entry is not None:
            if epoch == entry.epoch:
                if sequence != entry.last_sequence + 1:
                    duplicate = entry.find_duplicate(sequence, header.last_sequence)
                    if duplicate is not None:
                        return duplicate
                elif entry.transaction_start == NO_OFFSET and not header.attributes & TRANSACTIONAL_BIT:
                    return None
            elif epoch < entry.epoch:
                raise _fenced(header, entry)
        if header.attributes & TRANSACTIONAL_BIT:
            self._check_verified(header, entry, guard)
        self._check_sequence(header, entry)
        if entry is not None and entry.transaction_start != NO_OFFSET and not header.is_transactional:
            raise ApiError(
                ErrorCode.invalid_txn_state,
                f"producer {header.producer_id} has an open transaction and sent a batch outside of it",
            )
        return None

    def _check_verified(
        self, header: BatchHeader, entry: ProducerEntry | None, guard: VerificationGuard | None
    ) -> None:
        """A batch that begins a transaction needs the guard, which any marker drops (KIP-890)."""
        known = self.guards.get(header.producer_id)
        if not _is_open(entry, header.producer_epoch) and (guard is None or guard is not known):
            raise NotVerified(
                ErrorCode.invalid_txn_state,
                f"producer {header.producer_id}, epoch {header.producer_epoch}: the batch belongs to no "
                "transaction that was verified",
            )
        if known is None:
            return
        begins_anew = known.begins_at_zero and (entry is None or not entry.history)
        if header.base_sequence > (0 if begins_anew else known.lowest_sequence):
            raise ApiError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {header.producer_id}: sequence {header.base_sequence} came before "
                f"{0 if begins_anew else known.lowest_sequence} was written",
            )

    def _check_sequence(self, header: BatchHeader, entry: ProducerEntry | None) -> None:
        sequence = header.base_sequence
        if entry is None:
            if sequence and header.producer_id in self._awaited:
                raise ApiError(
                    ErrorCode.out_of_order_sequence_number,
                    f"producer {header.producer_id}: sequence {sequence} came before 0 was written",
                )
            return  # unknown, or forgotten with its records: any sequence may begin
        if header.producer_epoch == entry.epoch:
            follows = sequence == entry.last_sequence + 1
            if follows or (sequence == 0 and entry.last_sequence == LAST_SEQUENCE):
                return
        elif sequence == 0 or entry.epoch == NO_EPOCH:
            return
        raise ApiError(
            ErrorCode.out_of_order_sequence_number,
            f"producer {header.producer_id}, epoch {header.producer_epoch}: sequence {sequence} does not "
            f"follow {entry.last_sequence} of epoch {entry.epoch}",
        )

    def check_own(self, header: BatchHeader, guard: VerificationGuard | None = None) -> None:
        """Of a batch with records that a coordinator on this node writes for a producer: offsets.

        `guard`: of a transaction that was verified, which must not have ended since. Raises ApiError.
        """
        entry = self._entries.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.epoch:
            raise _fenced(header, entry)
        if guard is not None:
            self._check_verified(header, entry, guard)

    def check_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, transaction_version: int
    ) -> None:
        """Raises ApiError. From version 2 on each end has a new epoch: the same one again is a retry of a
        marker that was written, as long as nothing began since (KAFKA-19999)."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return
        epoch = header.producer_epoch
        repeated = transaction_version >= 2 and epoch == entry.epoch
        if epoch < entry.epoch or (repeated and entry.transaction_start != NO_OFFSET):
            raise _fenced(header, entry)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise ApiError(
                ErrorCode.transaction_coordinator_fenced,
                f"producer {header.producer_id}: a marker of coordinator epoch {marker.coordinator_epoch} "
                f"after one of {entry.coordinator_epoch}",
            )

    def begin_verification(
        self, header: BatchHeader, *, begins_at_zero: bool = False
    ) -> VerificationGuard | None:
        """Before the coordinator is asked whether the batch's transaction is known; None: no need to ask.

        `begins_at_zero`: transaction version 2.
        """
        if _is_open(self._entries.get(header.producer_id), header.producer_epoch):
            return None
        return self.guards.take(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            self._now_ms,
            begins_at_zero=begins_at_zero,
        )

    def refused(self, header: BatchHeader) -> None:
        """The batch is not written now: those sent right behind it must not overtake it."""
        if header.producer_id >= 0 and not header.base_sequence and header.producer_id not in self._entries:
            self._awaited.add(header.producer_id)

    # Changes

    def update(
        self, header: BatchHeader, base_offset: int, marker: EndTransactionMarker | None = None
    ) -> AbortedTransaction | None:
        """The batch was written at `base_offset`. `marker` is the record of a control batch.

        Returns the transaction that the batch aborted, for the transaction index.
        """
        _, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, base_sequence, _ = header
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.begin_epoch(epoch)
        entry.seen_ms = self._now_ms
        if attributes & CONTROL_BIT:
            return self._end_transaction(entry, header, base_offset, marker)
        last_sequence = (base_sequence + delta) & LAST_SEQUENCE if base_sequence >= 0 else NO_SEQUENCE
        entry.add_batch(last_sequence, base_offset + delta, delta, timestamp)
        if attributes & TRANSACTIONAL_BIT:
            self.guards.drop(producer_id)
            if entry.transaction_start == NO_OFFSET:
                entry.transaction_start = base_offset
                entry.transaction_began_ms = timestamp
                self._open.update(header, base_offset, None)
                self._find_first_unstable()
        return None

    def _end_transaction(
        self, entry: ProducerEntry, header: BatchHeader, offset: int, marker: EndTransactionMarker | None
    ) -> AbortedTransaction | None:
        if marker is None:
            return None
        self.guards.drop(entry.producer_id)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        entry.transaction_start = NO_OFFSET
        entry.transaction_began_ms = NO_TIMESTAMP
        ended = self._open.update(header, offset, marker)
        if ended is None:
            return None
        self._ended[ended.first_offset] = ended.marker_offset
        return ended.aborted

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Markers below it are replicated: their transactions are decided for good."""
        if self._ended:
            self._ended = {s: marker for s, marker in self._ended.items() if marker >= high_watermark}
            self.ended_known_from = max(self.ended_known_from, high_watermark)
            self._find_first_unstable()

    @property
    def has_transactions(self) -> bool:
        """Whether any producer that is known here has ever begun or ended one."""
        return any(entry.has_transactions for entry in self._entries.values())

    @property
    def open_since_ms(self) -> int | None:
        """When the transaction began that is open longest, or its newest batch was written, where a restart
        has forgotten that. None: none is open."""
        producer_id = self._open.first_producer
        entry = None if producer_id is None else self._entries.get(producer_id)
        if entry is None:
            return None
        known = entry.transaction_began_ms != NO_TIMESTAMP
        return entry.transaction_began_ms if known else entry.last_timestamp

    def recall(self, ended: Iterable[EndedTransaction], high_watermark: int) -> None:
        """All whose markers are not below the high watermark, which moved back or was not known before."""
        self._ended = {transaction.first_offset: transaction.marker_offset for transaction in ended}
        self.ended_known_from = high_watermark
        self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        unstable = min(self._ended, default=None)
        first_open = self._open.first_offset
        if unstable is None or (first_open is not None and first_open < unstable):
            unstable = first_open
        self.first_unstable_offset = unstable

    def restore(self, entries: Iterable[ProducerEntry], offset: int = 0) -> None:
        """Starts from a snapshot of the state at `offset`; all that is known otherwise is forgotten."""
        self._entries = {entry.producer_id: entry for entry in entries}
        for entry in self._entries.values():
            entry.seen_ms = self._now_ms
        self._open = open_transactions(self._entries.values())
        self._ended = {}
        self.ended_known_from = offset
        self.guards.clear()
        self._find_first_unstable()

    def expire(self, now_ms: int) -> int:
        """Forgets producers that wrote nothing for so long; how many. Open transactions keep theirs."""
        self._now_ms = now_ms
        self._awaited.clear()
        self.guards.expire(now_ms - self.expiration_ms)
        idle = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.transaction_start == NO_OFFSET
            and now_ms - max(entry.seen_ms, entry.last_timestamp) >= self.expiration_ms
        ]
        for producer_id in idle:
            del self._entries[producer_id]
        return len(idle)


def open_transactions(entries: Iterable[ProducerEntry]) -> OpenTransactions:
    """Those of a snapshot."""
    return OpenTransactions(
        (entry.producer_id, entry.transaction_start)
        for entry in entries
        if entry.transaction_start != NO_OFFSET
    )


def _is_open(entry: ProducerEntry | None, epoch: int) -> bool:
    return entry is not None and entry.transaction_start != NO_OFFSET and entry.epoch == epoch


def _fenced(header: BatchHeader, entry: ProducerEntry) -> ApiError:
    return ApiError(
        ErrorCode.invalid_producer_epoch,
        f"producer {header.producer_id} comes with epoch {header.producer_epoch}, but {entry.epoch} was seen",
    )
