# SPDX-License-Identifier: Apache-2.0
"""A proxy that ends TLS before a node, as many are run: for tests of clients with TLS."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.cluster.engines.engine import free_ports
from tests.harness.live.node import NodeProcess
from tests.harness.live.tls_node import create_topic


class TlsProxy:
    """Takes TLS connections and passes what is inside on, in a thread of its own."""

    def __init__(self, port: int, target: int, certificates: Path, *, asks_for_certificate: bool) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificates / "server.pem")
        if asks_for_certificate:
            self._context.load_verify_locations(certificates / "ca.pem")
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._port, self._target = port, target
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> TlsProxy:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        async def start() -> None:
            await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=self._context)
            self._ready.set()

        self._loop.run_until_complete(start())
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(_pass_on(reader, inner_writer), _pass_on(inner_reader, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the other side hears of it below
    finally:
        writer.close()


@contextmanager
def behind_tls_proxy(
    start_node: Callable[..., NodeProcess], certificates: Path, *, asks_for_certificate: bool
) -> Iterator[str]:
    """The address of a node that clients reach over TLS alone; it holds the topic `t` of two partitions."""
    plain, inside, outside = free_ports(3)
    node = start_node(
        listeners=[
            f"main=127.0.0.1:{plain}",
            f"proxied=127.0.0.1:{inside},advertise=localhost:{outside}",
        ],
        port=plain,
    )
    create_topic(node.bootstrap, "t", 2)
    with TlsProxy(outside, inside, certificates, asks_for_certificate=asks_for_certificate):
        yield f"localhost:{outside}"
