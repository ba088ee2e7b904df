# SPDX-License-Identifier: Apache-2.0
"""Decoder fuzz (T15) on live sockets: sound, hostile and damaged requests are answered or closed.

Several connections at once, records that the worker process checks among them; memory of the node and of its
worker processes is compared with that before. In process: tests/simulation/test_fuzzed_node.py.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import psutil
import pytest

from headrace.wire.batch import HEADER_SIZE
from headrace.wire.messages import encode_request
from headrace.wire.records import Record, build_batch
from tests.harness import soak
from tests.harness.fuzzing.damage import damaged
from tests.harness.fuzzing.frames import TOPIC, framed, one_frame
from tests.harness.fuzzing.record_targets import mended
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import Canary, RawClient
from tests.harness.waiting import wait_until

StartNode = Callable[..., NodeProcess]
SHORT, LONG = 3_000, 50_000
CONNECTIONS = 8
MEMORY_ROOM = 64 << 20
ANSWER_S = 1.0
PRODUCE, LZ4 = 0, 3
LARGE = "large-batches"
"""A compacted topic that no hostile name hits: worker processes find the records that lack a key."""
SETTINGS = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "4"}


def live_frame(chance: Random) -> bytes:
    """Now and then a large compressed batch, sound or damaged, for the worker process."""
    if chance.random() > 0.02:
        return one_frame(chance)
    batch = large_batch(chance, keyless=chance.random() < 0.5)
    if chance.random() < 0.5:
        batch = bytes(mended(damaged(batch, chance, keep=HEADER_SIZE)))
    body = produce_request(batch)
    return framed(body if chance.random() < 0.8 else damaged(body, chance, keep=4))


def produce_request(batch: bytes) -> bytes:
    """To the topic of large batches, without the length of the frame."""
    data = [{"index": 0, "records": batch}]
    fields = {"acks": 1, "timeout": 100, "topic_data": [{"name": LARGE, "partition_data": data}]}
    return encode_request(PRODUCE, 8, 1, "fuzz", fields)[4:]


def large_batch(chance: Random, *, keyless: bool) -> bytes:
    """More, once expanded, than the event loop checks by itself; `keyless`: one record has no key."""
    value, without = chance.randbytes(50) * 20, chance.randrange(400) if keyless else -1
    records = [Record(place, 0, None if place == without else b"k", value) for place in range(400)]
    return bytes(build_batch(records, codec=LZ4))


class Attacker(threading.Thread):
    """One connection after the other; counts how each frame ended."""

    def __init__(self, node: NodeProcess, count: int, seed: int) -> None:
        super().__init__(name=f"attacker {seed}")
        self.outcomes: Counter[str] = Counter()
        self.failure: Exception | None = None
        self._node = node
        self._count = count
        self._chance = Random(seed)

    def run(self) -> None:
        try:
            client = self._connect()
            for _ in range(self._count):
                outcome = _outcome(client, live_frame(self._chance))
                self.outcomes[outcome] += 1
                if outcome != "answered":
                    client.socket.close()
                    client = self._connect()
            client.socket.close()
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.failure = error

    def _connect(self) -> RawClient:
        return RawClient(self._node.bootstrap, timeout_s=ANSWER_S)


def _outcome(client: RawClient, frame: bytes) -> str:
    try:
        client.send(frame)
        return "closed" if client.receive() is None else "answered"
    except TimeoutError:
        return "waiting"  # acks=0 has no answer, and a fetch or a join may wait as long as it asked for
    except OSError:
        return "closed"


def worker_bytes(node: NodeProcess) -> int:
    """Resident memory of the largest process that the node has started: they start when they are needed."""
    largest = 0
    for process in psutil.Process(node.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            largest = max(largest, process.memory_info().rss)
    return largest


def attack(node: NodeProcess, count: int, seed: int) -> Counter[str]:
    attackers = [Attacker(node, count // CONNECTIONS, seed + place) for place in range(CONNECTIONS)]
    for attacker in attackers:
        attacker.start()
    for attacker in attackers:
        attacker.join()
    assert not [attacker.failure for attacker in attackers if attacker.failure is not None]
    return sum((attacker.outcomes for attacker in attackers), Counter())


def endure(node: NodeProcess, count: int, seed: int) -> dict[str, object]:
    """Outcomes and growth of memory; counted from when caches are warm and workers have started."""
    with RawClient(node.bootstrap) as client:
        client.create_topic(TOPIC)
        small = {"retention_bytes": "1048576", "segment_bytes": "1048576"}
        client.create_topic(LARGE, record_validation="full", cleanup_policy="compact,delete", **small)
        # The warm-up of some seeds has no such batch, and would leave the workers unstarted.
        assert (
            _outcome(client, framed(produce_request(large_batch(Random(seed), keyless=True)))) == "answered"
        )
    with Canary(node.bootstrap) as canary:
        attack(node, count // 10, seed + 1000)
        memory, worker, since = node.rss_bytes(), worker_bytes(node), canary.begin()
        outcomes = attack(node, count, seed)
        canary.wait_for_rounds(20)
        p99_ms = canary.check(since)
        grown, worker_grown = node.rss_bytes() - memory, worker_bytes(node) - worker
    assert node.alive
    assert worker, "no batch reached a worker process"
    assert grown < MEMORY_ROOM
    assert worker_grown < MEMORY_ROOM
    assert outcomes["waiting"] < count // 20
    assert "Traceback" not in node.log_path.read_text(errors="replace"), node.log_tail()
    wait_until(lambda: node.descriptors() < 200, "connections closed")
    figures = {"frames": count, "outcomes": dict(outcomes), "canary_p99_ms": round(p99_ms, 1)}
    return {**figures, "node_grown_mib": grown >> 20, "worker_grown_mib": worker_grown >> 20}


def test_t15_frames_on_live_sockets_are_answered_or_closed_and_memory_stays(start_node: StartNode) -> None:
    endure(start_node(SETTINGS), SHORT, soak.first_seed())


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_soak_t15_fuzz_live_frames(start_node: StartNode) -> None:
    started, seed = time.monotonic(), soak.first_seed() + 1
    soak.write_report("T15", started, {"seed": seed, **endure(start_node(SETTINGS), LONG, seed)})
