# SPDX-License-Identifier: Apache-2.0
"""One node with more and more connections, groups and producers: what each costs, and how that grows.

Read next: growth.py (partitions, topics), bench/curves.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any

from bench.cell import Cell
from bench.curves import LINEAR, with_growth
from bench.group_client import ClassicGroup, expect_none, form_groups, wait_for_coordinator
from bench.loads import covered_seconds, produce_records
from bench.measures.groups import LONG_SESSION_PROFILE
from bench.measures.growth import IDLE_S, at_size, idle, lives, longest_wait, own_node
from bench.model import Curve, Figures
from bench.raw_client import RawConnection, round_trips
from bench.raw_requests import metadata_request
from headrace.cluster.engines.engine import RunningNode
from tests.harness.groups import wire

CONNECTIONS = (500, 1_600, 5_000)
GROUPS = (100, 330, 1_000)
PRODUCERS = (16, 32, 64)
SPREAD = (64, 128, 256)
_MEMBERS = 3
_PROCESSES = 2
_RECORDS = 60_000
_CALLS = 2_000


def _curves(of: str, sizes: tuple[int, ...], *named: tuple[str, str, str]) -> tuple[Curve, ...]:
    return tuple(
        Curve(figure=figure, title=f"{title}, {of}", unit=unit, of=of, sizes=sizes, most=LINEAR)
        for figure, title, unit in named
    )


CONNECTION_CURVES = _curves(
    "connections",
    CONNECTIONS,
    ("open_s", "opened and answered once", "s"),
    ("open_cpu_s", "CPU of that", "s"),
    ("added_mb", "memory", "MB"),
    ("idle_cpu_s", f"CPU of {IDLE_S:.0f} s without requests", "s"),
    ("round_trip_us", "round trip of a small request, p50", "µs"),
    ("close_cpu_s", "CPU of their end", "s"),
)
GROUP_CURVES = _curves(
    "groups of 3 members",
    GROUPS,
    ("form_s", "formed", "s"),
    ("form_cpu_s", "CPU of that", "s"),
    ("added_mb", "memory", "MB"),
    ("heartbeat_cpu_s", "CPU of a heartbeat of each member", "s"),
    ("idle_cpu_s", f"CPU of {IDLE_S:.0f} s without requests", "s"),
    ("stop_s", "clean stop", "s"),
    ("start_s", "start after a clean stop until all members are known", "s"),
    ("start_cpu_s", "CPU of that start", "s"),
    ("kill_start_s", "start after SIGKILL until all members are known", "s"),
    ("kill_start_cpu_s", "CPU of that start after SIGKILL", "s"),
)
PRODUCER_CURVES = tuple(
    Curve(figure=figure, title=title, unit=unit, of="idempotent producers", sizes=PRODUCERS)
    for figure, title, unit in (
        ("mb_per_s", "idempotent producers, 16 partitions, acks=all, 1 KB", "MB/s"),
        ("cpu_s_per_gb", "idempotent producers: broker CPU", "s/GB"),
    )
)
SPREAD_CURVES = tuple(
    Curve(figure=figure, title=title, unit=unit, of="partitions of 16 producers", sizes=SPREAD)
    for figure, title, unit in (
        ("mb_per_s", "16 producers with keys, linger 5 ms, 1 KB", "MB/s"),
        ("cpu_s_per_gb", "16 producers with keys: broker CPU", "s/GB"),
    )
)


def connections(cell: Cell) -> Figures:
    """Clients that have been answered once and then say nothing."""
    figures: Figures = {}
    for size in CONNECTIONS:
        with own_node(cell, {}) as prepared:
            cell.own_node = prepared.launch()
            is_largest = size == CONNECTIONS[-1]
            figures |= at_size(size, _open_and_close(cell, cell.own_node, cell.scaled(size), is_largest))
    return with_growth(figures, CONNECTION_CURVES)


def _open_and_close(cell: Cell, node: RunningNode, count: int, is_largest: bool) -> Figures:
    hello, small_bytes = metadata_request("no-such-topic"), node.rss_bytes()
    with cell.connect() as connection:
        round_trips(connection, [hello], lambda reply: None, count=_CALLS)
    with ExitStack() as stack:
        began = time.monotonic()
        with cell.cpu_clock() as cpu:
            opened = [stack.enter_context(cell.connect(buffer_bytes=1 << 12)) for _ in range(count)]
            for connection in opened:
                connection.call(hello)
        figures = {"open_s": time.monotonic() - began, "open_cpu_s": cpu.seconds}
        figures["added_mb"] = (node.rss_bytes() - small_bytes) / 1e6
        figures |= idle(node) | (longest_wait(node) if is_largest else {})
        times_us = round_trips(opened[0], [hello], lambda reply: None, count=_CALLS)
        figures["round_trip_us"] = median(times_us)
        with cell.cpu_clock() as cpu:
            stack.close()
            with cell.connect() as last:  # answered when it has noticed all of them
                last.call(hello)
    return figures | {"close_cpu_s": cpu.seconds}


def groups(cell: Cell) -> Figures:
    """Consumer groups of the classic protocol with three members each, all of them stable."""
    figures: Figures = {}
    for size in GROUPS:
        with own_node(cell, dict(LONG_SESSION_PROFILE.settings)) as prepared, ExitStack() as stack:
            node = cell.own_node = prepared.launch()
            formed, taken = _form(cell, stack, cell.scaled(size))
            taken |= idle(node) | (longest_wait(node) if size == GROUPS[-1] else {})
            figures |= at_size(size, taken | lives(cell, prepared, node, partial(_known_again, formed)))
    return with_growth(figures, GROUP_CURVES)


def _form(cell: Cell, stack: ExitStack, count: int) -> tuple[list[ClassicGroup], Figures]:
    names = [f"billing-{number:04}" for number in range(count)]
    topic = cell.create_topic(_MEMBERS)
    with cell.connect() as connection:
        for name in names[:200]:  # the coordinator's 50 partitions are there by then
            wait_for_coordinator(connection, name)
    small_bytes, began = cell.node.rss_bytes(), time.monotonic()
    with cell.cpu_clock() as cpu:
        formed = form_groups(
            names,
            topic,
            partitions=_MEMBERS,
            members=_MEMBERS,
            connect=lambda: stack.enter_context(cell.connect(buffer_bytes=1 << 12)),
        )
    figures = {"form_s": time.monotonic() - began, "form_cpu_s": cpu.seconds}
    figures["added_mb"] = (cell.node.rss_bytes() - small_bytes) / 1e6
    with cell.cpu_clock() as cpu:
        for group in formed:
            for member in group.members:
                _beat(member.connection, member.heartbeat(group.name, group.generation))
    return formed, figures | {"heartbeat_cpu_s": cpu.seconds}


def _beat(connection: RawConnection, request: bytes) -> None:
    expect_none("Heartbeat", wire.read_reply("heartbeat", connection.call(request)).error_code)


def _known_again(formed: Sequence[ClassicGroup], node: RunningNode) -> None:
    """Every member may go on in its generation."""
    with RawConnection(node.host, node.port) as connection:
        for group in formed:
            wait_for_coordinator(connection, group.name)
            for member in group.members:
                _beat(connection, member.heartbeat(group.name, group.generation))


def idempotent_producers(cell: Cell) -> Figures:
    """64 careful applications at once, and fewer of them: acks=all on every record."""
    figures: Figures = {}
    with cell.topic(partitions=16) as topic:
        cell.touch_partitions(topic, 16)
        for size in PRODUCERS:
            settings = {"enable.idempotence": True, "acks": "all"}
            taken = _produce(cell, topic, producers=size, keyed=False, settings=settings)
            figures |= at_size(size, taken)
    return figures | {name: figures[f"{name} {PRODUCERS[-1]}"] for name in ("mb_per_s", "cpu_s_per_gb")}


def spread_producers(cell: Cell) -> Figures:
    """16 applications whose keys are spread over more and more partitions."""
    figures: Figures = {}
    for size in SPREAD:
        with cell.topic(partitions=size) as topic:
            cell.touch_partitions(topic, size)
            taken = _produce(cell, topic, producers=16, keyed=True, settings={"linger.ms": 5})
        figures |= at_size(size, taken)
    return figures | {name: figures[f"{name} {SPREAD[-1]}"] for name in ("mb_per_s", "cpu_s_per_gb")}


def _produce(cell: Cell, topic: str, *, producers: int, keyed: bool, settings: Mapping[str, Any]) -> Figures:
    records = cell.scaled(_RECORDS, least=2_000)
    one = {
        "bootstrap": cell.node.bootstrap,
        "topic": topic,
        "records": records,
        "value_bytes": 1000,
        "producers": producers // _PROCESSES,
        "keyed": keyed,
        "settings": dict(settings),
    }
    with cell.cpu_clock() as cpu:
        spans = cell.pool.run_together(produce_records, [one] * _PROCESSES)
    payload = _PROCESSES * records * 1000
    return {"mb_per_s": payload / covered_seconds(spans) / 1e6, "cpu_s_per_gb": cpu.per_gb(payload)}
