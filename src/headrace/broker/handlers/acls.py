# SPDX-License-Identifier: Apache-2.0
"""DescribeAcls 1-3, CreateAcls 1-3, DeleteAcls 1-3.

ACLs are a set in the coordination store (S10), written by the controller. Without an authorizer every
request is answered SECURITY_DISABLED, as in Apache Kafka.
"""

from __future__ import annotations

from typing import Any

from headrace.acls import AclBinding
from headrace.broker.controller.acl_rules import MAX_ACLS_PER_REQUEST, RawAcl, acl_filter, new_acl
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import yielding
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_DISABLED = "No Authorizer is configured on the broker: set authorizer.class.name on all nodes."


class AclHandlers:
    """Handlers of DescribeAcls, CreateAcls and DeleteAcls. `enabled`: there is an authorizer."""

    def __init__(self, *, cluster: ClusterMetadata, enabled: bool) -> None:
        self._cluster = cluster
        self._enabled = enabled

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.DESCRIBE_ACLS: self.describe_acls,
            ApiKey.CREATE_ACLS: self.create_acls,
            ApiKey.DELETE_ACLS: self.delete_acls,
        }

    # DescribeAcls

    async def describe_acls(self, context: RequestContext, request: Any) -> dict[str, Any]:
        if not self._enabled:
            raise ApiError(ErrorCode.security_disabled, _DISABLED)
        wanted = acl_filter(_filter_fields(request))
        resources: dict[tuple[int, str, int], list[dict[str, Any]]] = {}
        async for acl in yielding(list(self._cluster.view.acls.values())):
            if wanted.matches(acl):
                resources.setdefault(acl[:3], []).append(_entry(acl))
        return {
            "error_code": ErrorCode.none,
            "error_message": None,
            "resources": [
                {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": acls}
                for (kind, name, pattern), acls in sorted(resources.items())
            ],
        }

    # CreateAcls

    async def create_acls(self, context: RequestContext, request: Any) -> dict[str, Any]:
        accepted: list[AclBinding] = []
        outcomes: list[ApiError | None] = []
        for creation in request.creations:
            try:
                if not self._enabled:
                    raise ApiError(ErrorCode.security_disabled, _DISABLED)
                _check_count(len(request.creations))
                accepted.append(new_acl(_creation_fields(creation)))
                outcomes.append(None)
            except ApiError as refusal:
                outcomes.append(refusal)
        failure = await self._cluster.create_acls(accepted) if accepted else None
        return {"results": [_outcome(refusal or failure) for refusal in outcomes]}

    # DeleteAcls

    async def delete_acls(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """A filter that matches nothing is no error."""
        matches: list[list[AclBinding] | ApiError] = []
        for each in request.filters:
            try:
                if not self._enabled:
                    raise ApiError(ErrorCode.security_disabled, _DISABLED)
                wanted = acl_filter(_filter_fields(each))
                found = [acl for acl in self._cluster.view.acls.values() if wanted.matches(acl)]
                _check_count(len(found))
                matches.append(found)
            except ApiError as refusal:
                matches.append(refusal)
        deleted = [acl for match in matches if not isinstance(match, ApiError) for acl in match]
        failure = await self._cluster.delete_acls(deleted) if deleted else None
        return {"filter_results": [_deletion(match, failure) for match in matches]}


def _check_count(count: int) -> None:
    if count > MAX_ACLS_PER_REQUEST:
        raise ApiError(
            ErrorCode.invalid_request,
            f"{count} ACLs in one request; at most {MAX_ACLS_PER_REQUEST}: use several requests",
        )


def _filter_fields(request: Any) -> RawAcl:
    return RawAcl(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )


def _creation_fields(creation: Any) -> RawAcl:
    return RawAcl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _entry(acl: AclBinding) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _outcome(error: ApiError | None) -> dict[str, Any]:
    if error is None:
        return {"error_code": ErrorCode.none, "error_message": None}
    return {"error_code": error.code, "error_message": error.message}


def _deletion(match: list[AclBinding] | ApiError, failure: ApiError | None) -> dict[str, Any]:
    if isinstance(match, ApiError):
        return {**_outcome(match), "matching_acls": []}
    resource = ("resource_type", "resource_name", "pattern_type")
    return {
        **_outcome(None),
        "matching_acls": [
            {**_outcome(failure), **dict(zip(resource, acl[:3], strict=True)), **_entry(acl)} for acl in match
        ],
    }
