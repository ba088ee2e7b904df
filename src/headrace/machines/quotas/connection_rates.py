# SPDX-License-Identifier: Apache-2.0
"""Decides how long new connections wait: by the rate of all of them and by address (KIP-612).

Pure. Read next: rates.py, broker/network/connections.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.client_quotas import CONNECTION_CREATION_RATE, DEFAULT, Quotas
from headrace.machines.quotas.client_quotas import Meters
from headrace.machines.quotas.rates import Window, WindowedRate


class Admission(NamedTuple):
    """Wait so long, then serve the connection, or close it when its address exceeded its quota."""

    wait_s: float
    quota_exceeded: bool


AT_ONCE = Admission(0.0, quota_exceeded=False)


class ConnectionRates:
    def __init__(self, window: Window, limit: float) -> None:
        """`limit`: connections per second for the whole node."""
        self._window = window
        self._limit = limit
        self._all = WindowedRate(window)
        self._by_ip: Meters[WindowedRate] = Meters()
        self._ip_limits: Mapping[str, float] = {}

    def replace(self, quotas: Quotas) -> None:
        self._ip_limits = {
            entity.ip: values[CONNECTION_CREATION_RATE]
            for entity, values in quotas.items()
            if entity.ip is not None and CONNECTION_CREATION_RATE in values
        }

    def opened(self, ip: str, now: float, *, limited: bool) -> Admission:
        """`limited`: the limit of the node holds for it, besides the quota of its address."""
        if self._ip_limits and (wait_s := self._over_quota(ip, now)):
            return Admission(min(wait_s, self._window.size_s), quota_exceeded=True)
        if not limited:
            return AT_ONCE
        self._all.record(1, now)
        wait_s = self._all.throttle_s(self._limit, now)
        return Admission(wait_s, quota_exceeded=False) if wait_s else AT_ONCE

    def _over_quota(self, ip: str, now: float) -> float:
        """A connection that is refused does not count."""
        limit = self._ip_limits.get(ip, self._ip_limits.get(DEFAULT))
        if limit is None:
            return 0.0
        key = (ip, DEFAULT)
        rate = self._by_ip.used(key) or self._by_ip.add(key, WindowedRate(self._window), now)
        rate.record(1, now)
        wait_s = rate.throttle_s(limit, now)
        if wait_s:
            rate.record(-1, now)
        return wait_s
