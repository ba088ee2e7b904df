# SPDX-License-Identifier: Apache-2.0
"""Connections of one transactional client: to its coordinators and to leaders, opened when they are needed.

Read next: requests.py, life.py, simulation/routing.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum, auto
from random import Random
from typing import Any, NamedTuple

from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode
from headrace.world import World
from tests.harness.simulation.clients import SimConnection, TryAgain
from tests.harness.simulation.routing import GROUP, TRANSACTION, Address, LeaderTarget, open_coordinator
from tests.harness.simulation.transactions.requests import Fields


class Coordinator(Enum):
    OF_TRANSACTIONS = auto()
    OF_THE_GROUP = auto()


Place = Coordinator | LeaderTarget


class Request(NamedTuple):
    to: Place
    api_key: int
    fields: Fields
    version: int
    code_of: Callable[[Any], ErrorCode]


RETRIABLE = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.leader_not_available,
        ErrorCode.network_exception,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unstable_offset_commit,
    }
)


class Refused(Exception):
    """An error that no retry helps against: the producer was fenced, or its transaction is over."""

    def __init__(self, code: ErrorCode, request: Request) -> None:
        super().__init__(f"{code.name} to API {request.api_key} version {request.version}")
        self.code = code


class GaveUp(Exception):
    """Nothing but errors that may pass, for too long."""


class Links:
    def __init__(
        self,
        world: World,
        addresses: Sequence[Address],
        *,
        transactional_id: str,
        group_id: str,
        name: str,
    ) -> None:
        self.progress = ""
        self._world = world
        self._addresses = addresses
        self._transactional_id = transactional_id
        self._group_id = group_id
        self._name = name
        self._open: dict[Place, SimConnection] = {}

    async def open(self, place: Place) -> SimConnection:
        """A new connection."""
        if isinstance(place, LeaderTarget):
            return await place.connect(self._world, self._name)
        of_transactions = place is Coordinator.OF_TRANSACTIONS
        return await open_coordinator(
            self._world,
            self._addresses,
            self._transactional_id if of_transactions else self._group_id,
            self._name,
            key_type=TRANSACTION if of_transactions else GROUP,
        )

    async def ask(
        self,
        request: Request,
        *,
        patience_s: float,
        timeout_ms: int,
        random: Random,
    ) -> Any:
        """The reply without an error; sends again what may succeed then. Raises Refused and GaveUp."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while True:
            try:
                reply = await self._call(request, timeout_ms)
                code = request.code_of(reply)
                if code is ErrorCode.none:
                    return reply
                if code not in RETRIABLE:
                    raise Refused(code, request)
                self.progress = f"{code.name} to API {request.api_key}"
                if code is not ErrorCode.concurrent_transactions:
                    self.drop(request.to)
            except (ClientError, TryAgain, OSError) as error:
                self.progress = f"{type(error).__name__}: {error} to API {request.api_key}"
                self.drop(request.to)
            if loop.time() > deadline:
                raise GaveUp(self.progress)
            await asyncio.sleep(random.uniform(0.01, 0.2))

    async def _call(self, request: Request, timeout_ms: int) -> Any:
        connection = self._open.get(request.to)
        if connection is None:
            connection = self._open[request.to] = await self.open(request.to)
        return await connection.call(
            request.api_key, request.fields, version=request.version, timeout_ms=timeout_ms
        )

    def drop(self, place: Place) -> None:
        connection = self._open.pop(place, None)
        if connection is not None:
            connection.abort()

    def close(self) -> None:
        for place in list(self._open):
            self.drop(place)


class LateRequests:
    """Requests that arrive when their sender has gone on or died, by connections that it opened before."""

    def __init__(self, random: Random) -> None:
        self.replies: Counter[str] = Counter()
        self._random = random
        self._tasks: set[asyncio.Task[None]] = set()

    def send(
        self, links: Links, request: Request, *, most_s: float, accepted: Callable[[], None] | None = None
    ) -> None:
        """`accepted`: called when the reply has no error."""
        delay_s = self._random.uniform(0, most_s)
        task = asyncio.ensure_future(self._send(links, request, delay_s, accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(
        self, links: Links, request: Request, delay_s: float, accepted: Callable[[], None] | None
    ) -> None:
        try:
            connection = await links.open(request.to)
        except (ClientError, TryAgain, OSError):
            return
        try:
            await asyncio.sleep(delay_s)
            reply = await connection.call(
                request.api_key, request.fields, version=request.version, timeout_ms=10_000
            )
        except (ClientError, OSError):
            return
        finally:
            connection.abort()
        code = request.code_of(reply)
        self.replies[code.name] += 1
        if code is ErrorCode.none and accepted is not None:
            accepted()

    async def all_answered(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)
