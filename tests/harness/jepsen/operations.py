# SPDX-License-Identifier: Apache-2.0
"""A history as Jepsen's Kafka workload has it: operations of processes, made of sends and polls of keys.

A key is a partition; every value is unique in its key. An operation is `ok` (it happened), `fail` (it did not
happen) or `info` (unknown). Pure data. Read next: checker.py, edn.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from headrace.types import TopicPartition

Outcome = Literal["ok", "fail", "info"]
Function = Literal["send", "poll", "txn", "assign", "subscribe", "crash"]
Key = TopicPartition
Value = bytes
Records = Sequence[tuple[int, Value]]


class Record(NamedTuple):
    offset: int | None
    """None: the operation does not know it."""
    value: Value


class Sent(NamedTuple):
    """One micro-operation: a record that was sent."""

    key: Key
    value: Value
    offset: int | None = None


class Polled(NamedTuple):
    """One micro-operation: what a single poll answered, for every key."""

    records: Mapping[Key, Records]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Operations of one process are in the order in which they were invoked.

    The sends of one process have to appear in that order, too, even where they overlap in time, as those of
    an idempotent producer do.
    """

    process: str
    type: Outcome
    f: Function
    value: Sequence[Sent | Polled] = ()
    keys: Collection[Key] = ()
    """Those of assign and subscribe."""
    rebalanced: Collection[Key] = ()
    """Keys whose assignment changed while the operation ran."""
    invoked_at: int
    completed_at: int | None = None
    """None: never, or at an unknown time."""

    def sends(self) -> dict[Key, list[Record]]:
        found: dict[Key, list[Record]] = defaultdict(list)
        for step in self.value:
            if isinstance(step, Sent):
                found[step.key].append(Record(step.offset, step.value))
        return found

    def polls(self) -> dict[Key, list[Record]]:
        found: dict[Key, list[Record]] = defaultdict(list)
        for step in self.value:
            if isinstance(step, Polled):
                for key, records in step.records.items():
                    found[key] += [Record(offset, value) for offset, value in records]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    kind: str
    partition: TopicPartition
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.partition}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalLog:
    """One partition as a reader finds it after the faults; what was below `log_start` is deleted."""

    records: Records
    log_start: int = 0
    gaps_allowed: bool = False
    """Compaction and transactions leave gaps."""


@dataclass(slots=True)
class Analysis:
    """A history with what several detectors need to know of it."""

    operations: Sequence[Operation]
    sends: list[dict[Key, list[Record]]] = field(init=False)
    """Of each operation."""
    polls: list[dict[Key, list[Record]]] = field(init=False)
    read: dict[Key, set[Value]] = field(init=False)
    """Every value that a successful operation polled."""
    writers: dict[Key, dict[Value, int]] = field(init=False)
    """The number of the operation that sent it."""

    def __post_init__(self) -> None:
        self.sends = [each.sends() for each in self.operations]
        self.polls = [each.polls() for each in self.operations]
        self.read, self.writers = defaultdict(set), defaultdict(dict)
        for number, operation in enumerate(self.operations):
            if operation.type == "ok":
                for key, records in self.polls[number].items():
                    self.read[key].update(record.value for record in records)
            for key, records in self.sends[number].items():
                self.writers[key].update((record.value, number) for record in records)

    def has_committed(self, number: int) -> bool:
        """It succeeded, or its outcome is unknown and something of it was read."""
        operation = self.operations[number]
        return operation.type == "ok" or (
            operation.type == "info"
            and any(
                record.value in self.read[key] for key, sent in self.sends[number].items() for record in sent
            )
        )
