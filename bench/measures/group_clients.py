# SPDX-License-Identifier: Apache-2.0
"""What an application sees of a group: its first assignment, and the pause when members come, go and die."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle
from statistics import mean, median

from confluent_kafka import KafkaException, Producer

from bench.cell import Cell
from bench.group_consumers import (
    CLASSIC,
    MODERN,
    SESSION_MS,
    GroupConsumer,
    start_process,
    wait_for,
    wait_until_owned,
    wait_until_read,
    wait_until_shared,
)
from bench.judge import percentile
from bench.measures.groups import new_group
from bench.model import Figures

_PARTITIONS = 6
_TICK_SECONDS = 0.002
_CALM_SECONDS = 0.4
"""Records flow for so long before and after what is measured."""


def _first_assignment(cell: Cell, protocol: str) -> Figures:
    times: list[float] = []
    with cell.topic(_PARTITIONS) as topic:
        for _ in range(cell.scaled(5, least=2)):
            with _consumers(cell, topic, new_group(), protocol, 3) as members:
                started = time.perf_counter()
                for member in members:
                    member.start()
                wait_until_shared(members, [2, 2, 2])
                times.append(time.perf_counter() - started)
    return {"p50_ms": percentile(times, 50) * 1000, "slowest_ms": max(times) * 1000}


def first_assignment_classic(cell: Cell) -> Figures:
    """Three instances of a new service start together: when does the last one have its share?"""
    return _first_assignment(cell, CLASSIC)


def first_assignment_modern(cell: Cell) -> Figures:
    """The same with KIP-848."""
    return _first_assignment(cell, MODERN)


@contextmanager
def _consumers(
    cell: Cell, topic: str, group: str, protocol: str, count: int
) -> Iterator[list[GroupConsumer]]:
    """Made, not started; they leave at the end."""
    members = [GroupConsumer(cell.node.bootstrap, topic, group, protocol) for _ in range(count)]
    try:
        yield members
    finally:
        for member in members:
            member.leave()


def _pauses(cell: Cell, protocol: str) -> Figures:
    joins: list[float] = []
    leaves: list[float] = []
    group = new_group()
    with (
        cell.topic(_PARTITIONS) as topic,
        _flowing(cell, [topic]),
        _consumers(cell, topic, group, protocol, 2) as survivors,
    ):
        for survivor in survivors:
            survivor.start()
        wait_until_shared(survivors, [3, 3])
        wait_until_read(survivors, time.perf_counter())
        for _ in range(cell.scaled(2)):
            time.sleep(_CALM_SECONDS)
            with _consumers(cell, topic, group, protocol, 1) as (other,):
                began = time.perf_counter()
                other.start()
                wait_until_shared([*survivors, other], [2, 2, 2])
                joins.append(_gap(survivors, began))
                began = time.perf_counter()
            wait_until_shared(survivors, [3, 3])
            leaves.append(_gap(survivors, began))
    return {"join_pause_ms": median(joins) * 1000, "leave_pause_ms": median(leaves) * 1000}


def _gap(survivors: Sequence[GroupConsumer], since: float) -> float:
    """The survivors' longest wait for a record around what just happened, on average."""
    wait_until_read(survivors, time.perf_counter())
    time.sleep(_CALM_SECONDS)
    return mean(survivor.longest_gap(since - _CALM_SECONDS / 2) for survivor in survivors)


def pauses_classic(cell: Cell) -> Figures:
    """A rolling deployment: how long do the others stand still when an instance comes or goes?"""
    return _pauses(cell, CLASSIC)


def pauses_modern(cell: Cell) -> Figures:
    """The same with KIP-848, which stops only what moves."""
    return _pauses(cell, MODERN)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doomed:
    """A group of two survivors and one member that will be killed."""

    protocol: str
    survivors: Sequence[GroupConsumer]
    process: subprocess.Popen[str]
    partitions: set[int]


def killed_member(cell: Cell) -> Figures:
    """A machine dies: how long until the survivors read what was its? Both protocols side by side."""
    figures: Figures = {}
    with ExitStack() as stack:
        topics = [stack.enter_context(cell.topic(_PARTITIONS)) for _ in range(2)]
        stack.enter_context(_flowing(cell, topics))
        doomed = [
            _doomed(cell, stack, topic, protocol)
            for topic, protocol in zip(topics, (CLASSIC, MODERN), strict=True)
        ]
        for one in doomed:
            wait_until_read(one.survivors, time.perf_counter())
        killed_at = time.perf_counter()
        for one in doomed:
            one.process.kill()
        for one in doomed:
            figures[f"{one.protocol}_takeover_ms"] = _takeover_seconds(one, killed_at) * 1000
    return figures


def _doomed(cell: Cell, stack: ExitStack, topic: str, protocol: str) -> _Doomed:
    group = new_group()
    survivors = stack.enter_context(_consumers(cell, topic, group, protocol, 2))
    process = start_process(cell.node.bootstrap, topic, group, protocol)
    stack.callback(process.wait)
    stack.callback(process.kill)
    for survivor in survivors:
        survivor.start()
    wait_until_shared(survivors, [2, 2])
    partitions = wait_until_owned(process, 2)
    return _Doomed(protocol=protocol, survivors=survivors, process=process, partitions=partitions)


def _takeover_seconds(doomed: _Doomed, killed_at: float) -> float:
    def first() -> dict[int, float]:
        found: dict[int, float] = {}
        for survivor in doomed.survivors:
            found |= survivor.first_of(doomed.partitions, killed_at)
        return found

    wait_for(lambda: len(first()) == len(doomed.partitions), "the dead one's records", doomed.survivors)
    seconds = max(first().values()) - killed_at
    if seconds < SESSION_MS / 2000:  # its last heartbeat was sent some time before the kill, not so long
        raise KafkaException(f"a member was taken for dead after {seconds:.2f} s: its session had not ended")
    return seconds


@contextmanager
def _flowing(cell: Cell, topics: Sequence[str]) -> Iterator[None]:
    """A record every two milliseconds in turn over all partitions, as long as this lasts."""
    stopping = threading.Event()
    producer = Producer({"bootstrap.servers": cell.node.bootstrap, "linger.ms": 0, "log_level": 0})

    def produce() -> None:
        places = cycle([(topic, partition) for partition in range(_PARTITIONS) for topic in topics])
        while not stopping.wait(_TICK_SECONDS):
            topic, partition = next(places)
            producer.produce(topic, b"v" * 100, partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=produce, name="flow")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        producer.flush(30)
