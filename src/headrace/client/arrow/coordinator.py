"""Requests to the node that keeps a group's or a transactional id's state, wherever it is by now.

Every such request may be repeated, so lost replies and moved coordinators are tried again until nothing
worked for `timeout_ms`. Knows no transaction's rules. Read next: cluster.py, transaction_session.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from headrace.client.arrow.cluster import GROUP, LOST, Cluster, Patience, find_coordinator
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode

T = TypeVar("T")

_FIRST_PAUSE_MS = 20
"""A transaction that was just ended is settled within milliseconds; until then others have to wait."""
_SPREADING_MS = 3000
"""How long a coordinator may take to hear of a new topic; later than that there is none."""
_MOVED = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
)


class Refused(ClientError):
    """The coordinator's no, which another try does not change."""

    def __init__(self, what: str, code: ErrorCode) -> None:
        super().__init__(f"{what}: {code.name}", code=code.name.upper())
        self.error_code = code


class GaveUp(ClientError):
    """Nothing worked for too long: whether the last request was carried out is not known."""


class Coordinator:
    """Of one group or one transactional id."""

    def __init__(self, cluster: Cluster, kind: int, key: str, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._kind = kind
        self._key = key
        self._timeout_ms = timeout_ms
        self._node_id: int | None = None

    async def connection(self) -> Connection:
        """To where it is now. ConnectionLost or Refused when that cannot be found out this time."""
        if self._node_id is None:
            self._node_id = await self._find()
        return await self._cluster.connection(self._node_id)

    async def find(self) -> Connection:
        """The same, with patience."""
        return await self._patiently(self.connection)

    async def call(
        self,
        api_key: int,
        fields: Mapping[str, Any],
        code_of: Callable[[Any], ErrorCode],
        *,
        newest: int | None = None,
    ) -> Any:
        """The reply that has no error. `newest`: the highest version to use."""

        async def attempt() -> Any:
            connection = await self.connection()
            version = connection.version_for(api_key)
            version = version if newest is None else min(version, newest)
            reply = await connection.call(api_key, fields, version=version)
            if (code := code_of(reply)) is not ErrorCode.none:
                raise Refused(self._name, code)
            return reply

        return await self._patiently(attempt)

    @property
    def _name(self) -> str:
        return f"{'group' if self._kind == GROUP else 'transactional id'} {self._key!r}"

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        patience = Patience(self._timeout_ms, first_ms=_FIRST_PAUSE_MS)
        for_topics = Patience(_SPREADING_MS, first_ms=_FIRST_PAUSE_MS)
        while True:
            try:
                return await attempt()
            except Refused as refusal:
                if not refusal.error_code.retriable:
                    raise
                if refusal.error_code is ErrorCode.unknown_topic_or_partition:
                    await for_topics.wait(refusal)
                    continue
                if refusal.error_code in _MOVED:
                    self._node_id = None
                problem: ClientError = refusal
            except LOST as lost:
                self._node_id = None
                problem = lost
            await patience.wait(_gave_up(problem, self._name, self._timeout_ms))

    async def _find(self) -> int:
        node_id, code = await find_coordinator(self._cluster, self._kind, self._key)
        if code is not ErrorCode.none:
            raise Refused(f"no coordinator for {self._name}", code)
        return node_id


def _gave_up(problem: ClientError, name: str, timeout_ms: int) -> GaveUp:
    return GaveUp(
        f"{name}: nothing worked for {timeout_ms} ms: {problem.what}",
        next_step=problem.next_step,
        code=problem.code,
    )
