# SPDX-License-Identifier: Apache-2.0
"""A librdkafka member whose coordinator is suspended or has moved between its assignment and its offsets.

It asks for its offsets once: after NOT_COORDINATOR it never asks again, and reads nothing until its group is
balanced anew (docs/decisions/0019). `on_assign` runs between the two, so that the moment is hit every time.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from headrace.types import NO_NODE
from tests.harness.live.cluster import LiveCluster

GROUP, TOPIC, RECORDS = "g", "t", 30
SESSION_S = 3.0
SUSPENDED_AFTER_S = 2.4
"""R7: two thirds of the session timeout, and the next check."""
MUTE_S = 2.8
SETTINGS = {
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "cluster", settings=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, [[0, 1, 2]])
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number).encode())
        assert producer.flush(30) == 0
        yield cluster


def _mute_store(folder: Path, seconds: float, is_mute: threading.Event) -> None:
    """Nobody can renew its session meanwhile, nor see that others did not."""
    (leases,) = folder.rglob("liveness-*.db")
    with contextlib.closing(sqlite3.connect(leases, timeout=10, isolation_level=None)) as held:
        held.execute("BEGIN EXCLUSIVE")
        is_mute.set()
        time.sleep(seconds)  # how long the store is mute
        held.execute("ROLLBACK")


def _read_all(cluster: LiveCluster, between: Callable[[], None]) -> None:
    """`between`: done when the partitions are given out and the offsets not yet asked for."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC], on_assign=lambda *_: between())
    read, deadline = 0, time.monotonic() + 30
    while read < RECORDS:
        assert time.monotonic() < deadline, f"{read} of {RECORDS} records in 30 s: the member stands still"
        messages = consumer.consume(RECORDS, 0.2)
        assert [message.error() for message in messages if message.error()] == []
        read += len(messages)
    consumer.close()


def test_a_member_gets_its_offsets_when_its_coordinator_is_no_longer_suspended(
    cluster: LiveCluster, tmp_path: Path
) -> None:
    is_mute = threading.Event()
    muting = threading.Thread(target=_mute_store, args=(tmp_path, MUTE_S, is_mute))

    def between() -> None:
        muting.start()
        assert is_mute.wait(10)
        time.sleep(SUSPENDED_AFTER_S)  # the time after which a node suspends its leadership

    _read_all(cluster, between)
    muting.join()


def test_a_member_gets_its_offsets_from_a_coordinator_that_is_elsewhere_now(cluster: LiveCluster) -> None:
    def between() -> None:
        left = cluster.coordinator(GROUP)
        cluster.pause(left)
        cluster.wait_until(lambda _: cluster.coordinator(GROUP) not in (left, NO_NODE))
        cluster.resume(left)
        cluster.wait_in_sync()

    _read_all(cluster, between)
