# SPDX-License-Identifier: Apache-2.0
"""The endpoint of a supervisor over the simulated network: of two cores one hangs, or is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from headrace.broker.metrics import Metrics
from headrace.broker.reporting.cores_endpoint import Core, CoresEndpoint
from headrace.broker.reporting.http_endpoint import HttpEndpoint
from headrace.broker.security.metrics_token import MetricsToken
from headrace.config import load_config
from headrace.secret import Secret
from headrace.testing.simworld import Simulation, SimWorld
from tests.harness.broker.metric_sources import metric_sources

INNER = "aW5uZXI"


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.closed = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


class Silent(asyncio.Protocol):
    """A core that hangs: it accepts and never answers."""


class Scene:
    """Two cores and their supervisor's endpoint on one host."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.simulation = Simulation(seed=1)
        self.world: SimWorld = self.simulation.start_process("host")
        inner = MetricsToken(self.world.files, load_config(None, {"headrace.metrics.token": INNER}, None))
        self.reason: str | None = None
        self.nodes = [
            HttpEndpoint(self.world, metric_sources(Metrics(self.world.clock)), lambda: self.reason, inner)
            for _ in range(2)
        ]
        self.cores: list[Core] = []
        token = MetricsToken(self.world.files, load_config(None, settings or {}, None))
        self.endpoint = CoresEndpoint(self.world, lambda: self.cores, token=token, inner_token=Secret(INNER))

    def run(self, script: Callable[[Scene], Awaitable[None]]) -> None:
        async def whole() -> None:
            for index, node in enumerate(self.nodes):
                await node.server.start("127.0.0.1", 0)
                self.cores.append(Core(index=index, node_id=index + 1, port=node.server.port))
            await self.endpoint.server.start("127.0.0.1", 0)
            await script(self)
            for server in (*(node.server for node in self.nodes), self.endpoint.server):
                server.close()

        self.simulation.run(whole())

    async def get(self, path: str, header: str = "") -> tuple[int, str]:
        connect = self.world.network.connect
        transport, client = await connect(Client, "127.0.0.1", self.endpoint.server.port)
        assert isinstance(client, Client)
        transport.write(f"GET {path} HTTP/1.1\r\n{header}\r\n".encode())
        await client.closed
        head, _, body = client.received.partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode()

    async def hang(self, core: int) -> None:
        listener = await self.world.network.listen(Silent, "127.0.0.1", 0)
        self.cores[core] = replace(self.cores[core], port=listener.port)


def test_both_cores_are_in_one_scrape() -> None:
    async def script(scene: Scene) -> None:
        status, text = await scene.get("/metrics")
        assert status == 200
        assert 'headrace_core_up{core="0",node="1"} 1\nheadrace_core_up{core="1",node="2"} 1\n' in text
        assert 'headrace_info{core="0",version=' in text
        assert 'headrace_info{core="1",version=' in text

    Scene().run(script)


def test_ready_and_healthy_when_all_are() -> None:
    async def script(scene: Scene) -> None:
        assert await scene.get("/readyz") == (200, "ready\n")
        assert await scene.get("/healthz") == (200, "alive\n")
        assert (await scene.get("/other"))[0] == 404

    Scene().run(script)


def test_a_core_that_is_not_ready_is_named_with_its_reason() -> None:
    async def script(scene: Scene) -> None:
        scene.reason = "the disk is nearly full"
        scene.cores[0] = replace(scene.cores[0], port=None, why_not="it was killed")
        reasons = "core 0 (node 1): it was killed; core 1 (node 2): not ready: the disk is nearly full"
        assert await scene.get("/readyz") == (503, f"not ready: {reasons}\n")
        assert await scene.get("/healthz") == (200, "alive\n")  # the supervisor takes care of core 0

    Scene().run(script)


def test_a_core_that_hangs_is_named_and_the_other_is_scraped() -> None:
    async def script(scene: Scene) -> None:
        await scene.hang(1)
        for path, prefix in (("/readyz", "not ready: "), ("/healthz", "")):
            reason = f"{prefix}core 1 (node 2): it does not answer (nothing came within 2 s)\n"
            assert await scene.get(path) == (503, reason)
        status, text = await scene.get("/metrics")
        assert status == 200
        assert 'headrace_core_up{core="1",node="2"} 0' in text
        assert 'headrace_info{core="0"' in text
        assert 'headrace_info{core="1"' not in text

    Scene().run(script)


def test_the_token_of_operators_is_asked_for_and_that_of_the_cores_is_no_use() -> None:
    async def script(scene: Scene) -> None:
        assert (await scene.get("/metrics"))[0] == 401
        assert (await scene.get("/metrics", f"Authorization: Bearer {INNER}\r\n"))[0] == 401
        assert (await scene.get("/metrics", "Authorization: Bearer b3V0ZXI\r\n"))[0] == 200
        assert (await scene.get("/readyz"))[0] == 200

    Scene({"headrace.metrics.token": "b3V0ZXI"}).run(script)


def test_a_core_that_stops_answering_and_answers_again_is_logged_once_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def script(scene: Scene) -> None:
        caplog.set_level("INFO")
        tasks, port = scene.world.tasks, scene.cores[1].port
        watching = tasks.spawn(scene.endpoint.watch(), name="watch")
        await tasks.sleep(5)
        assert caplog.messages == []
        await scene.hang(1)
        await tasks.sleep(20)
        assert caplog.messages == ["core 1 (node 2): it does not answer (nothing came within 2 s)"]
        scene.cores[1] = replace(scene.cores[1], port=port)
        await tasks.sleep(5)
        assert caplog.messages[1:] == ["core 1 (node 2) is ready"]
        watching.cancel()

    Scene().run(script)
