# SPDX-License-Identifier: Apache-2.0
"""Writes a history as EDN, as jepsen.tests.kafka takes it: one map for each invocation and each completion.

Keys and values become integers. Jepsen's processes do one thing at a time, and none comes back after an
operation with an unknown outcome: what one of ours does at once is told by several of them. An operation that
never completed ends as :info behind all others. Read next: operations.py.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.harness.jepsen.checker import with_final_polls
from tests.harness.jepsen.operations import Analysis, FinalLog, Key, Operation, Polled, Sent, Value
from tests.harness.jepsen.visibility import was_deleted

FOLDER = "HEADRACE_HISTORIES"
"""The variable that names where histories of simulations and live tests are written."""


class _Event(NamedTuple):
    time: int
    number: int
    """Of the operation."""
    completes: bool


def export(name: str, operations: Sequence[Operation], final: Mapping[Key, FinalLog]) -> None:
    """Into the folder that is asked for, if one is; a second history of one name gets a number."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    text = "".join(
        f"{line}\n" for line in edn_lines(with_final_polls(_without_deleted(operations, final), final))
    )
    for number in count(1):
        path = Path(folder) / (f"{name}.edn" if number == 1 else f"{name}-{number}.edn")
        try:
            with path.open("x") as file:
                file.write(text)
        except FileExistsError:
            continue
        return


def _without_deleted(operations: Sequence[Operation], final: Mapping[Key, FinalLog]) -> list[Operation]:
    """What was deleted before anybody read it ends as :info: Jepsen knows no deletion, and calls it lost."""
    read = Analysis(with_final_polls(operations, final)).read

    def is_gone(operation: Operation) -> bool:
        return operation.type == "ok" and any(
            was_deleted(record, final.get(key)) and record.value not in read[key]
            for key, sent in operation.sends().items()
            for record in sent
        )

    return [replace(each, type="info") if is_gone(each) else each for each in operations]


def edn_lines(operations: Sequence[Operation]) -> Iterator[str]:
    """`operations` are in the order of their invocation."""
    keys = {key: number for number, key in enumerate(sorted(_keys(operations)))}
    values: dict[Key, dict[Value, int]] = defaultdict(dict)
    for key, number in keys.items():
        yield f"; key {number} is {key}"
    processes = _processes(operations)
    events = sorted(_events(operations))
    start = events[0].time if events else 0
    for index, event in enumerate(events):
        operation = operations[event.number]
        type_ = _completion(operation) if event.completes else "invoke"
        fields = [
            f":index {index}",
            f":time {event.time - start}",
            f":type :{type_}",
            f":process {processes[event.number]}",
            f":f :{operation.f}",
            f":value {_value(operation, type_, keys, values)}",
        ]
        if event.completes and operation.rebalanced:
            fields.append(f":rebalance-log [{{:keys {_vector(keys[key] for key in operation.rebalanced)}}}]")
        yield f"{{{', '.join(fields)}}}"


def _keys(operations: Iterable[Operation]) -> set[Key]:
    found: set[Key] = set()
    for operation in operations:
        found.update(operation.keys)
        for step in operation.value:
            found.update([step.key] if isinstance(step, Sent) else step.records)
    return found


def _completion(operation: Operation) -> str:
    return "info" if operation.completed_at is None and operation.type == "ok" else operation.type


def _events(operations: Sequence[Operation]) -> Iterator[_Event]:
    end = max((each.completed_at or each.invoked_at for each in operations), default=0) + 1
    for number, operation in enumerate(operations):
        yield _Event(operation.invoked_at, number, completes=False)
        completed_at = end if operation.completed_at is None else operation.completed_at
        yield _Event(completed_at, number, completes=True)


def _processes(operations: Sequence[Operation]) -> list[int]:
    """Of each operation: the first of its client's that is free, or a new one."""
    free_at: list[int | None] = []
    owned: dict[str, list[int]] = defaultdict(list)
    found = []
    for operation in operations:
        for process in owned[operation.process]:
            since = free_at[process]
            if since is not None and since <= operation.invoked_at:
                break
        else:
            process = len(free_at)
            free_at.append(None)
            owned[operation.process].append(process)
        free_at[process] = None if _completion(operation) == "info" else operation.completed_at
        if free_at[process] is None:
            owned[operation.process].remove(process)
        found.append(process)
    return found


def _value(
    operation: Operation, type_: str, keys: Mapping[Key, int], values: Mapping[Key, dict[Value, int]]
) -> str:
    if operation.f in ("assign", "subscribe"):
        return _vector(sorted(keys[key] for key in operation.keys))
    if operation.f == "crash":
        return "nil"

    def number(key: Key, value: Value) -> int:
        return values[key].setdefault(value, len(values[key]))

    def sent(step: Sent) -> str:
        value = str(number(step.key, step.value))
        if type_ == "ok" or (type_ == "info" and step.offset is not None):
            value = f"[{'nil' if step.offset is None else step.offset} {value}]"
        return f"[:send {keys[step.key]} {value}]"

    def polled(step: Polled) -> str:
        if type_ == "invoke":
            return "[:poll]"
        found = (
            f"{keys[key]} {_vector(f'[{offset} {number(key, value)}]' for offset, value in records)}"
            for key, records in step.records.items()
        )
        return f"[:poll {{{', '.join(found)}}}]"

    return _vector(sent(step) if isinstance(step, Sent) else polled(step) for step in operation.value)


def _vector(parts: Iterable[object]) -> str:
    return f"[{' '.join(map(str, parts))}]"
