# SPDX-License-Identifier: Apache-2.0
"""Bad networks (T10): clients behind a proxy that delays, trickles, resets and forgets; nothing stays behind.

The proxy's own faults are proved first: each must bite.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from headrace.wire.error_codes import ErrorCode
from tests.harness import soak
from tests.harness.live.node import NodeProcess
from tests.harness.live.proxy import Proxy, Toxic
from tests.harness.live.raw_client import Canary, RawClient, simple_batch
from tests.harness.waiting import wait_until

StartNode = Callable[..., NodeProcess]
TOXICS = {
    "latency": Toxic(latency_ms=100),
    "trickle": Toxic(chunk_bytes=1000, pause_between_chunks_ms=3),
    "one byte at a time": Toxic(chunk_bytes=1),
    "tiny chunks, slowly": Toxic(chunk_bytes=7, pause_between_chunks_ms=0.5),
    "slow close": Toxic(close_after_ms=300),
    "half-open": Toxic(swallow=True),
    "reset in the first header": Toxic(reset_after_bytes=2),
    "reset in a request": Toxic(reset_after_bytes=60),
    "reset in a reply": Toxic(reset_after_bytes=300),
    "reset later": Toxic(reset_after_bytes=20_000),
}


@pytest.fixture
def echo() -> Iterator[str]:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                while data := connection.recv(65536):
                    connection.sendall(data)
                connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(5)


def _through(address: str, data: bytes, timeout_s: float = 5) -> tuple[bytes, float]:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        started = time.monotonic()
        connection.sendall(data)
        back = b""
        while len(back) < len(data):
            chunk = connection.recv(65536)
            if not chunk:
                break
            back += chunk
        return back, time.monotonic() - started


def test_the_proxy_passes_and_each_toxic_bites(echo: str) -> None:
    data = bytes(range(256)) * 20
    with Proxy(echo, Toxic()) as proxy:
        assert _through(proxy.address, data)[0] == data
    with Proxy(echo, Toxic(latency_ms=100)) as proxy:
        assert _through(proxy.address, data)[1] >= 0.2
    with Proxy(echo, Toxic(chunk_bytes=100, pause_between_chunks_ms=5)) as proxy:
        assert _through(proxy.address, data)[1] >= 0.25
    with Proxy(echo, Toxic(reset_after_bytes=1000)) as proxy, pytest.raises(ConnectionResetError):
        _through(proxy.address, data)
    with Proxy(echo, Toxic(swallow=True)) as proxy, pytest.raises(TimeoutError):
        _through(proxy.address, data, timeout_s=0.5)


def _misuse(address: str, toxic: Toxic) -> None:
    """What a client can do behind this toxic; errors are the toxic's doing."""
    timeout_s = 0.5 if toxic.swallow else 20
    with contextlib.suppress(OSError, AssertionError), RawClient(address, timeout_s=timeout_s) as client:
        for number in range(3):
            client.produce("toxic", simple_batch(b"%d" % number * 2000))
            client.fetch("toxic", 0, max_bytes=10_000)


STEADY = {"headrace.scrub.interval.ms": "-1", "headrace.coordination.backup.interval.ms": "0"}
"""Neither the worker process, which the scrub starts, nor a backup of the store opens descriptors."""


def _endure(node: NodeProcess, seconds: float) -> Counter[str]:
    """How often each toxic was met."""
    with RawClient(node.bootstrap) as client:
        client.create_topic("toxic")
    rounds: Counter[str] = Counter()
    with Canary(node.bootstrap) as canary:
        baseline = node.descriptors()
        for name, toxic in TOXICS.items():
            deadline = time.monotonic() + seconds
            with Proxy(node.bootstrap, toxic) as proxy:
                while True:
                    _misuse(proxy.address, toxic)
                    rounds[name] += 1
                    if time.monotonic() > deadline:
                        break
        wait_until(lambda: node.descriptors() <= baseline, "connections closed after their clients ended")
        canary.wait_for_rounds(20)
        canary.check()
    with RawClient(node.bootstrap) as client:
        assert client.produce("toxic", simple_batch(b"healed"))[0] is ErrorCode.none
    return rounds


def test_t10_bad_networks_leave_nothing_behind(start_node: StartNode) -> None:
    _endure(start_node(STEADY), seconds=0.3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t10_bad_networks_leave_nothing_behind(start_node: StartNode) -> None:
    """Twenty minutes, in equal parts."""
    started = time.monotonic()
    rounds = _endure(start_node(STEADY), seconds=60 * soak.minutes(20) / len(TOXICS))
    soak.write_report("T10", started, {"rounds": rounds.total(), "by_toxic": dict(rounds)})
