# SPDX-License-Identifier: Apache-2.0
"""Bad input, manners: slow senders, readers that never read, floods of connections (T17).

Against a live node, with a well-behaved client measured beside it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import pytest

from headrace.wire.error_codes import ErrorCode
from tests.harness import soak
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import Canary, RawClient, simple_batch
from tests.harness.waiting import wait_until
from tests.integration.test_bad_network import STEADY

StartNode = Callable[..., NodeProcess]
MEMORY_ROOM = 64 << 20


@pytest.fixture
def node(start_node: StartNode) -> NodeProcess:
    return start_node({"connections.max.idle.ms": "3000", **STEADY})


@pytest.fixture
def canary(node: NodeProcess) -> Iterator[Canary]:
    with Canary(node.bootstrap) as canary:
        yield canary
        canary.wait_for_rounds(20)
        canary.check()


def _raise_descriptor_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def test_a_slow_sender_is_served_in_the_end(node: NodeProcess, canary: Canary) -> None:
    with RawClient(node.bootstrap) as client:
        client.create_topic("slow")
        frame = client.produce_frame("slow", simple_batch(b"v" * 100))
        for start in range(0, len(frame), 10):
            client.send(frame[start : start + 10])
            time.sleep(0.02)  # the slow sender
        assert client.receive() is not None
        assert client.end_offset("slow") == 1


def test_a_sender_that_stops_in_a_frame_is_closed_when_idle(node: NodeProcess, canary: Canary) -> None:
    with RawClient(node.bootstrap) as client:
        client.send(struct.pack(">i", 1000) + b"half a frame")
        started = time.monotonic()
        assert client.is_closed_by_node(10)
        assert 2 < time.monotonic() - started < 8


# Clients that keep memory from others

LARGE_VALUE = 4_000_000


@pytest.fixture
def small_node(start_node: StartNode) -> NodeProcess:
    """With little memory for requests, so that few clients can hold it all."""
    node = start_node({"headrace.request.memory.bytes": "16777216", "socket.request.max.bytes": "8388608"})
    with RawClient(node.bootstrap) as client:
        client.create_topic("large", max_message_bytes="8000000")
    return node


def _stalled_frames(node: NodeProcess, count: int, sent_bytes: int) -> list[RawClient]:
    """Clients that announce a frame of 8 MB, send so much of it and then nothing."""
    clients = [RawClient(node.bootstrap) for _ in range(count)]
    for client in clients:
        client.send(struct.pack(">i", 8_000_000) + bytes(sent_bytes))
    return clients


def _seconds_for_a_large_request(node: NodeProcess, address: str) -> float:
    with RawClient(node.bootstrap, timeout_s=40, address=address) as client:
        started = time.monotonic()
        code, _ = client.produce("large", simple_batch(os.urandom(LARGE_VALUE)))
        assert code is ErrorCode.none
        return time.monotonic() - started


def test_thousands_of_begun_frames_do_not_keep_a_large_one_waiting(small_node: NodeProcess) -> None:
    """A frame of which six bytes have come takes the memory of six bytes, not 64 KiB."""
    _raise_descriptor_limit()
    stalled = _stalled_frames(small_node, 2000, 2)
    took = _seconds_for_a_large_request(small_node, "127.0.0.1")
    print(f"a large request beside 2000 begun ones: {took:.2f} s")
    assert took < 5
    for client in stalled:
        client.socket.close()


@pytest.mark.parametrize(
    ("address", "within_s"), [("127.0.0.1", 20), ("127.0.0.2", 5)], ids=["same address", "other address"]
)
def test_clients_that_hold_all_memory_and_stall_make_way(
    small_node: NodeProcess, address: str, within_s: float
) -> None:
    """A quarter is for other addresses; of the same one, those go first that send nothing for two seconds."""
    stalled = _stalled_frames(small_node, 400, 60_000)
    took = _seconds_for_a_large_request(small_node, address)
    print(f"a large request from {address} beside stalled ones: {took:.2f} s")
    assert took < within_s
    for client in stalled:
        client.socket.close()


def test_a_reader_that_never_reads_is_bounded_in_memory(node: NodeProcess, canary: Canary) -> None:
    """Requests without end for replies that nobody takes: reading from the client stops, not the node."""
    with RawClient(node.bootstrap) as writer:
        writer.create_topic("data")
        for _ in range(20):
            writer.produce("data", simple_batch(os.urandom(900_000)))
    memory = node.rss_bytes()
    hoarders = [RawClient(node.bootstrap, receive_buffer=4096) for _ in range(5)]
    for client in hoarders:
        place = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 << 20}
        fields = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 50 << 20,
            "session_epoch": -1,
            "topics": [{"topic": "data", "partitions": [place]}],
        }
        client.socket.settimeout(0.2)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(2000):
                client.send(client.frame(1, 11, fields))
    canary.wait_for_rounds(50)
    assert node.rss_bytes() - memory < MEMORY_ROOM
    for client in hoarders:
        client.socket.close()


def test_unread_small_replies_are_bounded_in_memory(node: NodeProcess, canary: Canary) -> None:
    memory = node.rss_bytes()
    with RawClient(node.bootstrap, receive_buffer=4096) as client:
        client.socket.settimeout(0.2)
        burst = b"".join(client.frame(3, 1, {"topics": None}) for _ in range(1000))
        sent = 0
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(500):
                client.send(burst)
                sent += len(burst)
        canary.wait_for_rounds(50)
        assert node.rss_bytes() - memory < MEMORY_ROOM
        assert sent < 50 << 20, "the node went on reading although nobody took its replies"


def test_idle_connections_are_closed_and_their_descriptors_return(node: NodeProcess, canary: Canary) -> None:
    before = node.descriptors()
    idle = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(300)]
    wait_until(lambda: node.descriptors() >= before + 300, "300 accepted connections", timeout_s=10)
    wait_until(lambda: node.descriptors() <= before, "all idle connections closed", timeout_s=10)
    for connection in idle:
        connection.close()


def test_connections_beyond_the_limit_are_closed_at_once(start_node: StartNode) -> None:
    node = start_node({"max.connections.per.ip": "50"})
    with Canary(node.bootstrap) as canary:
        many = [RawClient(node.bootstrap) for _ in range(60)]
        assert sum(client.is_closed_by_node(0.3) for client in many[-8:]) == 8
        canary.check()
        for client in many:
            client.socket.close()
        canary.wait_for_rounds(20)
        with RawClient(node.bootstrap) as client:
            assert client.end_offset("canary") > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """What a flood was, and what the well-behaved client and the node's memory saw of it."""

    idle: int
    brief: int
    quiet_p99_ms: float
    p99_ms: float
    more_memory_mib: float


def _outlive_a_flood(node: NodeProcess, connections: int, seconds: float) -> Flood:
    """Idle connections and a storm of new ones that send half a header and leave."""
    _raise_descriptor_limit()
    brief = 0
    with Canary(node.bootstrap) as canary:
        canary.wait_for_rounds(100)
        quiet_ms = canary.check()
        idle = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(connections)]
        canary.wait_for_rounds(50)
        memory, since, deadline = node.rss_bytes(), canary.begin(), time.monotonic() + seconds
        while time.monotonic() < deadline:
            with socket.create_connection(("127.0.0.1", node.port)) as connection:
                connection.sendall(b"\0\0")
            brief += 1
            time.sleep(0.005)  # so many new connections a second
        p99_ms = canary.check(since, p99_ms=max(10 * quiet_ms, 300))
        more_memory = node.rss_bytes() - memory
        assert more_memory < MEMORY_ROOM
        for connection in idle:
            connection.close()
    return Flood(
        idle=len(idle),
        brief=brief,
        quiet_p99_ms=round(quiet_ms, 1),
        p99_ms=round(p99_ms, 1),
        more_memory_mib=round(more_memory / (1 << 20), 1),
    )


def test_t17_floods_of_connections_are_outlived(start_node: StartNode) -> None:
    _outlive_a_flood(start_node(), 500, 3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t17_floods_of_connections_are_outlived(start_node: StartNode) -> None:
    """Ten minutes."""
    started = time.monotonic()
    flood = _outlive_a_flood(start_node(), 5000, 60 * soak.minutes(10))
    soak.write_report("T17", started, asdict(flood))
