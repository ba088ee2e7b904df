"""The broker that keeps a group: found when it is first asked, and found anew after it moved.

One try per call; who calls decides about others. Read next: offsets.py, classic.py, modern.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.client.arrow.cluster import GROUP, LOST, Cluster, Patience, find_coordinator
from headrace.client.connection import DEFAULT_TIMEOUT_MS, Connection
from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode

GROUP_LANE, OFFSETS_LANE = "group", "offsets"
"""A JoinGroup may take minutes; commits must not wait behind it."""

MOVED = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
    }
)
"""Ask who coordinates, and try again."""

FENCED = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.fenced_member_epoch,
    }
)
"""The group has gone on without this member, which has to join anew."""

_WORDS = {
    ErrorCode.group_authorization_failed: "this client may not use it",
    ErrorCode.inconsistent_group_protocol: "its members use other assignors or another protocol",
    ErrorCode.fenced_instance_id: "another member with the same instance_id has taken this one's place",
    ErrorCode.unreleased_instance_id: "another member with the same instance_id is still there",
    ErrorCode.group_max_size_reached: "it has as many members as it may have",
    ErrorCode.invalid_session_timeout: "the broker does not allow this session_timeout_ms",
    ErrorCode.unsupported_assignor: "the broker does not have this assignor",
    ErrorCode.invalid_group_id: "this is no name of a group",
}

_NEXT_STEPS = {
    ErrorCode.group_id_not_found: 'use protocol="classic"',
    ErrorCode.inconsistent_group_protocol: "see what they use: headrace groups describe {group}",
    ErrorCode.unreleased_instance_id: "see who: headrace groups describe {group}",
    ErrorCode.unsupported_assignor: "leave assignor= out",
}

Fields = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
"""Of a request; where versions differ in more than a field that is left out, a function of the version."""


class GroupRefused(ClientError):
    """The coordinator said no, with this code."""

    def __init__(self, group: str, code: ErrorCode, message: str | None = None) -> None:
        words = message or _WORDS.get(code)
        super().__init__(
            f"group {group!r}: {code.name}" + (f" ({words.rstrip('.')})" if words else ""),
            next_step=_NEXT_STEPS.get(code, "").format(group=group) or None,
            code=code.name.upper(),
        )
        self.error_code = code


class Coordinator:
    def __init__(self, cluster: Cluster, group: str) -> None:
        self.group = group
        self._cluster = cluster
        self._node_id: int | None = None

    async def call(
        self,
        api_key: int,
        fields: Fields,
        *,
        lane: str = GROUP_LANE,
        newest: int | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Any:
        """`newest`: the highest version that the caller understands, where that is not our highest."""
        try:
            connection = await self._connection(lane)
            version = connection.version_for(api_key)
            version = version if newest is None else min(version, newest)
            given = fields(version) if callable(fields) else fields
            return await connection.call(api_key, given, version=version, timeout_ms=timeout_ms)
        except LOST:
            self.moved()
            raise

    async def serves(self, api_key: int) -> bool:
        connection = await self._connection(GROUP_LANE)
        return api_key in connection.versions

    def moved(self) -> None:
        self._node_id = None

    def refusal(self, code: Any, message: str | None = None) -> GroupRefused | None:
        """None when the code says that all is well."""
        known = ErrorCode(int(code))
        if known is ErrorCode.none:
            return None
        if known in MOVED:
            self.moved()
        return GroupRefused(self.group, known, message)

    async def _connection(self, lane: str) -> Connection:
        if self._node_id is None:
            self._node_id = await self._find()
        return await self._cluster.connection(self._node_id, lane)

    async def _find(self) -> int:
        node_id, code = await find_coordinator(self._cluster, GROUP, self.group)
        if refusal := self.refusal(code):
            raise refusal
        return node_id


def is_passing(error: ClientError) -> bool:
    """Worth another try: the connection was lost, or the coordinator moves."""
    return isinstance(error, LOST) or (isinstance(error, GroupRefused) and error.error_code in MOVED)


async def patiently(patience: Patience, ask: Callable[[], Any]) -> Any:
    """Asks until the answer is more than a passing trouble."""
    while True:
        try:
            answer = await ask()
        except ClientError as error:
            if not is_passing(error):
                raise
            await patience.wait(error)
        else:
            patience.progress()
            return answer
