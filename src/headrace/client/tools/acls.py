# SPDX-License-Identifier: Apache-2.0
"""ACLs of any Kafka cluster: list, create and delete them. Blocking, for tools.

Built on brokers.py: brokers forward the changes to their controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.acls import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.brokers import Brokers, run
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_NEXT_STEPS = {
    ErrorCode.security_disabled: "set authorizer.class.name on all nodes: docs/security.md",
    ErrorCode.cluster_authorization_failed: (
        "ask somebody who may alter the cluster, or a super user (super.users)"
    ),
}


def list_acls(cluster: str | Cluster, wanted: AclFilter) -> list[AclBinding]:
    """Sorted by resource, then by principal."""

    async def ask() -> list[AclBinding]:
        async with Brokers(cluster) as brokers:
            reply = await brokers.call_any(ApiKey.DESCRIBE_ACLS, _filter_fields(wanted))
        _check(reply)
        return sorted(
            AclBinding(
                resource_type=ResourceType(resource.resource_type),
                resource_name=str(resource.resource_name),
                pattern_type=PatternType(resource.pattern_type),
                principal=str(acl.principal),
                host=str(acl.host),
                operation=Operation(acl.operation),
                permission=Permission(acl.permission_type),
            )
            for resource in reply.resources
            for acl in resource.acls
        )

    return run(ask())


def create_acls(cluster: str | Cluster, acls: Sequence[AclBinding]) -> None:
    """Those that exist already stay as they are."""

    async def ask() -> None:
        fields = {"creations": [_creation_fields(acl) for acl in acls]}
        async with Brokers(cluster) as brokers:
            reply = await brokers.call_any(ApiKey.CREATE_ACLS, fields)
        for result in reply.results:
            _check(result)

    run(ask())


def delete_acls(cluster: str | Cluster, acls: Sequence[AclBinding]) -> int:
    """How many were deleted: fewer when another one was faster."""

    async def ask() -> int:
        filters = [_filter_fields(AclFilter(*acl)) for acl in acls]
        async with Brokers(cluster) as brokers:
            reply = await brokers.call_any(ApiKey.DELETE_ACLS, {"filters": filters})
        for result in reply.filter_results:
            _check(result)
            for acl in result.matching_acls:
                _check(acl)
        return sum(len(result.matching_acls) for result in reply.filter_results)

    return run(ask())


def _creation_fields(acl: AclBinding) -> dict[str, Any]:
    return {
        "resource_type": acl.resource_type,
        "resource_name": acl.resource_name,
        "resource_pattern_type": acl.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _check(answer: Any) -> None:
    code = ErrorCode(int(answer.error_code))
    if code is not ErrorCode.none:
        text = str(getattr(answer, "error_message", None) or code.name).rstrip(".")
        raise ClientError(text, next_step=_NEXT_STEPS.get(code), code=code.name.upper())
