# SPDX-License-Identifier: Apache-2.0
"""A disk that does not answer: producers with flush `ack` wait for it, and nobody else does.

All fsyncs of logs are held for as long as the test wants, by a library that is preloaded into the node.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from headrace.broker.partition.flusher import FLUSH_THREADS
from headrace.cluster.engines.engine import free_ports
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import decode_reply
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient, simple_batch
from tests.integration.preloads import Preload

StartNode = Callable[..., NodeProcess]
PARTITIONS = 3 * FLUSH_THREADS
"""More than there are threads to wait for the disk."""
ROUNDS = 50
HELD_S = 0.5
"""A bound of the histograms of fsyncs."""
BATCH = simple_batch(b"v" * 100)


def has_reply(client: RawClient) -> bool:
    return bool(select.select([client.socket], [], [], 0)[0])


def read_metrics(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    parts = (line.rpartition(" ") for line in lines if line.startswith("headrace_fsync"))
    return {name: float(value) for name, _, value in parts}


def longer_than_held(found: dict[str, float], histogram: str) -> float:
    """How many observations."""
    return found[f"{histogram}_count"] - found[f'{histogram}_bucket{{le="{HELD_S}"}}']


def error_of(frame: bytes | None) -> ErrorCode:
    assert frame is not None, "the node closed the connection"
    _, reply = decode_reply(ApiKey.PRODUCE, 8, memoryview(frame))
    code: ErrorCode = reply.responses[0].partition_responses[0].error_code
    return code


def test_while_no_fsync_returns_other_requests_are_served_and_nothing_is_acknowledged_early(
    start_node: StartNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Preload("held_fsync.c", "HELD_FSYNC", tmp_path)
    hold.set(0, 0)
    for name, value in hold.environment(0).items():
        monkeypatch.setenv(name, value)
    port = free_ports(1)[0]
    node = start_node({"headrace.metrics.port": str(port)})
    with RawClient(node.bootstrap) as careful, RawClient(node.bootstrap) as other:
        other.create_topic("held", PARTITIONS, headrace_flush="ack")
        other.create_topic("free", headrace_flush="os")
        for partition in range(PARTITIONS):
            assert careful.produce("held", BATCH, partition=partition) == (ErrorCode.none, 0)
        hold.set(0, 1)
        frames = [careful.produce_frame("held", BATCH, partition=number) for number in range(PARTITIONS)]
        careful.send(b"".join(frames))  # at once: one by one, the kernel keeps some back for 40 ms
        for turn in range(ROUNDS):
            assert other.produce("free", BATCH) == (ErrorCode.none, turn)
            assert other.fetch("free", turn)
            assert other.fetch("held", 1, partition=turn % PARTITIONS, max_wait=0) == b""  # R23
        assert not has_reply(careful)
        time.sleep(HELD_S)  # longer than an fsync of a healthy disk
        hold.set(0, 0)
        assert [error_of(careful.receive()) for _ in range(PARTITIONS)] == [ErrorCode.none] * PARTITIONS
        assert other.fetch("held", 1, partition=0)
    found = read_metrics(port)
    assert longer_than_held(found, "headrace_fsync_seconds") == FLUSH_THREADS
    assert longer_than_held(found, "headrace_fsync_wait_seconds") >= PARTITIONS - FLUSH_THREADS
