# SPDX-License-Identifier: Apache-2.0
"""Records what transactional clients did and what was read, and finds anomalies in it.

The workload copies records: a transaction reads some records of one partition of the input, writes a copy of
each to partitions of the output, and commits the offset behind them. A copy names its transaction, so that
copies of two attempts differ; so does the metadata of a committed offset. At the end every input record has
one committed copy. Whether a transaction is committed is told by the markers in the output's logs alone, read
without any index. Independent of how clients ran: for simulation and live tests. Read next:
tests/harness/history.py, tests/harness/jepsen/checker.py (operations of both are one history).
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from headrace.log.producers.markers import read_marker
from headrace.types import TopicPartition
from headrace.wire.batch import read_header
from headrace.wire.records import read_records
from tests.harness.jepsen.operations import Anomaly, Operation, Outcome, Polled, Sent

Value = bytes
_BEFORE_NUMBER = b"|"


@dataclass(slots=True, kw_only=True)
class Transaction:
    """As its client knows it."""

    number: int
    source: TopicPartition
    first_offset: int
    """Of the source; the offset to commit is behind the last record that was read."""
    next_offset: int
    copies: dict[TopicPartition, list[Value]]
    commit_asked_at: int | None = None
    """When its client first asked for a commit; None: never, so that nothing of it may ever be read."""
    committed_at: int | None = None
    """When the commit was acknowledged."""
    client: str = ""
    """One life of it: another may have a position of its own."""
    polled: Sequence[tuple[int, Value]] = ()
    began_at: int = 0


class CommittedRead(NamedTuple):
    """What a read_committed reader got that went from one position to another."""

    reader: str
    partition: TopicPartition
    start: int
    end: int
    records: Sequence[tuple[int, Value]]
    answered_at: int
    seek: bool = False
    """It asked for this position itself, wherever it was before."""


class OffsetRead(NamedTuple):
    """The committed offset of a source, and the transaction that its metadata name."""

    source: TopicPartition
    offset: int
    number: int | None
    """None: nothing is committed yet."""
    asked_at: int
    answered_at: int
    stable: bool = False
    """Asked for with require-stable: it knows every commit that was acknowledged before."""


class Written(NamedTuple):
    """A record in the log of an output partition, whether or not a reader may see it."""

    offset: int
    value: Value
    committed: bool | None
    """None: its transaction has no marker."""


@dataclass(slots=True)
class TransactionHistory:
    transactions: dict[int, Transaction] = field(default_factory=dict)
    reads: list[CommittedRead] = field(default_factory=list)
    offset_reads: list[OffsetRead] = field(default_factory=list)
    clock: Callable[[], int] = time.monotonic_ns
    """Nanoseconds."""
    _now: int = 0
    _lives: int = 0

    def tick(self) -> int:
        """The time, later than every earlier one."""
        self._now = max(self._now + 1, self.clock())
        return self._now

    def begin_life(self, transactional_id: str) -> str:
        """The name of a client that has this id from now on."""
        self._lives += 1
        return f"{transactional_id}, life {self._lives}"

    def begin(
        self,
        source: TopicPartition,
        first_offset: int,
        next_offset: int,
        assigned: Mapping[TopicPartition, Sequence[Value]],
        *,
        client: str = "",
        polled: Sequence[tuple[int, Value]] = (),
    ) -> Transaction:
        """`assigned`: values of the input for each partition of the output."""
        number = len(self.transactions) + 1
        transaction = Transaction(
            number=number,
            source=source,
            first_offset=first_offset,
            next_offset=next_offset,
            copies={
                where: [copy_of(value, number) for value in values] for where, values in assigned.items()
            },
            client=client,
            polled=polled,
            began_at=self.tick(),
        )
        self.transactions[number] = transaction
        return transaction

    def commit_asked(self, transaction: Transaction) -> None:
        if transaction.commit_asked_at is None:
            transaction.commit_asked_at = self.tick()

    def committed(self, transaction: Transaction) -> None:
        if transaction.committed_at is None:
            transaction.committed_at = self.tick()

    def operations(self) -> list[Operation]:
        """In the order of their invocation. Who looks at an earlier range is a reader of its own."""
        made = [_operation_of(each) for each in self.transactions.values()]
        for number, read in enumerate(self.reads):
            made.append(
                Operation(
                    process=f"{read.reader}, look {number}" if read.seek else read.reader,
                    type="ok",
                    f="poll",
                    value=(Polled({read.partition: read.records}),),
                    invoked_at=read.answered_at,
                    completed_at=read.answered_at,
                )
            )
        return sorted(made, key=lambda operation: operation.invoked_at)


def _operation_of(transaction: Transaction) -> Operation:
    """Without a request for its commit it has failed, whenever that is decided."""
    outcome: Outcome = "info" if transaction.committed_at is None else "ok"
    sent = [Sent(where, copy) for where, copies in transaction.copies.items() for copy in copies]
    return Operation(
        process=transaction.client,
        type="fail" if transaction.commit_asked_at is None else outcome,
        f="txn",
        value=(Polled({transaction.source: transaction.polled}), *sent),
        invoked_at=transaction.began_at,
        completed_at=transaction.committed_at,
    )


def copy_of(value: Value, number: int) -> Value:
    return value + _BEFORE_NUMBER + str(number).encode()


def original_of(copy: Value) -> tuple[Value, int]:
    """The value of the input, and the number of the transaction."""
    value, _, number = copy.rpartition(_BEFORE_NUMBER)
    return value, int(number)


def fold_log(batches: Iterable[memoryview]) -> list[Written]:
    """The records of all batches of a log, with the markers that ended their transactions."""
    written: list[Written] = []
    open_: dict[int, list[int]] = defaultdict(list)
    for batch in batches:
        header = read_header(batch)
        if header.is_control:
            marker = read_marker(batch)
            for index in open_.pop(header.producer_id, ()) if marker is not None else ():
                assert marker is not None
                written[index] = written[index]._replace(committed=marker.commits)
            continue
        for record in read_records(batch):
            if header.is_transactional:
                open_[header.producer_id].append(len(written))
            written.append(
                Written(record.offset, record.value or b"", None if header.is_transactional else True)
            )
    return written


def check(
    history: TransactionHistory,
    inputs: Mapping[TopicPartition, Sequence[Value]],
    outputs: Mapping[TopicPartition, Sequence[Written]],
) -> list[Anomaly]:
    """Every anomaly; an empty list is a pass. All clients have ended, and copied all of the input."""
    return [
        *_check_records(history, outputs),
        *_check_transactions(history, outputs),
        *_check_copies(inputs, outputs),
        *_check_reads(history, outputs),
        *_check_offset_reads(history, outputs),
    ]


# -- the logs of the output ---------------------------------------------------------------------------------


def _check_records(
    history: TransactionHistory, outputs: Mapping[TopicPartition, Sequence[Written]]
) -> Iterator[Anomaly]:
    for partition, log in outputs.items():
        sent = {copy for each in history.transactions.values() for copy in each.copies.get(partition, ())}
        for record in log:
            if record.value not in sent:
                yield Anomaly(
                    kind="invented", partition=partition, detail=f"{record.value!r} at {record.offset}"
                )
        for value, count in Counter(record.value for record in log).items():
            if count > 1:
                yield Anomaly(kind="written-twice", partition=partition, detail=f"{value!r}, {count} times")


def _check_transactions(
    history: TransactionHistory, outputs: Mapping[TopicPartition, Sequence[Written]]
) -> Iterator[Anomaly]:
    found: dict[int, dict[TopicPartition, dict[Value, bool | None]]] = defaultdict(lambda: defaultdict(dict))
    for partition, log in outputs.items():
        for record in log:
            found[original_of(record.value)[1]][partition][record.value] = record.committed
    for number, transaction in history.transactions.items():
        yield from _check_transaction(transaction, found[number])


def _check_transaction(
    transaction: Transaction, found: Mapping[TopicPartition, Mapping[Value, bool | None]]
) -> Iterator[Anomaly]:
    ends = {end for records in found.values() for end in records.values()}
    where = next(iter(transaction.copies))

    def anomaly(kind: str, detail: str) -> Anomaly:
        return Anomaly(kind=kind, partition=where, detail=f"transaction {transaction.number}: {detail}")

    if None in ends:
        yield anomaly("hanging", f"no marker in {[str(p) for p, r in found.items() if None in r.values()]}")
    if ends >= {True, False}:
        yield anomaly("both-markers", f"committed and aborted: {dict(found)}")
    if True not in ends:
        if transaction.committed_at is not None:
            yield anomaly("lost-commit", "its commit was acknowledged")
        return
    if transaction.commit_asked_at is None:
        yield anomaly("uncalled-commit", "its client did not ask for it")
    missing = [
        copy
        for partition, copies in transaction.copies.items()
        for copy in copies
        if copy not in found.get(partition, {})
    ]
    if missing:
        yield anomaly("torn-transaction", f"committed without {missing}")


def _check_copies(
    inputs: Mapping[TopicPartition, Sequence[Value]], outputs: Mapping[TopicPartition, Sequence[Written]]
) -> Iterator[Anomaly]:
    place = {value: (source, index) for source, log in inputs.items() for index, value in enumerate(log)}
    copied: Counter[Value] = Counter()
    for partition, log in outputs.items():
        last: dict[TopicPartition, int] = {}
        for record in log:
            if not record.committed:
                continue
            value = original_of(record.value)[0]
            copied[value] += 1
            if value not in place:
                yield Anomaly(kind="not-of-the-input", partition=partition, detail=f"{record.value!r}")
                continue
            source, index = place[value]
            if index < last.get(source, -1):
                detail = f"{record.value!r} at {record.offset} behind a copy of number {last[source]}"
                yield Anomaly(kind="reordered-copy", partition=partition, detail=detail)
            last[source] = index
    for value, (source, index) in place.items():
        if copied[value] != 1:
            kind = "duplicate-copy" if copied[value] else "missing-copy"
            detail = f"number {index}, {value!r}: {copied[value]} copies"
            yield Anomaly(kind=kind, partition=source, detail=detail)


# -- what was read ------------------------------------------------------------------------------------------


def _check_reads(
    history: TransactionHistory, outputs: Mapping[TopicPartition, Sequence[Written]]
) -> Iterator[Anomaly]:
    positions: dict[tuple[str, TopicPartition], int] = {}
    offsets = {partition: [each.offset for each in log] for partition, log in outputs.items()}
    for read in history.reads:
        before = positions.get((read.reader, read.partition), 0)
        if not read.seek:
            if read.start != before:
                detail = f"{read.reader} went on at {read.start} instead of {before}"
                yield Anomaly(kind="moved-reader", partition=read.partition, detail=detail)
            positions[read.reader, read.partition] = read.end
        first, end = (bisect_left(offsets[read.partition], each) for each in (read.start, read.end))
        yield from _check_read(history, read, outputs[read.partition][first:end])


def _check_read(
    history: TransactionHistory, read: CommittedRead, passed: Sequence[Written]
) -> Iterator[Anomaly]:
    """`passed`: the records in the log between the positions of the read."""

    def anomaly(kind: str, detail: str) -> Anomaly:
        return Anomaly(kind=kind, partition=read.partition, detail=f"{read.reader}: {detail}")

    due = {each.offset: each for each in passed}
    for offset, value in read.records:
        written = due.pop(offset, None)
        if written is None or written.value != value:
            yield anomaly("lost-read", f"{value!r} at {offset} is not in the log")
        elif not written.committed:
            yield anomaly("aborted-read", f"{value!r} at {offset}")
        else:
            asked_at = history.transactions[original_of(value)[1]].commit_asked_at
            if asked_at is not None and read.answered_at < asked_at:
                yield anomaly("precommitted-read", f"{value!r} at {offset} before its commit was asked for")
    for written in due.values():
        if written.committed:
            yield anomaly("torn-read", f"passed {written.value!r} at {written.offset} without reading it")


def _check_offset_reads(
    history: TransactionHistory, outputs: Mapping[TopicPartition, Sequence[Written]]
) -> Iterator[Anomaly]:
    committed = {
        original_of(record.value)[1] for log in outputs.values() for record in log if record.committed
    }
    for read in history.offset_reads:
        if read.number is not None:
            yield from _check_offset_read(history, read, committed)
    for source in {read.source for read in history.offset_reads}:
        yield from _check_rise(
            source,
            [read for read in history.offset_reads if read.source == source],
            [each for each in history.transactions.values() if each.source == source],
        )


def _check_offset_read(
    history: TransactionHistory, read: OffsetRead, committed: set[int]
) -> Iterator[Anomaly]:
    transaction = history.transactions.get(read.number or 0)
    if transaction is None or transaction.source != read.source or transaction.next_offset != read.offset:
        detail = f"{read.offset} of transaction {read.number} was not asked for"
        yield Anomaly(kind="invented-offset", partition=read.source, detail=detail)
    elif transaction.number not in committed:
        detail = f"{read.offset} of transaction {read.number}, which was not committed"
        yield Anomaly(kind="aborted-offset", partition=read.source, detail=detail)
    elif transaction.commit_asked_at is None or read.answered_at < transaction.commit_asked_at:
        detail = f"{read.offset} of transaction {read.number} before its commit was asked for"
        yield Anomaly(kind="precommitted-offset", partition=read.source, detail=detail)


def _check_rise(
    source: TopicPartition, reads: Sequence[OffsetRead], transactions: Sequence[Transaction]
) -> Iterator[Anomaly]:
    """Nobody commits a lower offset: what was read before is the least to be read.

    What was acknowledged before, too, where the reader asked to wait for the markers.
    """
    shown = _Risen((read.answered_at, read.offset) for read in reads)
    acknowledged = _Risen(
        (each.committed_at, each.next_offset) for each in transactions if each.committed_at is not None
    )
    for read in reads:
        known = shown.highest(read.asked_at)
        if read.stable:
            known = max(known, acknowledged.highest(read.asked_at))
        if read.offset < known:
            detail = f"{read.offset} is read where {known} was known"
            yield Anomaly(kind="fallen-offset", partition=source, detail=detail)


class _Risen:
    """The highest offset up to each time."""

    def __init__(self, events: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(events)
        self._times = [at for at, _ in ordered]
        self._highest = list(accumulate((offset for _, offset in ordered), max, initial=-1))

    def highest(self, at: int) -> int:
        """-1: none."""
        return self._highest[bisect_right(self._times, at)]
