# SPDX-License-Identifier: Apache-2.0
"""Changes that were previewed and may be applied once: a token for each, for ten minutes.

A double click applies nothing twice: the first call takes the plan away.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from headrace.client.cluster import Cluster
from headrace.console.views.view import ViewError

T = TypeVar("T")

_LIFETIME_S = 600
_MOST = 500


class Pending(Generic[T]):
    """Plans of one kind of change, of all principals; a token is good for the principal who asked for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._plans: OrderedDict[str, tuple[float, Cluster, T]] = OrderedDict()

    def keep(self, cluster: Cluster, plan: T) -> str:
        """The token with which the plan is applied."""
        token = secrets.token_urlsafe(18)
        self._plans[token] = (self._clock() + _LIFETIME_S, cluster, plan)
        while len(self._plans) > _MOST:
            self._plans.popitem(last=False)
        return token

    def take(self, cluster: Cluster, token: Any) -> T:
        """ViewError (409) when it was applied already, is too old, or is somebody else's."""
        kept = self._plans.get(token) if isinstance(token, str) else None
        if kept is None or kept[1] != cluster or kept[0] < self._clock():
            raise ViewError(
                "this preview was applied already, or is older than ten minutes",
                next_step="look at what is there now, and preview again",
                status=409,
            )
        del self._plans[token]
        return kept[2]
