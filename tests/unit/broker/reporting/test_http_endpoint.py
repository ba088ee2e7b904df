# SPDX-License-Identifier: Apache-2.0
"""Over the simulated network: no sockets, no waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from headrace.broker.metrics import Metrics
from headrace.broker.reporting.http_endpoint import HttpEndpoint
from headrace.broker.reporting.http_server import (
    DEADLINE_S,
    HEAD_DEADLINE_S,
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
)
from headrace.broker.security.metrics_token import MetricsToken
from headrace.config import load_config
from headrace.testing.simworld import Simulation, SimWorld
from tests.harness.broker.metric_sources import metric_sources


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.closed = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


TOKEN = "c2VjcmV0LXRva2Vu"


class Scene:
    """A node's endpoint and a client machine in one simulation."""

    def __init__(self, simulation: Simulation, settings: Mapping[str, str] | None = None) -> None:
        self.simulation = simulation
        self.node: SimWorld = simulation.start_process("node")
        self.client: SimWorld = simulation.start_process("client")
        self.metrics = Metrics(self.node.clock)
        self.reason: str | None = None
        self.token = MetricsToken(self.node.files, load_config(None, settings or {}, None))
        self.endpoint = HttpEndpoint(self.node, metric_sources(self.metrics), lambda: self.reason, self.token)

    async def connect(self) -> tuple[asyncio.Transport, Client]:
        transport, client = await self.client.network.connect(Client, "127.0.0.1", self.endpoint.server.port)
        assert isinstance(client, Client)
        return transport, client

    async def send(self, *pieces: bytes) -> bytes:
        """All that comes back until the connection is closed."""
        transport, client = await self.connect()
        for piece in pieces:
            transport.write(piece)
            await self.client.tasks.sleep(0.01)
        await client.closed
        return client.received

    def run(self, script: Callable[[Scene], object]) -> None:
        async def whole() -> None:
            await self.endpoint.server.start("127.0.0.1", 0)
            await script(self)  # type: ignore[misc]
            self.endpoint.server.close()

        self.simulation.run(whole())


@pytest.fixture
def scene() -> Scene:
    with Simulation(7) as simulation:
        yield Scene(simulation)  # type: ignore[misc]


@pytest.fixture
def guarded() -> Scene:
    """Its /metrics asks for a token."""
    with Simulation(7) as simulation:
        yield Scene(simulation, {"headrace.metrics.token": TOKEN})  # type: ignore[misc]


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def status(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def body(response: bytes) -> bytes:
    head, _, rest = response.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(rest)}".encode() in head
    return rest


def test_metrics_are_served_as_prometheus_text(scene: Scene) -> None:
    async def script(scene: Scene) -> None:
        scene.metrics.connections = 5
        response = await scene.send(get("/metrics"))
        assert status(response) == 200
        assert b"text/plain; version=0.0.4" in response
        assert b"headrace_connections 5.0" in body(response)

    scene.run(script)


def test_readiness_needs_a_serving_node_and_gives_the_reason(scene: Scene) -> None:
    async def script(scene: Scene) -> None:
        scene.reason = "starting"
        refused = await scene.send(get("/readyz"))
        assert (status(refused), body(refused)) == (503, b"not ready: starting\n")
        scene.reason = None
        assert status(await scene.send(get("/readyz"))) == 200

    scene.run(script)


def test_a_node_is_healthy_while_its_loop_ticks(scene: Scene) -> None:
    async def script(scene: Scene) -> None:
        assert status(await scene.send(get("/healthz"))) == 200
        await scene.node.tasks.sleep(30)
        assert status(await scene.send(get("/healthz"))) == 503
        scene.metrics.loop_delay(0.001)
        assert status(await scene.send(get("/healthz"))) == 200

    scene.run(script)


def test_a_request_may_come_byte_by_byte(scene: Scene) -> None:
    async def script(scene: Scene) -> None:
        request = get("/healthz?verbose=1")
        response = await scene.send(*[request[place : place + 1] for place in range(len(request))])
        assert status(response) == 200

    scene.run(script)


def test_head_gets_the_length_and_no_body(scene: Scene) -> None:
    async def script(scene: Scene) -> None:
        response = await scene.send(b"HEAD /healthz HTTP/1.1\r\n\r\n")
        assert status(response) == 200
        assert response.endswith(b"Content-Length: 6\r\nConnection: close\r\n\r\n")

    scene.run(script)


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"\x00\x00\x00\x10garbage\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/2\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"x" * (MAX_HEAD_BYTES + 1), 400),
        (b"GET /" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1\r\n\r\n", 400),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n", 405),
        (b"GET /else HTTP/1.1\r\n\r\n", 404),
    ],
)
def test_bad_requests_get_an_error_and_are_closed(scene: Scene, request_bytes: bytes, expected: int) -> None:
    async def script(scene: Scene) -> None:
        assert status(await scene.send(request_bytes)) == expected

    scene.run(script)


def test_a_client_that_never_finishes_its_request_is_dropped(scene: Scene) -> None:
    async def script(scene: Scene) -> None:
        started = scene.client.clock.monotonic()
        assert await scene.send(b"GET /metr") == b""
        assert scene.client.clock.monotonic() - started < DEADLINE_S + 1

    scene.run(script)


def test_idle_connections_lock_nobody_out_and_the_oldest_makes_room(scene: Scene) -> None:
    async def script(scene: Scene) -> None:
        held = [await scene.connect() for _ in range(MAX_CONNECTIONS)]
        assert status(await scene.send(get("/readyz"))) == 200
        closed = [client.closed.done() for _, client in held]
        assert closed == [True] + [False] * (MAX_CONNECTIONS - 1)

    scene.run(script)


def test_connections_are_bounded_however_many_come(scene: Scene) -> None:
    async def script(scene: Scene) -> None:
        held = [await scene.connect() for _ in range(5 * MAX_CONNECTIONS)]
        await scene.client.tasks.sleep(0.1)
        assert sum(not client.closed.done() for _, client in held) == MAX_CONNECTIONS

    scene.run(script)


def test_half_a_head_is_waited_for_two_seconds(scene: Scene) -> None:
    async def script(scene: Scene) -> None:
        transport, client = await scene.connect()
        transport.write(get("/readyz")[:20])
        await scene.client.tasks.sleep(HEAD_DEADLINE_S / 2)
        assert not client.closed.done()
        await scene.client.tasks.sleep(HEAD_DEADLINE_S)
        assert client.closed.done()
        assert client.received == b""

    scene.run(script)


def test_an_internal_error_is_a_500_and_the_endpoint_keeps_serving(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(scene: Scene) -> None:
        scene.endpoint._why_not_ready = lambda: 1 / 0  # type: ignore[assignment,return-value]
        assert status(await scene.send(get("/readyz"))) == 500
        assert status(await scene.send(get("/healthz"))) == 200

    scene.run(script)
    assert "operators' endpoint failed" in caplog.text


def test_closing_the_endpoint_ends_its_connections(scene: Scene) -> None:
    async def script(scene: Scene) -> None:
        _, client = await scene.connect()
        scene.endpoint.server.close()
        await client.closed

    scene.run(script)


@pytest.mark.parametrize("header", [f"Authorization: Bearer {TOKEN}", f"authorization:bearer  {TOKEN}"])
def test_metrics_are_served_to_who_shows_the_token(guarded: Scene, header: str) -> None:
    async def script(scene: Scene) -> None:
        assert status(await scene.send(get("/metrics", header))) == 200

    guarded.run(script)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        ["Authorization: Bearer"],
        [f"Authorization: Bearer {TOKEN}x"],
        [f"Authorization: Bearer {TOKEN[:-1]}"],
        [f"Authorization: Basic {TOKEN}"],
        [f"Authorization: {TOKEN}"],
        [f"Authorization: Bearer {TOKEN} {TOKEN}"],
        [f"Authorization: Bearer {TOKEN}", f"Authorization: Bearer {TOKEN}"],
        ["Authorization: Bearer \u00e9"],
        [f"X-Authorization: Bearer {TOKEN}"],
    ],
)
def test_metrics_are_refused_without_the_token(guarded: Scene, headers: list[str]) -> None:
    async def script(scene: Scene) -> None:
        response = await scene.send(get("/metrics", *headers))
        assert status(response) == 401
        assert b'\r\nWWW-Authenticate: Bearer realm="metrics"\r\n' in response
        assert b"headrace_" not in response
        assert TOKEN.encode() not in response

    guarded.run(script)


def test_a_token_in_the_address_does_not_count(guarded: Scene) -> None:
    async def script(scene: Scene) -> None:
        assert status(await scene.send(get(f"/metrics?access_token={TOKEN}"))) == 401

    guarded.run(script)


def test_probes_need_no_token(guarded: Scene) -> None:
    async def script(scene: Scene) -> None:
        assert status(await scene.send(get("/healthz"))) == 200
        assert status(await scene.send(get("/readyz"))) == 200

    guarded.run(script)


def test_refusals_are_logged_once_in_ten_seconds_without_the_token_that_was_sent(
    guarded: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(scene: Scene) -> None:
        for _ in range(20):
            await scene.send(get("/metrics", "Authorization: Bearer guess"))

    guarded.run(script)
    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(lines) == 1
    assert "/metrics without the token" in lines[0]
    assert "guess" not in caplog.text
