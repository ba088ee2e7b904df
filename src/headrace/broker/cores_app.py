# SPDX-License-Identifier: Apache-2.0
"""The HTTP endpoint of a supervisor of cores, on an event loop in a thread of its own.

The supervisor waits for processes and signals in the main thread. Read next: reporting/cores_endpoint.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

from headrace.broker.reporting.cores_endpoint import Core, CoresEndpoint
from headrace.broker.security.metrics_token import MetricsToken
from headrace.broker.security.tls import RELOAD_S, ListenerTls, Reloaded, reload_all
from headrace.config import NodeConfig
from headrace.config.metrics_settings import uses_tls
from headrace.errors import ConfigError
from headrace.realworld import RealWorld
from headrace.secret import Secret

Address = tuple[str, int]


@contextlib.contextmanager
def cores_endpoint(
    config: NodeConfig, cores: Callable[[], Sequence[Core]], inner_token: Secret
) -> Iterator[Address | None]:
    """Its address, None without one. Raises ConfigError. With or without one the cores are watched."""
    started: Future[Address | None] = Future()
    ended = asyncio.Event()
    loop_of: Future[asyncio.AbstractEventLoop] = Future()

    async def serve() -> None:
        loop_of.set_result(asyncio.get_running_loop())
        try:
            await _serve(config, cores, inner_token, started, ended)
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="cores endpoint", daemon=True)
    thread.start()
    try:
        yield started.result()
    finally:
        with contextlib.suppress(RuntimeError):  # it has ended
            loop_of.result().call_soon_threadsafe(ended.set)
        thread.join()


async def _serve(
    config: NodeConfig,
    cores: Callable[[], Sequence[Core]],
    inner_token: Secret,
    started: Future[Address | None],
    ended: asyncio.Event,
) -> None:
    world = RealWorld()
    token = MetricsToken(world.files, config)
    tls = ListenerTls(world, config, None) if uses_tls(config) else None
    endpoint = CoresEndpoint(world, cores, token=token, inner_token=inner_token)
    host, port = config["headrace.metrics.host"], config["headrace.metrics.port"]
    try:
        if port >= 0:
            await _listen(endpoint, host, port, tls)
        started.set_result((host, endpoint.server.port) if port >= 0 else None)
        world.tasks.spawn(endpoint.watch(), name="watch cores")
        world.tasks.spawn(_reload(world, [token] if tls is None else [token, tls]), name="certificates")
        await ended.wait()
    finally:
        endpoint.server.close()
        await world.tasks.close()


async def _listen(endpoint: CoresEndpoint, host: str, port: int, tls: ListenerTls | None) -> None:
    try:
        await endpoint.server.start(host, port, None if tls is None else tls.server)
    except OSError as error:
        raise ConfigError(
            f"headrace.metrics.port={port} cannot be listened on ({error.strerror or error}): "
            "choose another, 0 for a free one, or -1 for none"
        ) from error


async def _reload(world: RealWorld, reloaded: Sequence[Reloaded]) -> None:
    thread = world.tasks.thread("certificates")
    while True:
        await world.tasks.sleep(RELOAD_S)
        await reload_all(reloaded, thread)
