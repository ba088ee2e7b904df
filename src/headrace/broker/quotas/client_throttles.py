# SPDX-License-Identifier: Apache-2.0
"""Throttles clients that exceed their quotas: charges what they use, and mutes their connections (KIP-219).

Nodes are exempt. Handlers ask `active` before anything else, so that a cluster without quotas pays one
attribute check per request. Read next: loop_time.py, machines/quotas/client_quotas.py (decides).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.broker.metrics import Metrics
from headrace.broker.network.connection import KafkaConnection
from headrace.broker.network.request_context import RequestContext
from headrace.broker.quotas.loop_time import LoopTime, Slice, measured
from headrace.client_quotas import (
    CLIENT_QUOTAS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from headrace.config import NodeConfig
from headrace.errors import ApiError
from headrace.machines.quotas.client_quotas import NOT_THROTTLED, ClientQuotas, Limits, Throttle
from headrace.machines.quotas.rates import Window
from headrace.principal import NODE, Principal, user
from headrace.types import ClusterView
from headrace.wire.error_codes import ErrorCode
from headrace.wire.throttle_time import read_throttle_ms, with_throttle_ms
from headrace.world import Clock

_EXCEEDED = "The throttling quota has been exceeded."
_NO_LIMIT = float("inf")


class ClientThrottles:
    """The quotas of users and client ids, as this node enforces them."""

    def __init__(self, *, clock: Clock, metrics: Metrics, window: Window, mutation_window: Window) -> None:
        self.active = False
        """Whether any quota of users or client ids is set."""
        self.meters_requests = False
        """Whether one of them limits the time of the event loop."""
        self._clock = clock
        self._metrics = metrics
        self._machine = ClientQuotas(window, mutation_window)
        self._loop_time = LoopTime()

    def apply_view(self, old: ClusterView, new: ClusterView) -> None:
        if new.client_quotas is old.client_quotas:
            return
        machine = self._machine
        machine.replace(new.client_quotas)
        self.active = any(machine.has(name) for name in CLIENT_QUOTAS)
        self.meters_requests = machine.has(REQUEST_PERCENTAGE)

    # Produce and Fetch

    def produced(
        self, connection: KafkaConnection, client_id: str | None, size: int, *, acknowledged: bool = True
    ) -> int:
        """The throttle time of a reply to a request of this size; the connection is muted for it.

        A request without acknowledgement is throttled for its bytes only, as in Kafka.
        """
        limits = self._limits(connection.principal, client_id)
        if limits is None:
            return 0
        now = self._clock.monotonic()
        bytes_ms = self._machine.produced(limits, size, now)
        time_ms = self._requested(connection.principal, client_id, limits, now) if acknowledged else 0
        return self._throttle(connection, PRODUCER_BYTE_RATE, bytes_ms, time_ms)

    def fetched(self, connection: KafkaConnection, client_id: str | None, size: int) -> Throttle:
        """The same for a reply with so many bytes of records."""
        limits = self._limits(connection.principal, client_id)
        if limits is None:
            return NOT_THROTTLED
        now = self._clock.monotonic()
        throttle = self._machine.fetched(limits, size, now)
        time_ms = self._requested(connection.principal, client_id, limits, now)
        throttle_ms = self._throttle(connection, CONSUMER_BYTE_RATE, throttle.ms, time_ms)
        return Throttle(throttle_ms, empty=throttle.empty)

    def fetch_max_bytes(self, principal: Principal, client_id: str | None) -> float:
        limits = self._limits(principal, client_id)
        return _NO_LIMIT if limits is None else self._machine.fetch_max_bytes(limits)

    # Other requests

    def answered(self, connection: KafkaConnection, context: RequestContext, frame: bytes) -> bytes:
        """The reply with its throttle time, which may have been set where the request was handled."""
        limits = self._limits(connection.principal, context.client_id)
        if limits is None:
            return frame
        given_ms = read_throttle_ms(context.api_key, context.api_version, frame)
        time_ms = self._requested(connection.principal, context.client_id, limits, self._clock.monotonic())
        throttle_ms = self._throttle(connection, CONTROLLER_MUTATION_RATE, given_ms, time_ms)
        if throttle_ms == given_ms:
            return frame
        return with_throttle_ms(context.api_key, context.api_version, frame, throttle_ms)

    def mutations(self, context: RequestContext, *, strict_since: int) -> MutationQuota | None:
        """For one request that changes partitions; None without a limit (KIP-599)."""
        limits = self._limits(context.principal, context.client_id) if self.active else None
        if limits is None or limits.mutation is None:
            return None
        strict = context.api_version >= strict_since
        return MutationQuota(self._machine, limits, self._clock, strict=strict)

    # Time of the event loop

    def begin(self, principal: Principal, client_id: str | None) -> Slice | None:
        """The event loop works for this client until `end`; returns for whom it worked before."""
        now = self._clock.monotonic()
        owner = None if principal.kind == NODE else (principal.name, client_id or "")
        before = self._loop_time.begin(owner, now)
        self._charge(before, now)
        return before

    def end(self, before: Slice | None) -> None:
        now = self._clock.monotonic()
        self._charge(self._loop_time.end(before, now), now)

    def metered(self, request: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """A task of the client for whom the event loop works now: its steps are charged to that client."""
        owner = self._loop_time.owner if self.meters_requests else None
        if owner is None:
            return request
        name, client_id = owner
        principal = user(name)
        return measured(request, begin=lambda: self.begin(principal, client_id), end=self.end)

    def _charge(self, ended: Slice | None, now: float) -> None:
        if ended is not None:
            limits = self._machine.limits(*ended.owner)
            self._machine.requested(limits, ended.seconds, now)

    def _requested(self, principal: Principal, client_id: str | None, limits: Limits, now: float) -> int:
        if limits.request is None:
            return 0
        seconds = self._loop_time.taken((principal.name, client_id or ""), now)
        return self._machine.requested(limits, seconds, now)

    def _limits(self, principal: Principal, client_id: str | None) -> Limits | None:
        return None if principal.kind == NODE else self._machine.limits(principal.name, client_id or "")

    def _throttle(self, connection: KafkaConnection, quota: str, own_ms: int, time_ms: int) -> int:
        throttle_ms = max(own_ms, time_ms)
        if throttle_ms:
            self._metrics.throttled(quota if own_ms > time_ms else REQUEST_PERCENTAGE, throttle_ms / 1000)
            connection.mute(throttle_ms / 1000)
        return throttle_ms


class MutationQuota:
    """The quota of one request: a strict one refuses what exceeds it, the other only throttles."""

    def __init__(self, machine: ClientQuotas, limits: Limits, clock: Clock, *, strict: bool) -> None:
        self._machine = machine
        self._limits = limits
        self._clock = clock
        self._strict = strict

    def charge(self, partitions: int) -> None:
        """Before so many partitions are created or deleted. Raises ApiError."""
        now = self._clock.monotonic()
        if self._strict and self._machine.mutation_throttle(self._limits, now):
            raise ApiError(ErrorCode.throttling_quota_exceeded, _EXCEEDED)
        self._machine.mutated(self._limits, partitions, now)

    @property
    def throttle_ms(self) -> int:
        return self._machine.mutation_throttle(self._limits, self._clock.monotonic())


def make_throttles(clock: Clock, metrics: Metrics, config: NodeConfig) -> ClientThrottles:
    return ClientThrottles(
        clock=clock,
        metrics=metrics,
        window=Window(samples=config["quota.window.num"], size_s=config["quota.window.size.seconds"]),
        mutation_window=Window(
            samples=config["controller.quota.window.num"],
            size_s=config["controller.quota.window.size.seconds"],
        ),
    )
