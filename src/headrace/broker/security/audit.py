# SPDX-License-Identifier: Apache-2.0
"""The audit log (S21): who was refused, and who changed what. One JSON object per line, capped per second.

Lines go to the logger `headrace.audit`, so that they can be kept apart from the log of the node.
Read next: login.py, dispatch/dispatcher.py.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from headrace.broker.network.request_context import EncodedReply, Reply, RequestContext
from headrace.broker.network.yielding import yielding
from headrace.broker.security.authorization import Denial
from headrace.errors import ApiError
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS
from headrace.wire.error_codes import ErrorCode
from headrace.world import Clock

logger = logging.getLogger("headrace.audit")

LINES_PER_SECOND = 50
"""A client that is refused again and again must not fill the disk; what was left out is counted."""
_MOST_NAMES = 20
_LONGEST_TEXT = 256
CHANGES = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_RECORDS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.DELETE_GROUPS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_CLIENT_QUOTAS,
    }
)
"""APIs whose requests are recorded with their result."""
_LISTS = (
    "topics", "topic_partitions", "resources", "groups_names", "creations", "filters", "entries",
    "upsertions", "deletions",
)  # fmt: skip
"""Fields of those requests that name what is changed."""
_NAMES = ("name", "topic", "resource_name", "resource_name_filter")


class AuditLog:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = 0
        self._lines = 0

    def login_refused(self, context: RequestContext, mechanism: str, user: str | None, reason: str) -> None:
        details = {"mechanism": mechanism, "user": _short(user or ""), "reason": reason}
        self._write("login refused", context, details)

    def denied(self, denial: Denial) -> None:
        """An operation that no ACL allows."""
        self._write_line(
            "denied",
            {
                "principal": _short(str(denial.principal)),
                "address": denial.host,
                "api": APIS[denial.api_key].name,
                "operation": denial.operation.name,
                "resource_type": denial.resource_type.name,
                "resource": _short(denial.resource_name),
            },
        )

    async def changed(self, context: RequestContext, request: Any, answering: Awaitable[Reply]) -> Reply:
        """Passes the reply on and records what was asked for and how it ended."""
        try:
            reply = await answering
        except ApiError as error:
            self._write_change(context, request, [error.code.name])
            raise
        if not isinstance(reply, EncodedReply):
            codes = {entry.get("error_code", ErrorCode.none) async for entry in yielding(_entries(reply))}
            errors = sorted(ErrorCode(code).name for code in codes if code != ErrorCode.none)
            self._write_change(context, request, errors)
        return reply

    def _write_change(self, context: RequestContext, request: Any, errors: list[str]) -> None:
        lists = [_items(getattr(request, field, None)) for field in _LISTS]
        names = [_name(entry) for entry in islice(chain(*lists), _MOST_NAMES)]
        details: dict[str, Any] = {"api": APIS[context.api_key].name, "names": names}
        if (more := sum(map(len, lists)) - len(names)) > 0:
            details["more_names"] = more
        if getattr(request, "validate_only", False):
            details["validate_only"] = True
        self._write("change", context, {**details, "errors": errors})

    def _write(self, event: str, context: RequestContext, details: Mapping[str, Any]) -> None:
        who = {"principal": _short(str(context.principal)), "address": context.peer}
        who |= {"listener": context.listener, "client_id": _short(context.client_id or "")}
        self._write_line(event, {**who, **details})

    def _write_line(self, event: str, fields: Mapping[str, Any]) -> None:
        second = int(self._clock.monotonic())
        if second != self._second:
            if self._lines > LINES_PER_SECOND:
                logger.warning('{"event":"left out","lines":%d}', self._lines - LINES_PER_SECOND)
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= LINES_PER_SECOND:
            logger.info("%s", json.dumps({"event": event, **fields}))


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple | list) else ()


def _name(entry: Any) -> str:
    if isinstance(entry, str):
        return _short(entry)
    found = (getattr(entry, name, None) for name in _NAMES)
    return _short(str(next((name for name in found if name is not None), "")))


def _entries(reply: Any) -> Iterator[dict[str, Any]]:
    """The fields of a reply and of everything in it."""
    if isinstance(reply, dict):
        yield reply
        for value in reply.values():
            if isinstance(value, dict | tuple | list):
                yield from _entries(value)
    else:
        for value in reply:
            if isinstance(value, dict | tuple | list):
                yield from _entries(value)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"
