"""Connections that outlive a task: one thread and one cluster per process, bootstrap address and login.

Spark keeps its Python workers; a warm micro-batch opens nothing. Nothing is carried over a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from headrace.client.arrow.cluster import Cluster
from headrace.client.arrow.io_thread import IoThread
from headrace.client.connection import Connection
from pyspark_headrace.patience import patiently
from pyspark_headrace.security_options import NO_SECURITY, SecurityOptions

T = TypeVar("T")

_lock = threading.Lock()


class Kept:
    """A cluster and the thread that talks to it."""

    def __init__(self, bootstrap: str, security: SecurityOptions) -> None:
        self.cluster = Cluster(bootstrap, security=security.security())
        self.io = IoThread("headrace-spark", self.cluster.close)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.io.call(coroutine)

    def reach(self, *, timeout_ms: int) -> Connection:
        """To whichever broker answers; one that restarts is waited for as long as that."""
        return self.call(patiently(self.cluster.any_connection, timeout_ms=timeout_ms))


_kept: dict[tuple[int, str, SecurityOptions], Kept] = {}


def kept(bootstrap: str, security: SecurityOptions = NO_SECURITY) -> Kept:
    """This process's own; opened when first asked for."""
    with _lock:
        place = (os.getpid(), bootstrap, security)
        if place not in _kept:
            _kept[place] = Kept(bootstrap, security)
        return _kept[place]


def drop(bootstrap: str, security: SecurityOptions = NO_SECURITY) -> None:
    """Closes it, where a process is done for good."""
    with _lock:
        found = _kept.pop((os.getpid(), bootstrap, security), None)
    if found is not None:
        found.io.close()
