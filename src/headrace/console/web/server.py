# SPDX-License-Identifier: Apache-2.0
"""Runs the console: opens its socket, serves until it is told to stop, and ends live pages before it does.

Read next: app.py, protocol.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from headrace.client.errors import ClientError
from headrace.console.web.app import ConsoleApp
from headrace.console.web.protocol import DeadlineProtocol
from headrace.console.web.settings import WebSettings

_MOST_CONNECTIONS = 1000
_IDLE_S = 20
_SHUTDOWN_S = 3
_LOOK_AT_FILES_S = 30.0

log = logging.getLogger("headrace.console")


class ConsoleServer:
    """`run` it in one event loop; `stop` it there."""

    def __init__(self, settings: WebSettings, app: ConsoleApp, sock: socket.socket) -> None:
        self._settings = settings
        self._app = app
        self._sock = sock
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self, on_ready: Callable[[], None]) -> None:
        context = None if self._settings.certificate is None else tls_context(self._settings)
        server = _Server(self._config(context), on_ready)
        await self._app.start()
        serving = asyncio.ensure_future(server.serve(sockets=[self._sock]))
        reloading = asyncio.ensure_future(_reload_changed(self._settings, context))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reloading.cancel()
            stopping.cancel()
            await self._app.stop()
            server.should_exit = True
            await serving

    def _config(self, context: ssl.SSLContext | None) -> uvicorn.Config:
        config = uvicorn.Config(
            self._app,
            http=DeadlineProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        config.load()
        config.ssl = context
        return config


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The command handles them."""
        yield


def open_socket(settings: WebSettings) -> socket.socket:
    """ClientError when the port is taken or the address is not of this host."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        raise ClientError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            next_step="name another --port; 0: a free one",
        ) from None


def url_of(settings: WebSettings, sock: socket.socket) -> str:
    host = settings.host
    if settings.certificate is not None and settings.allowed_hosts:
        host = settings.allowed_hosts[0]
    scheme = "https" if settings.certificate is not None else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}/"


def tls_context(settings: WebSettings) -> ssl.SSLContext:
    """ClientError names a missing or unusable file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, settings)
    return context


def _load(context: ssl.SSLContext, settings: WebSettings) -> None:
    def no_password() -> str:
        """Called for an encrypted key only; otherwise OpenSSL would ask on the terminal."""
        raise ValueError("the key has a password")

    certificate = settings.certificate
    assert certificate is not None
    try:
        context.load_cert_chain(certificate, settings.key, password=no_password)
    except (OSError, ValueError) as error:
        what = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        both = f"{certificate} and {settings.key}" if settings.key else f"{certificate}"
        raise ClientError(
            f"{both} cannot be used for TLS: {what}",
            next_step="give PEM files, the key without a password: headrace certs make --help",
        ) from None


async def _reload_changed(settings: WebSettings, context: ssl.SSLContext | None) -> None:
    """New connections use a renewed certificate; while the files do not fit, the old one stays (S22)."""
    if context is None:
        return
    before = _stamps(settings)
    while True:
        await asyncio.sleep(_LOOK_AT_FILES_S)
        stamps = _stamps(settings)
        if stamps == before:
            continue
        try:
            tls_context(settings)
            _load(context, settings)
        except ClientError as error:
            log.warning("the renewed certificate is not used yet: %s", error.what)
        else:
            before = stamps
            log.info("the certificate was renewed")


def _stamps(settings: WebSettings) -> list[float]:
    files: list[Path] = [each for each in (settings.certificate, settings.key) if each is not None]
    return [file.stat().st_mtime if file.exists() else 0.0 for file in files]
