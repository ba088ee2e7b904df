# SPDX-License-Identifier: Apache-2.0
"""Records what clients sent and read, and finds anomalies in it: the model of Jepsen's Kafka workload.

Every value is sent once and is unique in its partition. A send ends `ok` (acknowledged), `fail` (it did not
happen) or `info` (unknown: time-outs and lost connections are never `fail`). For simulation and live tests.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headrace.types import TopicPartition

Outcome = Literal["ok", "fail", "info"]
Value = bytes
Records = Sequence[tuple[int, Value]]


@dataclass(slots=True, kw_only=True)
class Send:
    """`durable`: an acknowledgement promises that the record outlives every fault of this run."""

    producer: str
    partition: TopicPartition
    value: Value
    durable: bool
    ordered: bool = True
    """Whether the producer promised order: values of its ordered sends appear in the order they were sent."""
    outcome: Outcome = "info"
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    reader: str
    partition: TopicPartition
    records: Records
    seek: bool = False
    """The reader asked for this position itself, so a step back or ahead of its last poll is no fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    kind: str
    partition: TopicPartition
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.partition}: {self.detail}"


@dataclass(slots=True)
class History:
    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)

    def sent(self, send: Send) -> Send:
        self.sends.append(send)
        return send

    def polled(self, poll: Poll) -> None:
        self.polls.append(poll)

    def outcomes(self) -> Counter[Outcome]:
        return Counter(send.outcome for send in self.sends)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalLog:
    """One partition as a reader finds it after the faults; what was below `log_start` is deleted."""

    records: Records
    log_start: int = 0
    gaps_allowed: bool = False
    """Compaction and transactions leave gaps."""


def check(history: History, final: Mapping[TopicPartition, FinalLog]) -> list[Anomaly]:
    """Every anomaly that is invalid in every configuration; an empty list is a pass."""
    anomalies: list[Anomaly] = []
    sends: dict[TopicPartition, list[Send]] = defaultdict(list)
    for send in history.sends:
        sends[send.partition].append(send)
    for partition, log in final.items():
        anomalies += _check_log(partition, log)
        anomalies += _check_sends(partition, log, sends[partition])
    anomalies += _check_polls(history.polls, final)
    return anomalies


def _check_log(partition: TopicPartition, log: FinalLog) -> Iterable[Anomaly]:
    expected = log.log_start
    for offset, _ in log.records:
        if offset < expected or (offset > expected and not log.gaps_allowed):
            yield Anomaly(kind="offset-gap", partition=partition, detail=f"{offset} where {expected} was due")
        expected = offset + 1
    for value, count in Counter(value for _, value in log.records).items():
        if count > 1:
            offsets = [offset for offset, other in log.records if other == value]
            yield Anomaly(kind="duplicate", partition=partition, detail=f"{value!r} at {offsets}")


def _check_sends(partition: TopicPartition, log: FinalLog, sends: Sequence[Send]) -> Iterable[Anomaly]:
    offset_of = {value: offset for offset, value in log.records}
    known = {send.value for send in sends}
    for offset, value in log.records:
        if value not in known:
            yield Anomaly(kind="invented", partition=partition, detail=f"{value!r} at {offset} was not sent")
    for send in sends:
        anomaly = _check_send(send, offset_of.get(send.value), log)
        if anomaly is not None:
            yield anomaly
    yield from _check_order(partition, offset_of, sends)


def _check_send(send: Send, found: int | None, log: FinalLog) -> Anomaly | None:
    def anomaly(kind: str, detail: str) -> Anomaly:
        detail = f"{send.producer} {send.value!r}: {detail}"
        return Anomaly(kind=kind, partition=send.partition, detail=detail)

    if send.outcome == "fail":
        return None if found is None else anomaly("failed-write-present", f"at {found}")
    if send.outcome == "info":
        return None
    if found is None:
        # Without an offset, as what is acknowledged by what follows it, it may have been deleted since.
        lost = send.durable and (send.offset or 0) >= log.log_start
        return anomaly("lost-write", f"acknowledged at {send.offset}") if lost else None
    if send.offset is not None and found != send.offset:
        return anomaly("moved", f"acknowledged at {send.offset}, found at {found}")
    return None


def _check_order(
    partition: TopicPartition, offset_of: Mapping[Value, int], sends: Sequence[Send]
) -> Iterable[Anomaly]:
    last: dict[str, tuple[int, Value]] = {}
    for send in sends:
        offset = offset_of.get(send.value)
        if offset is None or not send.ordered:
            continue
        before = last.get(send.producer)
        if before is not None and offset <= before[0]:
            detail = (
                f"{send.producer} sent {before[1]!r} before {send.value!r}, found at {before[0]} and {offset}"
            )
            yield Anomaly(kind="nonmonotonic-send", partition=partition, detail=detail)
        last[send.producer] = (offset, send.value)


def _check_polls(polls: Sequence[Poll], final: Mapping[TopicPartition, FinalLog]) -> Iterable[Anomaly]:
    seen: dict[tuple[TopicPartition, int], Value] = {
        (partition, offset): value for partition, log in final.items() for offset, value in log.records
    }
    position: dict[tuple[str, TopicPartition], int] = {}
    for poll in polls:
        log = final.get(poll.partition)
        for offset, value in poll.records:
            other = seen.setdefault((poll.partition, offset), value)
            if other != value:
                detail = f"offset {offset} was {value!r} and is {other!r}"
                yield Anomaly(kind="inconsistent-offsets", partition=poll.partition, detail=detail)
            elif log is not None and offset >= log.log_start and not log.gaps_allowed:
                yield from _check_still_there(poll, offset, value, log)
        yield from _check_position(poll, position, log)


def _check_still_there(poll: Poll, offset: int, value: Value, log: FinalLog) -> Iterable[Anomaly]:
    index = offset - log.log_start
    if index >= len(log.records):
        detail = f"{poll.reader} read {value!r} at {offset}; the log now ends before it"
        yield Anomaly(kind="read-then-lost", partition=poll.partition, detail=detail)


def _check_position(
    poll: Poll, position: dict[tuple[str, TopicPartition], int], log: FinalLog | None
) -> Iterable[Anomaly]:
    if not poll.records:
        return
    key = (poll.reader, poll.partition)
    expected = None if poll.seek else position.get(key)
    first = poll.records[0][0]
    gaps_allowed = log is not None and log.gaps_allowed
    if expected is not None and first < expected:
        detail = f"{poll.reader} got {first} after {expected - 1}"
        yield Anomaly(kind="nonmonotonic-poll", partition=poll.partition, detail=detail)
    elif expected is not None and first > expected and not gaps_allowed:
        detail = f"{poll.reader} got {first} where {expected} was due"
        yield Anomaly(kind="poll-skip", partition=poll.partition, detail=detail)
    position[key] = poll.records[-1][0] + 1
