# SPDX-License-Identifier: Apache-2.0
"""/metrics, /healthz and /readyz of all cores of a host as one, served by their supervisor.

Asks each core's own endpoint on the loopback address. Knows no processes: the supervisor says which cores
there are. Read next: merged_metrics.py, broker/cores_app.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.broker.reporting.http_server import PLAIN, HttpError, HttpServer, Token
from headrace.broker.reporting.merged_metrics import family_text, merge_scrapes
from headrace.broker.reporting.metrics_export import CONTENT_TYPE
from headrace.secret import Secret
from headrace.world import World

logger = logging.getLogger(__name__)

WATCH_S = 1.0
_LOOPBACK = "127.0.0.1"
_CHECK_TIMEOUT_S, _SCRAPE_TIMEOUT_S = 2.0, 5.0
_MAX_ANSWER_BYTES = 64 << 20
_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """A core as its supervisor sees it."""

    index: int
    node_id: int
    port: int | None
    """Of its own endpoint; None: it is not ready."""
    why_not: str = ""
    """Why there is no port."""
    restarts: int = 0

    def __str__(self) -> str:
        return f"core {self.index} (node {self.node_id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFamily:
    """A metric of the supervisor's, with the labels `core` and `node`."""

    name: str
    kind: str
    help: str
    read: Callable[[Core, bool], int]
    """From a core and whether it answered this scrape."""


OWN_FAMILIES = (
    OwnFamily(
        name="headrace_core_up",
        kind="gauge",
        help="Whether the core answered this scrape.",
        read=lambda core, answered: int(answered),
    ),
    OwnFamily(
        name="headrace_core_restarts_total",
        kind="counter",
        help="Restarts of a core that had died.",
        read=lambda core, answered: core.restarts,
    ),
)


class CoresEndpoint:
    def __init__(
        self, world: World, cores: Callable[[], Sequence[Core]], *, token: Token, inner_token: Secret
    ) -> None:
        """`token`: what operators show; `inner_token`: what the cores ask this endpoint for."""
        self._world = world
        self._cores = cores
        self._token = token
        self._authorization = f"Authorization: Bearer {inner_token.reveal()}\r\n"
        self._problems: dict[int, str | None] = {}
        self.server = HttpServer(world, self._answer)

    async def watch(self) -> None:
        """Logs when a core stops answering or answers again; a core that died is the supervisor's message."""
        while True:
            for core in self._cores():
                problem = await self._problem(core, "/readyz") if core.port is not None else core.why_not
                known = core.node_id in self._problems
                before = self._problems.get(core.node_id)
                self._problems[core.node_id] = problem
                if problem == before or (not known and problem is None):
                    continue
                if problem is None:
                    logger.info("%s is ready", core)
                elif core.port is not None:
                    logger.warning("%s: %s", core, problem)
            await self._world.tasks.sleep(WATCH_S)

    async def _answer(self, path: str, head: bytes, peer: str) -> tuple[str, bytes]:
        if path == "/metrics":
            self.server.check_token(self._token, head, peer)
            return CONTENT_TYPE, await self._scrape()
        if path == "/healthz":
            await self._check(path, [core for core in self._cores() if core.port is not None])
            return PLAIN, b"alive\n"
        if path == "/readyz":
            await self._check(path, self._cores(), "not ready: ")
            return PLAIN, b"ready\n"
        raise HttpError(404, "there are /metrics, /healthz and /readyz")

    async def _check(self, path: str, cores: Sequence[Core], prefix: str = "") -> None:
        problems = await asyncio.gather(*(self._problem(core, path) for core in cores))
        found = [f"{core}: {problem}" for core, problem in zip(cores, problems, strict=True) if problem]
        if found:
            raise HttpError(503, prefix + "; ".join(found))

    async def _problem(self, core: Core, path: str) -> str | None:
        if core.port is None:
            return core.why_not
        try:
            status, body = await self._get(core.port, path, _CHECK_TIMEOUT_S)
        except (OSError, ValueError) as error:
            return f"it does not answer ({error})"
        return None if status == _OK else body.decode(errors="replace").strip()

    async def _scrape(self) -> bytes:
        cores = self._cores()
        texts = await asyncio.gather(*(self._metrics_of(core) for core in cores))
        scrapes = {core.index: text for core, text in zip(cores, texts, strict=True) if text is not None}
        own = ""
        for family in OWN_FAMILIES:
            values = [family.read(core, core.index in scrapes) for core in cores]
            labels = [{"core": core.index, "node": core.node_id} for core in cores]
            own += family_text(family.name, family.kind, family.help, zip(labels, values, strict=True))
        return (own + merge_scrapes(scrapes)).encode()

    async def _metrics_of(self, core: Core) -> str | None:
        if core.port is None:
            return None
        try:
            status, body = await self._get(core.port, "/metrics", _SCRAPE_TIMEOUT_S)
        except (OSError, ValueError):
            return None
        return body.decode() if status == _OK else None

    async def _get(self, port: int, path: str, timeout_s: float) -> tuple[int, bytes]:
        """Status and body. Raises OSError, also after the timeout, or ValueError for what is no answer."""
        done = asyncio.get_running_loop().create_future()
        transport, _ = await self._world.network.connect(lambda: _Reply(done), _LOOPBACK, port)
        timer = self._world.tasks.call_later(timeout_s, _time_out, done, timeout_s)
        try:
            request = f"GET {path} HTTP/1.1\r\nHost: {_LOOPBACK}\r\n{self._authorization}\r\n"
            transport.write(request.encode())
            answer: bytes = await done
        finally:
            timer.cancel()
            transport.abort()
        head, end, body = answer.partition(b"\r\n\r\n")
        words = head.split(b" ", 2)
        if not end or len(words) < 2:
            raise ValueError("the connection ended early")
        return int(words[1]), body


def _time_out(done: asyncio.Future[bytes], timeout_s: float) -> None:
    if not done.done():
        done.set_exception(TimeoutError(f"nothing came within {timeout_s:.0f} s"))


class _Reply(asyncio.Protocol):
    """All that comes until the connection ends."""

    def __init__(self, done: asyncio.Future[bytes]) -> None:
        self._done = done
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _MAX_ANSWER_BYTES and not self._done.done():
            self._done.set_exception(ValueError("its answer is too large"))

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_result(bytes(self._received))
