# SPDX-License-Identifier: Apache-2.0
"""One observer of the cluster for each principal, shared by that user's sessions (S15).

Brokers decide by the principal what its observer may see. Read next: hub.py, observing/observer.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from headrace.client.cluster import Cluster
from headrace.console.web.hub import Hub
from headrace.console.web.live_source import LiveSource

log = logging.getLogger("headrace.console")


@dataclass(slots=True, eq=False, kw_only=True)
class Principal:
    key: Hashable
    source: LiveSource
    hub: Hub
    starting: asyncio.Task[None]
    holders: int = 0
    """Sessions that use it."""


class Principals:
    def __init__(self, observe: Callable[[Cluster], LiveSource]) -> None:
        self._observe = observe
        self._open: dict[Hashable, Principal] = {}
        self._closing: set[asyncio.Task[Any]] = set()

    async def acquire(self, key: Hashable, cluster: Cluster) -> Principal:
        """The principal's observer, started; `release` it once for each call."""
        principal = self._open.get(key) or self._start(key, cluster)
        principal.holders += 1
        try:
            await asyncio.shield(principal.starting)
        except BaseException:
            self.release(principal)
            raise
        return principal

    def _start(self, key: Hashable, cluster: Cluster) -> Principal:
        source = self._observe(cluster)
        starting = asyncio.ensure_future(source.start())
        principal = Principal(key=key, source=source, hub=Hub(source), starting=starting)
        self._open[key] = principal
        return principal

    def release(self, principal: Principal) -> None:
        """Closes the observer when nobody uses it any more."""
        principal.holders -= 1
        if principal.holders == 0:
            self._open.pop(principal.key, None)
            task = asyncio.ensure_future(_close(principal))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        principals, self._open = list(self._open.values()), {}
        await asyncio.gather(*map(_close, principals), *self._closing, return_exceptions=True)


async def _close(principal: Principal) -> None:
    principal.starting.cancel()
    await principal.hub.close()
    try:
        await principal.source.close()
    except Exception:
        log.exception("closing the connections of a user failed")
