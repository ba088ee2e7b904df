# SPDX-License-Identifier: Apache-2.0
"""Go clients, unmodified, on three nodes: what one node acknowledged, they find at once on any other."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.harness.live.cluster import LiveCluster
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.compat_go, pytest.mark.row("D17")]

TOPICS, ACKS = 20, 3
QUICK_S = 20.0
"""kafka-go once waited five seconds for each topic."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "cluster") as cluster:
        yield cluster


def run(program: Path, cluster: LiveCluster, topic: str) -> Any:
    flags = {"bootstrap": cluster.bootstrap, "topic": topic, "mode": "changes", "count": TOPICS}
    command = [str(program), *(part for name, value in flags.items() for part in (f"-{name}", str(value)))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_franz_go_finds_every_change_on_any_node(
    cluster: LiveCluster, go_program: Callable[[str], Path], topic: str
) -> None:
    assert run(go_program("franz"), cluster, topic) == []


def test_kafka_go_writes_to_new_topics_without_a_retry(
    cluster: LiveCluster, go_program: Callable[[str], Path], topic: str
) -> None:
    program = go_program("segmentio")
    started = time.monotonic()
    assert run(program, cluster, topic) == TOPICS
    assert time.monotonic() - started < QUICK_S
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    places = [TopicPartition(f"{topic}-{number}", 0) for number in range(TOPICS)]

    def short() -> list[str]:
        ends = {place.topic: consumer.get_watermark_offsets(place, timeout=10)[1] for place in places}
        return [f"{name}: {end}" for name, end in ends.items() if end != ACKS]

    try:
        wait_until(lambda: not short(), lambda: f"records are missing: {short()}", poll_s=0.2)
    finally:
        consumer.close()
