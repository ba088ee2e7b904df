# SPDX-License-Identifier: Apache-2.0
"""DescribeUserScramCredentials 0, AlterUserScramCredentials 0: the users that log in by a password.

Any node describes them from its view; the controller alters them. No secret is returned or logged.
Read next: controller/user_changes.py (rules), security/mechanisms.py (logins).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from headrace.broker.controller.controller import Controller
from headrace.broker.controller.user_changes import MECHANISM_NUMBERS, Deletion, Upsertion, UserChange
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError
from headrace.scram_credential import UserCredentials
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_NUMBERS = {name: number for number, name in MECHANISM_NUMBERS.items()}


class UserHandlers:
    """Handlers that describe and alter SCRAM credentials."""

    def __init__(self, *, cluster: ClusterMetadata, controller: Controller) -> None:
        self._cluster = cluster
        self._controller = controller

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self.alter,
        }

    async def describe(self, context: RequestContext, request: Any) -> dict[str, Any]:
        users = self._cluster.view.users
        times = Counter(each.name for each in request.users or ())
        results = [_described(name, users.get(name), times[name]) for name in times or sorted(users)]
        return {"error_code": ErrorCode.none, "error_message": None, "results": results}

    async def alter(self, context: RequestContext, request: Any) -> dict[str, Any]:
        changes: list[UserChange] = [
            Deletion(user=each.name, mechanism=each.mechanism) for each in request.deletions
        ]
        changes += [
            Upsertion(
                user=each.name,
                mechanism=each.mechanism,
                iterations=each.iterations,
                salt=bytes(each.salt),
                salted_password=bytes(each.salted_password),
            )
            for each in request.upsertions
        ]
        outcomes = await self._controller.alter_users(changes)
        return {"results": [_altered(name, refusal) for name, refusal in outcomes.items()]}


def _described(name: str, credentials: UserCredentials | None, times: int) -> dict[str, Any]:
    if times > 1:
        twice = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _result(name, ApiError(ErrorCode.duplicate_resource, twice), [])
    if credentials is None:
        missing = f"Attempt to describe a user credential that does not exist: {name}"
        return _result(name, ApiError(ErrorCode.resource_not_found, missing), [])
    found = sorted((_NUMBERS[each], credential.iterations) for each, credential in credentials.items())
    return _result(name, None, [{"mechanism": number, "iterations": count} for number, count in found])


def _result(name: str, refusal: ApiError | None, infos: list[dict[str, Any]]) -> dict[str, Any]:
    return {**_altered(name, refusal), "credential_infos": infos}


def _altered(name: str, refusal: ApiError | None) -> dict[str, Any]:
    return {
        "user": name,
        "error_code": ErrorCode.none if refusal is None else refusal.code,
        "error_message": None if refusal is None else refusal.message,
    }
