"""Connections that outlive a task: one thread and one cluster per process and bootstrap address.

Spark keeps its Python workers; a warm micro-batch opens nothing. Nothing is carried over a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from headrace.client.arrow.cluster import Cluster
from headrace.client.arrow.io_thread import IoThread

T = TypeVar("T")

_lock = threading.Lock()


class Kept:
    """A cluster and the thread that talks to it."""

    def __init__(self, bootstrap: str) -> None:
        self.cluster = Cluster(bootstrap)
        self.io = IoThread("headrace-spark", self.cluster.close)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.io.call(coroutine)


_kept: dict[tuple[int, str], Kept] = {}


def kept(bootstrap: str) -> Kept:
    """This process's own; opened when first asked for."""
    with _lock:
        place = (os.getpid(), bootstrap)
        if place not in _kept:
            _kept[place] = Kept(bootstrap)
        return _kept[place]


def drop(bootstrap: str) -> None:
    """Closes it, where a process is done for good."""
    with _lock:
        found = _kept.pop((os.getpid(), bootstrap), None)
    if found is not None:
        found.io.close()
