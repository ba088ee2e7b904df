# SPDX-License-Identifier: Apache-2.0
"""Requests to the coordinator of a group or a transactional id: found first, found again after it moved.

`call` is one attempt. After a lost connection, or an error that says that the coordinator moved, the next
attempt finds it again. Members and offsets of groups retry with `retry_while_coordinator_moves` (first after
50 ms), transactions with `call_with_retries` (20 ms); both by retry.py: doubled up to 1 s, with jitter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from enum import IntEnum
from typing import Any, TypeVar

from headrace.client.bootstrap import Address
from headrace.client.connection import DEFAULT_TIMEOUT_MS, Connection
from headrace.client.errors import BrokerError, ClientError
from headrace.client.network_client import NetworkClient
from headrace.client.retry import LOST, Backoff, retry
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

T = TypeVar("T")


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


GROUP_LANE, OFFSETS_LANE = "group", "offsets"
"""Separate connections: a JoinGroup may take minutes, and commits must not wait behind it."""

COORDINATOR_MOVED = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
    }
)
"""Find the coordinator again, and retry."""

MEMBER_FENCED = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.fenced_member_epoch,
    }
)
"""The group has removed this member, which has to join again."""

_BATCHED_FROM = 4
_FIRST_BACKOFF_MS = 20
"""The coordinator completes an ended transaction within milliseconds; until then it refuses the next."""
_TOPIC_PROPAGATION_MS = 3_000
"""How long a coordinator may take to learn of a new topic; after that the topic does not exist."""

_WORDS = {
    ErrorCode.group_authorization_failed: "this client may not use it",
    ErrorCode.inconsistent_group_protocol: "its members use other assignors or another protocol",
    ErrorCode.fenced_instance_id: "another member with the same instance_id has taken this one's place",
    ErrorCode.unreleased_instance_id: "another member with the same instance_id is still there",
    ErrorCode.group_max_size_reached: "it has as many members as it may have",
    ErrorCode.invalid_session_timeout: "the broker does not allow this session_timeout_ms",
    ErrorCode.unsupported_assignor: "the broker does not have this assignor",
    ErrorCode.invalid_group_id: "this is not a valid group id",
}

_NEXT_STEPS = {
    ErrorCode.group_id_not_found: 'use protocol="classic"',
    ErrorCode.inconsistent_group_protocol: "see what they use: headrace groups describe {key}",
    ErrorCode.unreleased_instance_id: "see who: headrace groups describe {key}",
    ErrorCode.unsupported_assignor: "leave assignor= out",
}

Fields = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
"""Of a request; a function of the version where versions differ in more than a field that is left out."""


class CoordinatorError(BrokerError):
    """The coordinator refused a request."""

    def __init__(self, kind: CoordinatorType, key: str, code: ErrorCode, message: str | None = None) -> None:
        words = message or _WORDS.get(code)
        super().__init__(
            f"{_describe(kind, key)}: {code.name}" + (f" ({words.rstrip('.')})" if words else ""),
            code,
            next_step=_NEXT_STEPS.get(code, "").format(key=key) or None,
        )


class RetriesExhausted(ClientError):
    """No attempt succeeded in time: whether the last request was carried out is not known."""


class Coordinator:
    """The coordinator of one group or one transactional id.

    `lane`: the connection that calls use unless they name another. `timeout_ms`: for how long
    `call_with_retries` and `connect_with_retries` go on.
    """

    def __init__(
        self, client: NetworkClient, kind: CoordinatorType, key: str, *, timeout_ms: int, lane: str = ""
    ) -> None:
        self._client = client
        self._kind = kind
        self._key = key
        self._timeout_ms = timeout_ms
        self._lane = lane
        self._node_id: int | None = None

    async def call(
        self,
        api_key: int,
        fields: Fields,
        *,
        lane: str | None = None,
        newest: int | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Any:
        """One attempt. `newest`: the highest version that the caller understands, if not our highest."""
        try:
            connection = await self._connection(self._lane if lane is None else lane)
            version = connection.version_for(api_key)
            version = version if newest is None else min(version, newest)
            body = fields(version) if callable(fields) else fields
            return await connection.call(api_key, body, version=version, timeout_ms=timeout_ms)
        except LOST:
            self._node_id = None
            raise

    async def call_with_retries(
        self,
        api_key: int,
        fields: Fields,
        code_of: Callable[[Any], ErrorCode],
        *,
        newest: int | None = None,
        on_failure: Callable[[ClientError], None] = lambda error: None,
    ) -> Any:
        """The first reply without an error. CoordinatorError when its error code is not retriable.

        `on_failure` is called with the error of every attempt, whether it is retried or not.
        """

        async def attempt() -> Any:
            try:
                reply = await self.call(api_key, fields, newest=newest)
                if error := self.error_of(code_of(reply)):
                    raise error
            except ClientError as error:
                on_failure(error)
                raise
            return reply

        return await self._retry(attempt)

    async def connect_with_retries(self) -> Connection:
        async def attempt() -> Connection:
            try:
                return await self._connection(self._lane)
            except LOST:
                self._node_id = None
                raise

        return await self._retry(attempt)

    async def serves(self, api_key: int) -> bool:
        connection = await self._connection(self._lane)
        return api_key in connection.versions

    def error_of(self, code: Any, message: str | None = None) -> CoordinatorError | None:
        """None when the code is NONE. A code that says the coordinator moved makes the next call find it."""
        known = ErrorCode(int(code))
        if known is ErrorCode.none:
            return None
        if known in COORDINATOR_MOVED:
            self._node_id = None
        return CoordinatorError(self._kind, self._key, known, message)

    async def _connection(self, lane: str) -> Connection:
        if self._node_id is None:
            node_id, code = await find_coordinator(self._client, self._kind, self._key)
            if error := self.error_of(code):
                raise error
            self._node_id = node_id
        return await self._client.connection(self._node_id, lane)

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        backoff = Backoff(self._timeout_ms, first_ms=_FIRST_BACKOFF_MS)
        topic_backoff = Backoff(_TOPIC_PROPAGATION_MS, first_ms=_FIRST_BACKOFF_MS)

        async def wait(error: ClientError) -> None:
            if isinstance(error, BrokerError) and error.error_code is ErrorCode.unknown_topic_or_partition:
                await topic_backoff.wait(error)
            else:
                await backoff.wait(self._exhausted(error))

        return await retry(attempt, wait)

    def _exhausted(self, last: ClientError) -> RetriesExhausted:
        name = _describe(self._kind, self._key)
        return RetriesExhausted(
            f"{name}: no attempt succeeded for {self._timeout_ms} ms: {last.what}",
            next_step=last.next_step,
            code=last.code,
        )


async def find_coordinator(client: NetworkClient, kind: CoordinatorType, key: str) -> tuple[int, ErrorCode]:
    """(node id of the coordinator, NONE), or (-1, why there is none)."""
    connection = await client.any_connection()
    version = connection.version_for(ApiKey.FIND_COORDINATOR)
    batched = version >= _BATCHED_FROM
    keys = {"coordinator_keys": [key]} if batched else {"key": key}
    reply = await connection.call(ApiKey.FIND_COORDINATOR, {**keys, "key_type": kind.value}, version=version)
    found = reply.coordinators[0] if batched else reply
    node_id, code = int(found.node_id), ErrorCode(int(found.error_code))
    if code is ErrorCode.none:
        client.learn(node_id, Address(str(found.host), int(found.port)))
    return node_id, code


async def retry_while_coordinator_moves(
    attempt: Callable[[], Awaitable[T]], backoff: Backoff, *, also: Collection[ErrorCode] = ()
) -> T:
    """Repeats `attempt` while no reply comes, the coordinator moves, or it answers with a code of `also`.

    Raises other errors at once, and the last one when the backoff's timeout has passed.
    """

    def is_retriable(error: ClientError) -> bool:
        if isinstance(error, CoordinatorError):
            return error.error_code in COORDINATOR_MOVED or error.error_code in also
        return isinstance(error, LOST)

    return await retry(attempt, backoff.wait, retriable=is_retriable)


def _describe(kind: CoordinatorType, key: str) -> str:
    return f"{'group' if kind is CoordinatorType.GROUP else 'transactional id'} {key!r}"
