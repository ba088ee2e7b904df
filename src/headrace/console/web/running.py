# SPDX-License-Identifier: Apache-2.0
"""Puts the console together and runs it: in the foreground until a signal, or in a thread beside a cluster.

The only module here that knows the observer, messages/ and actions/. Read next: server.py.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading
from collections.abc import Callable
from dataclasses import replace

from headrace.console.actions.endpoints import ENDPOINTS as ACTIONS
from headrace.console.messages.endpoints import ENDPOINTS as MESSAGES
from headrace.console.observing.observer import Observer
from headrace.console.web.app import ConsoleApp
from headrace.console.web.server import ConsoleServer, open_socket, url_of
from headrace.console.web.settings import WebSettings

OnReady = Callable[[str], None]
_STOP_S = 10.0


def serve_until_signal(settings: WebSettings, on_ready: OnReady) -> None:
    """Until Ctrl-C or SIGTERM. `on_ready` gets the address for browsers."""
    asyncio.run(_serve(settings, on_ready, _stop_at_signals))


class BackgroundConsole:
    """The console in a thread of its own. Use it as a context manager: it is ready inside."""

    def __init__(self, settings: WebSettings) -> None:
        self._settings = settings
        self._ready: concurrent.futures.Future[str] = concurrent.futures.Future()
        self._stop: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)

    def __enter__(self) -> str:
        """The address for browsers."""
        self._thread.start()
        return self._ready.result()

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        try:
            asyncio.run(_serve(self._settings, self._ready.set_result, self._remember))
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    def _remember(self, server: ConsoleServer) -> None:
        loop = asyncio.get_running_loop()
        self._stop = lambda: _stop_from_outside(loop, server)


def _stop_from_outside(loop: asyncio.AbstractEventLoop, server: ConsoleServer) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(server.stop)


async def _serve(settings: WebSettings, on_ready: OnReady, before: Callable[[ConsoleServer], None]) -> None:
    sock = open_socket(settings)
    with sock:
        settings = replace(settings, port=sock.getsockname()[1])
        app = ConsoleApp(settings, observe=Observer, endpoints=(*MESSAGES, *ACTIONS))
        server = ConsoleServer(settings, app, sock)
        before(server)
        await server.run(lambda: on_ready(url_of(settings, sock)))


def _stop_at_signals(server: ConsoleServer) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
