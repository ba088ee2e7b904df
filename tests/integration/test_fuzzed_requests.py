"""Decoder fuzz (T15) on a live socket: damaged requests of every API and version are answered or closed.

The million frames in process are tests/property/wire/test_wire_garbage.py.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from headrace.testing import soak
from headrace.testing.node import NodeProcess
from headrace.testing.rawclient import Canary, RawClient
from headrace.wire.api_table import APIS
from headrace.wire.messages import encode_request

StartNode = Callable[..., NodeProcess]
LIVE, SOAK_LIVE = 1_000, 50_000
MEMORY_ROOM = 64 << 20
NASTY = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff\x0f",
    b"\0",
    b"\x80" * 12,
]


def damaged_requests(count: int, seed: int) -> Iterator[bytes]:
    """Bodies of frames: sound ones with bytes flipped, cut, inserted, and nasty lengths put in."""
    source = random.Random(seed)
    versions = [
        (key, version) for key, api in APIS.items() for version in range(api.accept_from, api.max_version + 1)
    ]
    sound = {
        (key, version): encode_request(key, version, 1, "fuzz", _fields(key))[4:] for key, version in versions
    }
    for _ in range(count):
        frame = bytearray(sound[source.choice(versions)])
        for _ in range(source.randint(1, 6)):
            place = source.randint(min(8, len(frame)), len(frame))
            damage = source.random()
            if damage < 0.4 and place < len(frame):
                frame[place] = source.randrange(256)
            elif damage < 0.7:
                nasty = source.choice(NASTY)
                frame[place : place + len(nasty)] = nasty
            elif damage < 0.9:
                frame[place:place] = source.randbytes(source.randint(1, 30))
            else:
                del frame[place:]
        yield bytes(frame)


def _fields(key: int) -> dict[str, object]:
    """Something in the arrays, so that damage reaches the inner structures."""
    if key == 0:
        data = [{"index": 0, "records": b"r" * 80}]
        return {"acks": 1, "timeout": 100, "topic_data": [{"name": "t", "partition_data": data}]}
    if key == 1:
        return {"topics": [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0}]}]}
    if key == 2:
        return {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    if key == 3:
        return {"topics": [{"name": "t"}]}
    if key == 19:
        configs = [{"name": "retention.ms", "value": "1"}]
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": configs}
        return {"topics": [topic], "validate_only": True}
    return {}


def fuzz_live(node: NodeProcess, count: int, seed: int) -> dict[str, int]:
    outcomes = {"answered": 0, "closed": 0, "waiting": 0}
    client = RawClient(node.bootstrap, timeout_s=1)
    for body in damaged_requests(count, seed):
        frame = struct.pack(">i", len(body)) + body
        try:
            client.send(frame)
            outcome = "closed" if client.receive() is None else "answered"
        except TimeoutError:
            outcome = "waiting"  # acks=0 has no answer, and a fetch may wait as long as it asked for
        except ConnectionError:
            outcome = "closed"
        outcomes[outcome] += 1
        if outcome != "answered":
            client.socket.close()
            client = RawClient(node.bootstrap, timeout_s=1)
    client.socket.close()
    return outcomes


def endure(node: NodeProcess, count: int, seed: int) -> dict[str, int]:
    with Canary(node.bootstrap) as canary:
        memory, since = node.rss_bytes(), canary.begin()
        outcomes = fuzz_live(node, count, seed)
        canary.wait_for_rounds(20)
        canary.check(since)
        assert node.rss_bytes() - memory < MEMORY_ROOM
    assert node.alive
    assert outcomes["waiting"] < count // 20
    return outcomes


def test_t15_damaged_requests_on_a_live_socket_are_answered_or_closed(start_node: StartNode) -> None:
    endure(start_node({"auto.create.topics.enable": "false"}), LIVE, soak.first_seed())


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_soak_t15_damaged_requests(start_node: StartNode) -> None:
    started, seed = time.monotonic(), soak.first_seed() + 1
    outcomes = endure(start_node({"auto.create.topics.enable": "false"}), SOAK_LIVE, seed)
    soak.write_report("T15", started, {"seed": seed, "frames": SOAK_LIVE, "outcomes": outcomes})
