# SPDX-License-Identifier: Apache-2.0
"""Records what clients sent and read, and finds anomalies in it: the model of Jepsen's Kafka workload.

Every value is sent once and is unique in its partition. A send ends `ok` (acknowledged), `fail` (it did not
happen) or `info` (unknown: time-outs and lost connections are never `fail`). For simulation and live tests.
The anomalies that Jepsen has names for are found by jepsen/checker.py; what only the final log can tell is
found here. Read next: jepsen/checker.py.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.types import TopicPartition
from tests.harness.jepsen.checker import analyze
from tests.harness.jepsen.operations import (
    Anomaly,
    FinalLog,
    Key,
    Operation,
    Outcome,
    Polled,
    Records,
    Sent,
    Value,
)

__all__ = ["Anomaly", "FinalLog", "History", "Outcome", "Poll", "Records", "Send", "Value", "check"]


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
    invoked_at: int = 0
    completed_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    reader: str
    partition: TopicPartition
    records: Records
    seek: bool = False
    """The reader asked for this position itself, so a step back or ahead of its last poll is no fault."""
    answered_at: int = 0


@dataclass(slots=True)
class History:
    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    clock: Callable[[], int] = time.monotonic_ns
    """Nanoseconds."""
    _now: int = 0

    def tick(self) -> int:
        """The time, later than every earlier one."""
        self._now = max(self._now + 1, self.clock())
        return self._now

    def sent(self, send: Send) -> Send:
        send.invoked_at = self.tick()
        self.sends.append(send)
        return send

    def ended(self, send: Send, outcome: Outcome, offset: int | None = None) -> None:
        send.outcome, send.offset = outcome, offset
        send.completed_at = self.tick()

    def polled(self, poll: Poll) -> None:
        self.polls.append(replace(poll, answered_at=self.tick()))

    def outcomes(self) -> Counter[Outcome]:
        return Counter(send.outcome for send in self.sends)

    def operations(self, final: Mapping[Key, FinalLog] | None = None) -> list[Operation]:
        """In the order of their invocation, which is that of the lists for each client."""
        stored = {key: {value for _, value in log.records} for key, log in (final or {}).items()}
        made = [
            _operation_of(number, send, stored.get(send.partition)) for number, send in enumerate(self.sends)
        ]
        made += _poll_operations(self.polls)
        return sorted(made, key=lambda operation: operation.invoked_at)


def _operation_of(number: int, send: Send, stored: set[Value] | None) -> Operation:
    """What is acknowledged, not durable and gone counts as unknown."""
    gone = not send.durable and stored is not None and send.value not in stored
    outcome: Outcome = "info" if send.outcome == "ok" and gone else send.outcome
    return Operation(
        process=send.producer if send.ordered else f"{send.producer}, send {number}",
        type=outcome,
        f="send",
        value=(Sent(send.partition, send.value, send.offset),),
        invoked_at=send.invoked_at,
        completed_at=None if outcome == "info" else send.completed_at,
    )


def _poll_operations(polls: Sequence[Poll]) -> Iterable[Operation]:
    """A seek is an assignment without the partition and one with it: both forget its position."""
    read: dict[str, set[TopicPartition]] = defaultdict(set)
    for poll in polls:
        at, assigned = poll.answered_at, read[poll.reader]
        assigned.add(poll.partition)
        if poll.seek:
            for keys in (assigned - {poll.partition}, set(assigned)):
                yield Operation(
                    process=poll.reader, type="ok", f="assign", keys=keys, invoked_at=at, completed_at=at
                )
        value = (Polled({poll.partition: poll.records}),)
        yield Operation(process=poll.reader, type="ok", f="poll", value=value, invoked_at=at, completed_at=at)


def check(history: History, final: Mapping[TopicPartition, FinalLog]) -> list[Anomaly]:
    """Every anomaly that is invalid in every configuration; an empty list is a pass.

    Sends of single records are points in time: not even G0 may be found, in which an acknowledged record is
    behind one that was sent later.
    """
    sends: dict[TopicPartition, list[Send]] = defaultdict(list)
    for send in history.sends:
        sends[send.partition].append(send)
    operations = history.operations(final)
    anomalies = [
        each for each in analyze(operations, final, ww_dependencies=True) if each.kind != "G0-process"
    ]
    for partition, log in final.items():
        anomalies += _check_log(partition, log, sends[partition])
    anomalies += _check_still_there(history.polls, final)
    return anomalies


def _check_log(partition: TopicPartition, log: FinalLog, sends: Sequence[Send]) -> Iterable[Anomaly]:
    """What only the final log tells."""
    if log.records and log.records[0][0] != log.log_start and not log.gaps_allowed:
        detail = f"{log.records[0][0]} where {log.log_start} was due"
        yield Anomaly(kind="offset-gap", partition=partition, detail=detail)
    offset_of = {value: offset for offset, value in log.records}
    known = {send.value for send in sends}
    for offset, value in log.records:
        if value not in known:
            yield Anomaly(kind="invented", partition=partition, detail=f"{value!r} at {offset} was not sent")
    for send in sends:
        found = offset_of.get(send.value, send.offset)
        if send.outcome == "ok" and send.offset is not None and found != send.offset:
            detail = f"{send.producer} {send.value!r}: acknowledged at {send.offset}, found at {found}"
            yield Anomaly(kind="moved", partition=partition, detail=detail)


def _check_still_there(polls: Iterable[Poll], final: Mapping[TopicPartition, FinalLog]) -> Iterable[Anomaly]:
    for poll in polls:
        log = final.get(poll.partition)
        if log is None or log.gaps_allowed:
            continue
        end = log.log_start + len(log.records)
        for offset, value in poll.records:
            if offset >= end:
                detail = f"{poll.reader} read {value!r} at {offset}; the log now ends before it"
                yield Anomaly(kind="read-then-lost", partition=poll.partition, detail=detail)
