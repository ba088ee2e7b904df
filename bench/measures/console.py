# SPDX-License-Identifier: Apache-2.0
"""The console on a large cluster and in a failover: how late it is, its requests to the brokers, its memory.

Documents are timed where they arrive, by viewers without a browser; the first paint and the drawing of a
failover in Chromium. Read next: console_process.py.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

from confluent_kafka import Consumer, Producer

from bench.cell import Cell
from bench.clusters import NODES, running_cluster
from bench.console_load import (
    GROUPS,
    TOPICS,
    build,
    commit,
    group_name,
    requests_answered,
    topic_name,
)
from bench.console_process import BrowserThread, ConsoleProcess, Document, Viewer, open_browser
from bench.measures.failover import TOPIC, Prober
from bench.model import Figures, Profile
from headrace.cluster.engines.engine import RunningNode, free_ports
from tests.harness.live.cluster import LiveCluster

VIEWERS = 10
_SAMPLES = 5
_QUIET_S = 10.0
_SETTLE_S = 3.0
_WARM_UP_S = 1.0
_TIMEOUT_S = 60.0
_TILE = """([topic, old]) => {
  for (const tile of document.querySelectorAll(`[data-tile="${topic}-0"][data-role="leader"]`)) {
    const node = tile.closest("[data-node]");
    if (node && node.dataset.node !== old) return Date.now();
  }
  return 0;
}"""
"""When the page shows the partition's leader on another node: milliseconds since 1970."""


def large_cluster(cell: Cell) -> Figures:
    """1,000 topics × 10 partitions and 500 groups on one node."""
    with _large_node(cell) as (node, metrics_port), ExitStack() as stack:
        load = _Load(cell, node, metrics_port)
        time.sleep(_SETTLE_S)
        quiet = load.measure(None)
        console = stack.enter_context(ConsoleProcess(node.bootstrap, cell.nodes.new_folder("console")))
        stack.enter_context(Viewer(console, "cluster"))
        time.sleep(_SETTLE_S)
        one = load.measure(console)
        with ExitStack() as more:
            for _ in range(VIEWERS - 1):
                more.enter_context(Viewer(console, "cluster"))
            time.sleep(_SETTLE_S)
            ten = load.measure(console)
        figures = {
            "requests_per_s": one["requests_per_s"] - quiet["requests_per_s"],
            "ten_requests_per_s": ten["requests_per_s"] - quiet["requests_per_s"],
            "broker_cpu_percent": one["broker_cpu_percent"] - quiet["broker_cpu_percent"],
            "ten_broker_cpu_percent": ten["broker_cpu_percent"] - quiet["broker_cpu_percent"],
            "console_cpu_percent": one["console_cpu_percent"],
            "ten_console_cpu_percent": ten["console_cpu_percent"],
        }
        figures |= _lateness(cell, node, console)
        figures |= _first_paint(cell, console)
        return {**figures, "rss_mb": console.rss_mb()}


def failover(cell: Cell) -> Figures:
    """From the new leader's first acknowledged record to the page that shows it as the leader."""
    with running_cluster(cell) as cluster, ExitStack() as stack:
        nodes = cluster.node_ids
        cluster.create_topic(
            TOPIC, [[nodes[(first + step) % NODES] for step in range(NODES)] for first in range(3)]
        )
        cluster.wait_in_sync()
        console = stack.enter_context(ConsoleProcess(cluster.bootstrap, cell.nodes.new_folder("console")))
        browser = stack.enter_context(BrowserThread())
        browser.call(_open_overview, browser.page, console).result()
        late = [_drawn_after(cluster, browser) for _ in range(cell.scaled(_SAMPLES, least=2))]
        return {"drawn_p50_ms": median(late), "drawn_worst_ms": max(late)}


def _open_overview(page: Any, console: ConsoleProcess) -> None:
    page.goto(f"{console.address}/")
    page.wait_for_selector(f'[data-tile="{TOPIC}-0"][data-role="leader"]', timeout=_TIMEOUT_S * 1000)


def _drawn_after(cluster: LiveCluster, browser: BrowserThread) -> float:
    """Milliseconds from the new leader's first record to the drawing; below zero: it was drawn before."""
    victim = cluster.leader(TOPIC, 0)
    with Prober(cluster.bootstrap, 0) as prober:
        time.sleep(_WARM_UP_S)
        drawn = browser.call(_wait_for_another, browser.page, victim)
        moment, wall = time.monotonic(), time.time()
        cluster.kill(victim)
        first_record_s = prober.first_after(moment)
        drawn_s = drawn.result() - wall
    cluster.start(victim)
    cluster.wait_in_sync(timeout_s=_TIMEOUT_S)
    return (drawn_s - first_record_s) * 1000


def _wait_for_another(page: Any, victim: int) -> float:
    """When the page shows another leader: seconds since 1970."""
    found = page.wait_for_function(_TILE, arg=[TOPIC, str(victim)], polling="raf", timeout=_TIMEOUT_S * 1000)
    return float(found.json_value()) / 1000


@contextmanager
def _large_node(cell: Cell) -> Iterator[tuple[RunningNode, int]]:
    (metrics_port,) = free_ports(1)
    profile = Profile(name="console", settings={"headrace.metrics.port": str(metrics_port)})
    prepared = cell.nodes.prepare(cell.variant, profile)
    try:
        with prepared.launch() as node:
            build(node, topics=cell.scaled(TOPICS, least=20), groups=cell.scaled(GROUPS, least=10))
            yield node, metrics_port
    finally:
        shutil.rmtree(prepared.data_dir.parent, ignore_errors=True)


class _Load:
    """What the node and the console do while nothing happens in the cluster."""

    def __init__(self, cell: Cell, node: RunningNode, metrics_port: int) -> None:
        self._node, self._metrics_port = node, metrics_port
        self._seconds = max(_QUIET_S * cell.scale, 3.0)

    def measure(self, console: ConsoleProcess | None) -> Figures:
        began, before = time.monotonic(), self._counters(console)
        time.sleep(self._seconds)
        elapsed, after = time.monotonic() - began, self._counters(console)
        requests, broker, own = (b - a for a, b in zip(before, after, strict=True))
        return {
            "requests_per_s": requests / elapsed,
            "broker_cpu_percent": broker / elapsed * 100,
            "console_cpu_percent": own / elapsed * 100,
        }

    def _counters(self, console: ConsoleProcess | None) -> tuple[float, float, float]:
        own = 0.0 if console is None else console.cpu_seconds()
        return requests_answered(self._metrics_port), self._node.cpu_seconds(), own


def _lateness(cell: Cell, node: RunningNode, console: ConsoleProcess) -> Figures:
    samples = cell.scaled(_SAMPLES, least=2)
    group, topic = group_name(0), topic_name(0)
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, "log_level": 0})
    written = 0
    overview, page = [], []
    with Viewer(console, "groups", {"q": group}) as viewer:
        for _ in range(samples):
            written += 10
            sent = _produce(producer, topic, 10)
            overview.append(viewer.wait_for(_listed(group, written), timeout_s=_TIMEOUT_S) - sent)
    with Viewer(console, "group", {"group": group}) as viewer:
        for number in range(1, samples + 1):
            committed = commit(node, group, topic, number)
            page.append(viewer.wait_for(_lag(written - number), timeout_s=_TIMEOUT_S) - committed)
        members = [_member_seen(node, viewer, group, topic, number) for number in range(samples)]
    return {
        "overview_lag_s": max(overview),
        "page_lag_ms": max(page) * 1000,
        "members_ms": max(members) * 1000,
    }


def _produce(producer: Producer, topic: str, count: int) -> float:
    """When all are acknowledged."""
    for _ in range(count):
        producer.produce(topic, b"order", partition=0)
    if producer.flush(_TIMEOUT_S):
        raise TimeoutError("records were not acknowledged")
    return time.monotonic()


def _listed(group: str, lag: int) -> Callable[[Document], bool]:
    return lambda document: any(g["id"] == group and g["lag"] == lag for g in document["groups"])


def _lag(lag: int) -> Callable[[Document], bool]:
    return lambda document: bool(document["totals"]["lag"] == lag)


def _member_seen(node: RunningNode, viewer: Viewer, group: str, topic: str, number: int) -> float:
    """From the consumer's first assignment to the document that shows the member with it."""
    client_id = f"worker-{number}"
    assigned: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "client.id": client_id,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )

    def seen(document: Document) -> bool:
        return any(m["client_id"] == client_id and m["partitions"] for m in document["members"])

    consumer.subscribe([topic], on_assign=lambda _, __: assigned.append(time.monotonic()))
    deadline = time.monotonic() + _TIMEOUT_S
    while not assigned and time.monotonic() < deadline:
        consumer.poll(0.02)
    try:
        return viewer.wait_for(seen, timeout_s=_TIMEOUT_S) - assigned[0]
    finally:
        consumer.close()
        viewer.wait_for(lambda document: not document["members"], timeout_s=_TIMEOUT_S)


def _first_paint(cell: Cell, console: ConsoleProcess) -> Figures:
    """From the navigation to the first node on the page, in a fresh browser each time."""
    with open_browser() as browser:
        samples = [_paint(browser, console) for _ in range(cell.scaled(_SAMPLES, least=2))]
    return {"first_paint_ms": median(samples)}


def _paint(browser: Any, console: ConsoleProcess) -> float:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        page.goto(f"{console.address}/", wait_until="commit")
        page.wait_for_selector("[data-node]", timeout=_TIMEOUT_S * 1000)
        return float(page.evaluate("performance.now()"))
    finally:
        context.close()
