# SPDX-License-Identifier: Apache-2.0
"""Decides how long clients are throttled: finds the quota of a user and client id, and measures its use.

Pure: quotas, amounts and times in, throttle times out. Knows no connection and no request.
Read next: rates.py, broker/quotas/client_throttles.py.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar

from headrace.client_quotas import (
    CLIENT_QUOTAS,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    Quotas,
)
from headrace.machines.quotas.rates import TokenBucket, Window, WindowedRate

MOST_METERS = 10_000
"""Of each kind. Beyond these the one that was idle for longest is forgotten: client ids cost nothing."""
_MOST_LIMITS = 10_000

MeterKey = tuple[str, str]
"""User and client id whose use is counted together; DEFAULT for the part that does not matter."""


class Limit(NamedTuple):
    """A quota in effect, and with whom its use is shared."""

    bound: float
    key: MeterKey


class Limits(NamedTuple):
    """What holds for one user and client id; None: no limit."""

    produce: Limit | None
    fetch: Limit | None
    request: Limit | None
    mutation: Limit | None


class Throttle(NamedTuple):
    """Of a fetch; `empty`: the reply must not contain records."""

    ms: int
    empty: bool


NOT_THROTTLED = Throttle(0, empty=False)


def find_limit(quotas: Quotas, name: str, user: str, client_id: str) -> Limit | None:
    """The most specific entity that has the quota, of Kafka's eight levels.

    A quota of a user is shared by the user's client ids, one of a client id by all users, and one of both
    belongs to the pair.
    """
    pair, of_user, of_client = (user, client_id), (user, DEFAULT), (DEFAULT, client_id)
    for entity, key in (
        (QuotaEntity(user, client_id), pair),
        (QuotaEntity(user, DEFAULT), pair),
        (QuotaEntity(user), of_user),
        (QuotaEntity(DEFAULT, client_id), pair),
        (QuotaEntity(DEFAULT, DEFAULT), pair),
        (QuotaEntity(DEFAULT), of_user),
        (QuotaEntity(client_id=client_id), of_client),
        (QuotaEntity(client_id=DEFAULT), of_client),
    ):
        bound = quotas.get(entity, {}).get(name)
        if bound is not None:
            return Limit(bound, key)
    return None


_M = TypeVar("_M", WindowedRate, TokenBucket)


class Meters(Generic[_M]):
    """Meters in the order of their last use."""

    def __init__(self) -> None:
        self._meters: OrderedDict[MeterKey, _M] = OrderedDict()

    def __len__(self) -> int:
        return len(self._meters)

    def used(self, key: MeterKey) -> _M | None:
        meter = self._meters.get(key)
        if meter is not None:
            self._meters.move_to_end(key)
        return meter

    def add(self, key: MeterKey, meter: _M, now: float) -> _M:
        """Forgets those that are idle, and one more when there are too many."""
        meters = self._meters
        while meters and next(iter(meters.values())).is_idle(now):
            meters.popitem(last=False)
        if len(meters) >= MOST_METERS:
            meters.popitem(last=False)
        meters[key] = meter
        return meter


class ClientQuotas:
    """The quotas of users and client ids on one node. Times are seconds, throttle times milliseconds."""

    def __init__(self, window: Window, mutation_window: Window) -> None:
        self._window = window
        self._mutation_window = mutation_window
        self._quotas: Quotas = {}
        self._limits: dict[MeterKey, Limits] = {}
        self._rates: dict[str, Meters[WindowedRate]] = {
            name: Meters() for name in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
        }
        self._mutations: Meters[TokenBucket] = Meters()

    def replace(self, quotas: Quotas) -> None:
        """What was used so far still counts."""
        self._quotas = quotas
        self._limits.clear()

    def has(self, name: str) -> bool:
        """Whether anyone has this quota."""
        return any(name in values for values in self._quotas.values())

    def limits(self, user: str, client_id: str) -> Limits:
        found = self._limits.get((user, client_id))
        if found is None:
            if len(self._limits) >= _MOST_LIMITS:
                self._limits.clear()
            found = Limits(*(find_limit(self._quotas, name, user, client_id) for name in CLIENT_QUOTAS))
            self._limits[user, client_id] = found
        return found

    def produced(self, limits: Limits, size: int, now: float) -> int:
        return self._record(PRODUCER_BYTE_RATE, limits.produce, size, now)

    def fetched(self, limits: Limits, size: int, now: float) -> Throttle:
        """Before a reply with so many bytes of records.

        One that is throttled is sent without records, and their bytes do not count. A batch that is larger
        than the quota allows at all is sent once the client has nothing else to wait for: it would never be.
        """
        throttle_ms = self._record(CONSUMER_BYTE_RATE, limits.fetch, size, now)
        if not throttle_ms:
            return NOT_THROTTLED
        throttle_ms_without = self._record(CONSUMER_BYTE_RATE, limits.fetch, -size, now)
        if throttle_ms_without or size <= self.fetch_max_bytes(limits):
            return Throttle(throttle_ms, empty=True)
        self._record(CONSUMER_BYTE_RATE, limits.fetch, size, now)
        return Throttle(throttle_ms, empty=False)

    def fetch_max_bytes(self, limits: Limits) -> float:
        """The largest reply within the quota; only a single batch may be larger."""
        return float("inf") if limits.fetch is None else limits.fetch.bound * self._window.full_s

    def requested(self, limits: Limits, seconds: float, now: float) -> int:
        """After this much time of the event loop. Throttled for one window at most, as in Kafka."""
        throttle_ms = self._record(REQUEST_PERCENTAGE, limits.request, 100 * seconds, now)
        return min(throttle_ms, round(self._window.size_s * 1000))

    def _record(self, name: str, limit: Limit | None, value: float, now: float) -> int:
        if limit is None:
            return 0
        meters = self._rates[name]
        rate = meters.used(limit.key) or meters.add(limit.key, WindowedRate(self._window), now)
        rate.record(value, now)
        return round(rate.throttle_s(limit.bound, now) * 1000)

    # Changes of partitions (KIP-599)

    def mutation_throttle(self, limits: Limits, now: float) -> int:
        """Above 0, a strict quota refuses further changes."""
        if limits.mutation is None:
            return 0
        bucket = self._bucket(limits.mutation, now)
        return round(bucket.throttle_s(limits.mutation.bound, now) * 1000)

    def mutated(self, limits: Limits, partitions: int, now: float) -> None:
        if limits.mutation is not None:
            self._bucket(limits.mutation, now).take(partitions, limits.mutation.bound, now)

    def _bucket(self, limit: Limit, now: float) -> TokenBucket:
        bound, key = limit
        return self._mutations.used(key) or self._mutations.add(
            key, TokenBucket(self._mutation_window, bound, now), now
        )

    @property
    def meter_count(self) -> int:
        return len(self._mutations) + sum(map(len, self._rates.values()))
