# SPDX-License-Identifier: Apache-2.0
"""Connections that are reused across tasks: one client per process, bootstrap address and login.

Spark reuses its Python workers, so a warm micro-batch opens no connection. A forked process opens its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from headrace.client.arrow.io_thread import IoThread
from headrace.client.connection import Connection
from headrace.client.network_client import NetworkClient
from headrace.client.retry import Backoff, retry
from headrace.client.security_settings import NO_SECURITY, SecuritySettings

T = TypeVar("T")

_lock = threading.Lock()


class PooledClient:
    """A network client and the IO thread that owns its connections."""

    def __init__(self, bootstrap: str, security: SecuritySettings) -> None:
        self.client = NetworkClient(bootstrap, security=security.security())
        self.io = IoThread("headrace-spark", self.client.close)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.io.call(coroutine)

    def reach(self, *, timeout_ms: int) -> Connection:
        """Return a connection to any broker that answers; retry for up to `timeout_ms`."""
        return self.call(retry(self.client.any_connection, Backoff(timeout_ms).wait))


_clients: dict[tuple[int, str, SecuritySettings], PooledClient] = {}


def pooled_client(bootstrap: str, security: SecuritySettings = NO_SECURITY) -> PooledClient:
    """Return this process's client for the cluster; open it on first use."""
    with _lock:
        key = (os.getpid(), bootstrap, security)
        if key not in _clients:
            _clients[key] = PooledClient(bootstrap, security)
        return _clients[key]


def close_client(bootstrap: str, security: SecuritySettings = NO_SECURITY) -> None:
    """Close this process's client for the cluster."""
    with _lock:
        found = _clients.pop((os.getpid(), bootstrap, security), None)
    if found is not None:
        found.io.close()
