# SPDX-License-Identifier: Apache-2.0
"""Failover time of writes when a leader dies, hangs or is restarted: confluent-kafka with acks=all.

From the signal to the first acknowledgement of a record that was sent after it, by a client at its defaults.
Each blow meets a fresh one: librdkafka lets a node that it connected to twice within ten seconds wait for
longer each time, and an engine that is back sooner is struck again sooner.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count, pairwise
from statistics import median

from confluent_kafka import KafkaError, Message, Producer

from bench.cell import Cell
from bench.clusters import NODES, running_cluster
from bench.model import KAFKA, Figures
from tests.harness.live.cluster import LiveCluster

TOPIC = "failover"
QUICK_SESSION = {"broker.session.timeout.ms": "2000"}
KAFKAS_HEARTBEAT = {"broker.heartbeat.interval.ms": "500"}
"""Headrace renews its session four times in its time-out, which is the same."""
IMPATIENT = {"socket.timeout.ms": "1000", "request.timeout.ms": "1000"}
"""A client at its defaults waits 60 s for the reply of a node that hangs, whatever the cluster does."""
KILLS, PAUSES, MANY_PARTITIONS = 10, 10, 1000
_PAUSE_S = 0.005
_TIMEOUT_S = 60.0
_WARM_UP_S = 1.0


class Prober:
    """Sends a record to one partition every 5 ms, whatever happens, and knows when each was acknowledged."""

    def __init__(self, bootstrap: str, partition: int, options: Mapping[str, str] | None = None) -> None:
        self.acknowledged: list[tuple[float, float]] = []
        """(sent, acknowledged) by time.monotonic()."""
        self.failed = 0
        self._partition = partition
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        self._producer = Producer({**settings, **(options or {})})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self.failed += self._producer.flush(_TIMEOUT_S)

    def first_after(self, moment: float) -> float:
        """Seconds from the moment to the first acknowledgement of what was sent after it."""
        looked = 0
        while time.monotonic() - moment < _TIMEOUT_S:
            for sent, acknowledged in self.acknowledged[looked:]:
                looked += 1
                if sent >= moment:
                    return acknowledged - moment
            time.sleep(0.001)
        raise TimeoutError(f"no write to partition {self._partition} within {_TIMEOUT_S:.0f} s")

    def longest_gap(self) -> float:
        moments = [acknowledged for _, acknowledged in self.acknowledged]
        return max((after - before for before, after in pairwise(moments)), default=0.0)

    def _run(self) -> None:
        for number in count():
            if self._stopping.is_set():
                return
            sent = time.monotonic()
            self._producer.produce(
                TOPIC, b"%d" % number, partition=self._partition, on_delivery=self._note(sent)
            )
            self._producer.poll(_PAUSE_S)

    def _note(self, sent: float) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.append((sent, time.monotonic()))
            else:
                self.failed += 1

        return note


def killed_leader(cell: Cell) -> Figures:
    """Each engine at its defaults; Headrace on SQLite and on ZooKeeper."""
    figures = _named("sqlite", _kills(cell, {}, zookeeper=False))
    if cell.variant == KAFKA:  # there is one of it, to compare both with
        return {**figures, **{name.replace("sqlite", "zookeeper"): value for name, value in figures.items()}}
    return {**figures, **_named("zookeeper", _kills(cell, {}, zookeeper=True))}


def quick_sessions(cell: Cell) -> Figures:
    """Session time-out 2 s and heartbeat 0.5 s on both: a leader that dies, and one that hangs."""
    settings = {**QUICK_SESSION, **(KAFKAS_HEARTBEAT if cell.variant == KAFKA else {})}
    with _replicated(cell, settings) as cluster:
        killed = [_strike(cluster, _kill, _start) for _ in range(cell.scaled(KILLS, least=2))]
        hung = [
            _strike(cluster, LiveCluster.pause, LiveCluster.resume, IMPATIENT)
            for _ in range(cell.scaled(PAUSES, least=1))
        ]
    return {**_named("killed", killed), **_named("hung", hung)}


def rolling_restart(cell: Cell) -> Figures:
    """All three in turn, cleanly, each when the one before is in sync again; a writer to every partition."""
    with _replicated(cell, {}) as cluster, ExitStack() as stack:
        probers = [stack.enter_context(Prober(cluster.bootstrap, index)) for index in range(NODES)]
        time.sleep(_WARM_UP_S)
        for node_id in cluster.node_ids:
            cluster.stop(node_id)
            cluster.start(node_id)
            cluster.wait_in_sync(timeout_s=_TIMEOUT_S)
        time.sleep(_WARM_UP_S)
    return {
        "longest_gap_ms": max(prober.longest_gap() for prober in probers) * 1000,
        "failed": float(sum(prober.failed for prober in probers)),
    }


def many_partitions(cell: Cell) -> Figures:
    """1,000 partitions × 3 replicas: from the signal until a survivor names a live leader for each."""
    partitions = cell.scaled(MANY_PARTITIONS, least=50)
    with running_cluster(cell) as cluster:
        nodes = cluster.node_ids
        cluster.create_topic(
            TOPIC, [[nodes[(first + step) % NODES] for step in range(NODES)] for first in range(partitions)]
        )
        cluster.wait_in_sync(timeout_s=120)
        victim, survivor = nodes[0], nodes[1]
        killed_at = time.monotonic()
        cluster.kill(victim)
        while _led_by(cluster, survivor, victim):
            if time.monotonic() - killed_at > _TIMEOUT_S:
                raise TimeoutError("some partitions have no leader")
            time.sleep(0.01)
        return {"all_led_s": time.monotonic() - killed_at}


def _led_by(cluster: LiveCluster, asked: int, victim: int) -> bool:
    metadata = cluster.metadata(of=asked)
    return metadata is None or any(each.leader in (victim, -1) for each in metadata.partitions)


def _kills(cell: Cell, settings: dict[str, str], *, zookeeper: bool) -> list[float]:
    with _replicated(cell, settings, zookeeper=zookeeper) as cluster:
        return [_strike(cluster, _kill, _start) for _ in range(cell.scaled(KILLS, least=2))]


@contextmanager
def _replicated(cell: Cell, settings: dict[str, str], *, zookeeper: bool = False) -> Iterator[LiveCluster]:
    with running_cluster(cell, settings, zookeeper=zookeeper) as cluster:
        _create(cluster)
        yield cluster


def _create(cluster: LiveCluster) -> None:
    nodes = cluster.node_ids
    replicas = [[nodes[(first + step) % NODES] for step in range(NODES)] for first in range(NODES)]
    cluster.create_topic(TOPIC, replicas, min_insync_replicas="2")
    cluster.wait_in_sync()


def _strike(
    cluster: LiveCluster,
    strike: Callable[[LiveCluster, int], None],
    repair: Callable[[LiveCluster, int], None],
    options: Mapping[str, str] | None = None,
) -> float:
    with Prober(cluster.bootstrap, 0, options) as prober:
        time.sleep(_WARM_UP_S)
        victim = cluster.leader(TOPIC, 0)
        moment = time.monotonic()
        strike(cluster, victim)
        took = prober.first_after(moment)
    repair(cluster, victim)
    cluster.wait_in_sync(timeout_s=_TIMEOUT_S)
    time.sleep(0.2)
    return took


def _kill(cluster: LiveCluster, node_id: int) -> None:
    cluster.kill(node_id)


def _start(cluster: LiveCluster, node_id: int) -> None:
    cluster.start(node_id)


def _named(name: str, samples: list[float]) -> Figures:
    return {f"{name}_p50_ms": median(samples) * 1000, f"{name}_worst_ms": max(samples) * 1000}
