# SPDX-License-Identifier: Apache-2.0
"""One node with more and more partitions, and with more and more topics: what each costs, and how that grows.

A node of its own at each size: filled, left alone, asked, stopped, started, killed, started.
Read next: growth_clients.py (connections, groups), bench/curves.py.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient, NewTopic

from bench.cell import Cell
from bench.curves import LINEAR, with_growth
from bench.model import Curve, Figures, Profile
from bench.payloads import plain_batch
from bench.raw_client import RawConnection, produce_check, send_each
from bench.raw_requests import all_metadata_request, metadata_request, produce_request
from headrace.cluster.engines.engine import PreparedNode, RunningNode, free_ports

PARTITIONS = (1_000, 3_300, 10_000)
TOPICS = (10_000, 33_000, 100_000)
PARTITIONS_PER_TOPIC = 100
_TOPICS_PER_REQUEST = 500
IDLE_S = 6.0
_PROBED_S = 16.0
"""Long enough for every periodic job but the checkpoints of a minute."""
_PROBE_PAUSE_S = 0.005
_TIMEOUT_S = 600
_RECORDS = 8
_WAIT = "longest_wait_ms"


def _curve(of: str, sizes: tuple[int, ...], figure: str, title: str, unit: str) -> Curve:
    return Curve(figure=figure, title=f"{title}, {of}", unit=unit, of=of, sizes=sizes, most=LINEAR)


def _life(of: str, sizes: tuple[int, ...]) -> tuple[Curve, ...]:
    """What is measured of topics and partitions alike."""
    named = [
        ("create_s", "creation", "s"),
        ("create_cpu_s", "CPU of the creation", "s"),
        ("added_mb", "memory", "MB"),
        ("idle_cpu_s", f"CPU of {IDLE_S:.0f} s without requests", "s"),
        ("metadata_ms", "Metadata of all topics, after a change", "ms"),
        ("scrape_ms", "scrape of the metrics", "ms"),
        ("list_s", "`headrace topics list`", "s"),
        ("stop_s", "clean stop", "s"),
        ("start_s", "start after a clean stop", "s"),
        ("start_cpu_s", "CPU of that start", "s"),
        ("kill_start_s", "start after SIGKILL", "s"),
        ("kill_start_cpu_s", "CPU of that start after SIGKILL", "s"),
    ]
    return tuple(_curve(of, sizes, *each) for each in named)


_WRITE = _curve("partitions", PARTITIONS, "write_cpu_s", "CPU of a batch to each", "s")
PARTITION_CURVES = (*_life("partitions", PARTITIONS), _WRITE)
TOPIC_CURVES = _life("topics", TOPICS)


def partitions(cell: Cell) -> Figures:
    """Topics of 100 partitions, each with two batches of 8 KB."""
    figures: Figures = {}
    for size in PARTITIONS:
        count = max(1, cell.scaled(size) // PARTITIONS_PER_TOPIC)
        names = [f"orders-{number:04}" for number in range(count)]

        def write(node: RunningNode, names: Sequence[str] = names) -> Figures:
            _write_to_each(node, names)
            before = node.cpu_seconds()
            _write_to_each(node, names)
            return {"write_cpu_s": node.cpu_seconds() - before}

        figures |= at_size(
            size, _whole_life(cell, names, PARTITIONS_PER_TOPIC, write, size == PARTITIONS[-1])
        )
    return with_growth(figures, PARTITION_CURVES)


def topics(cell: Cell) -> Figures:
    """Empty topics of one partition: what their metadata costs."""
    figures: Figures = {}
    for size in TOPICS:
        names = [f"orders-{number:06}" for number in range(cell.scaled(size))]
        figures |= at_size(size, _whole_life(cell, names, 1, lambda node: {}, size == TOPICS[-1]))
    return with_growth(figures, TOPIC_CURVES)


def at_size(size: int, figures: Figures) -> Figures:
    """Under the names of the curves' points; the longest wait is judged as it is."""
    return {name if name == _WAIT else f"{name} {size}": value for name, value in figures.items()}


def _whole_life(
    cell: Cell,
    names: Sequence[str],
    partitions: int,
    write: Callable[[RunningNode], Figures],
    is_largest: bool,
) -> Figures:
    (metrics_port,) = free_ports(1)
    with own_node(cell, {"headrace.metrics.port": str(metrics_port)}) as prepared:
        node = cell.own_node = prepared.launch()
        small_bytes = node.rss_bytes()
        figures = _create(node, names, partitions) | write(node)
        figures["added_mb"] = (node.rss_bytes() - small_bytes) / 1e6
        figures |= idle(node) | (longest_wait(node) if is_largest else {}) | _asked(node, metrics_port)
        return figures | lives(cell, prepared, node)


@contextmanager
def own_node(cell: Cell, settings: dict[str, str]) -> Iterator[PreparedNode]:
    """A data folder that is gone afterwards, and with it whatever runs on it."""
    prepared = cell.nodes.prepare(cell.variant, Profile(name="growth", settings=settings))
    try:
        yield prepared
    finally:
        if cell.own_node is not None:
            cell.own_node.kill()
            cell.own_node = None
        shutil.rmtree(prepared.data_dir.parent, ignore_errors=True)


def _create(node: RunningNode, names: Sequence[str], partitions: int) -> Figures:
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    at_once = max(1, _TOPICS_PER_REQUEST // partitions)
    began, before = time.monotonic(), node.cpu_seconds()
    for first in range(0, len(names), at_once):
        new = [NewTopic(name, partitions) for name in names[first : first + at_once]]
        for created in admin.create_topics(new, operation_timeout=_TIMEOUT_S).values():
            created.result(_TIMEOUT_S)
    return {"create_s": time.monotonic() - began, "create_cpu_s": node.cpu_seconds() - before}


def _write_to_each(node: RunningNode, names: Sequence[str]) -> None:
    batch = plain_batch(_RECORDS, 1000)
    with RawConnection(node.host, node.port) as connection:
        for name in names:
            requests = [
                produce_request(name, {index: batch}, acks=1) for index in range(PARTITIONS_PER_TOPIC)
            ]
            send_each(connection, requests, produce_check(name), in_flight=16)


def idle(node: RunningNode) -> Figures:
    """What a node costs that nobody asks."""
    before = node.cpu_seconds()
    time.sleep(IDLE_S)
    return {"idle_cpu_s": node.cpu_seconds() - before}


def longest_wait(node: RunningNode) -> Figures:
    """How long a small request waits for what the node does by itself."""
    longest, request = 0.0, metadata_request("no-such-topic")
    deadline = time.monotonic() + _PROBED_S
    with RawConnection(node.host, node.port, buffer_bytes=1 << 12) as connection:
        while (began := time.monotonic()) < deadline:
            connection.call(request)
            longest = max(longest, time.monotonic() - began)
            time.sleep(_PROBE_PAUSE_S)
    return {_WAIT: longest * 1000}


def _asked(node: RunningNode, metrics_port: int) -> Figures:
    """By a client that knows nothing yet, by Prometheus, and at the command line."""
    with RawConnection(node.host, node.port) as connection:
        began = time.monotonic()
        connection.call(all_metadata_request())
        metadata_ms = (time.monotonic() - began) * 1000
    address = f"http://127.0.0.1:{metrics_port}/metrics"
    with urlopen(address, timeout=_TIMEOUT_S) as first:  # imports what renders them
        first.read()
    began = time.monotonic()
    with urlopen(address, timeout=_TIMEOUT_S) as reply:
        reply.read()
    scrape_ms = (time.monotonic() - began) * 1000
    return {"metadata_ms": metadata_ms, "scrape_ms": scrape_ms, "list_s": _listed(node)}


def _listed(node: RunningNode) -> float:
    began = time.monotonic()
    command = [sys.executable, "-m", "headrace.cli.main", "topics", "list", "--bootstrap", node.bootstrap]
    subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S)
    return time.monotonic() - began


def lives(
    cell: Cell,
    prepared: PreparedNode,
    node: RunningNode,
    is_whole: Callable[[RunningNode], None] = lambda node: None,
) -> Figures:
    """A clean stop, a start, SIGKILL, a start. `is_whole` returns when all is served that was before."""
    began = time.monotonic()
    node.stop(timeout_ms=_TIMEOUT_S * 1000)
    figures = {"stop_s": time.monotonic() - began}
    figures |= _start(cell, prepared, "start", is_whole)
    assert cell.own_node is not None
    cell.own_node.kill()
    return figures | _start(cell, prepared, "kill_start", is_whole)


def _start(cell: Cell, prepared: PreparedNode, name: str, is_whole: Callable[[RunningNode], None]) -> Figures:
    began = time.monotonic()
    node = cell.own_node = prepared.launch(ready_timeout_ms=_TIMEOUT_S * 1000)
    is_whole(node)
    return {f"{name}_s": time.monotonic() - began, f"{name}_cpu_s": node.cpu_seconds()}
