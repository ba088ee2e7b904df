# SPDX-License-Identifier: Apache-2.0
"""SIGKILL under heavy producing (T4, one node): what was acknowledged is there, once, and where it was said.

Unmodified librdkafka producers; the history checker judges what a reader finds afterwards.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.types import TopicPartition
from tests.harness import soak
from tests.harness.history import History, check
from tests.harness.jepsen.edn import export
from tests.harness.live.load import HeavyProducer, read_all
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient
from tests.harness.waiting import wait_until

StartNode = Callable[..., NodeProcess]
TOPIC = "killed"


def _producer(node: NodeProcess, name: str, partition: int, options: dict[str, Any]) -> HeavyProducer:
    return HeavyProducer(node.bootstrap, name, TopicPartition(TOPIC, partition), options)


def kill_again_and_again(node: NodeProcess, kills: int, seed: int) -> dict[str, Any]:
    source = random.Random(seed)
    with RawClient(node.bootstrap) as client:
        client.create_topic(TOPIC, partitions=3)
    producers = [
        _producer(node, "idempotent", 0, {"enable.idempotence": True}),
        _producer(node, "pipelined", 1, {"enable.idempotence": True, "batch.num.messages": 20}),
        # One attempt each: what is not acknowledged is unknown, and must not come twice either.
        _producer(node, "acks-1", 2, {"acks": "1", "retries": 0}),
    ]
    for producer in producers:
        producer.start()
    restarts_s = []
    for _ in range(kills):
        time.sleep(source.uniform(0.2, 1.0))  # the next kill comes at any moment
        node.kill()
        started = time.monotonic()
        node.start(timeout_ms=60_000)
        restarts_s.append(time.monotonic() - started)
    wait_until(lambda: all(max(producer.acknowledged_at, default=0) > started for producer in producers))
    for producer in producers:
        producer.finish()
    history = History([send for producer in producers for send in producer.history.sends])
    partitions = [TopicPartition(TOPIC, index) for index in range(3)]
    final = {partition: read_all(node.bootstrap, partition) for partition in partitions}
    export("kills", history.operations(final), final)
    assert check(history, final) == []
    outcomes = history.outcomes()
    assert outcomes["ok"] > 500 * kills
    return {"seed": seed, "kills": kills, "sends": outcomes, "slowest_restart_s": max(restarts_s)}


@pytest.fixture
def node(start_node: StartNode) -> Iterator[NodeProcess]:
    node = start_node()
    yield node
    if not node.alive:
        node.start()


def test_t4_five_kills_lose_nothing_and_double_nothing(node: NodeProcess) -> None:
    kill_again_and_again(node, 5, soak.first_seed())


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_soak_kill_fifty_kills_lose_nothing_and_double_nothing(node: NodeProcess) -> None:
    started = time.monotonic()
    soak.write_report("kill", started, kill_again_and_again(node, 50, soak.first_seed() + 1))
