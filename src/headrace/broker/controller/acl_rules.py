# SPDX-License-Identifier: Apache-2.0
"""Checks of new ACLs and of filters for ACLs, with Apache Kafka's error messages. Pure.

Read next: handlers/acls.py, acls.py.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeVar

from headrace.acls import (
    CLUSTER_NAME,
    STORED_OPERATIONS,
    STORED_PATTERNS,
    STORED_PERMISSIONS,
    STORED_RESOURCES,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from headrace.errors import ApiError
from headrace.wire.error_codes import ErrorCode

MAX_ACL_BYTES = 8 * 1024
"""Of names, principal and host together: an entry of the coordination store has to stay small."""
MAX_ACLS_PER_REQUEST = 10_000
"""ACLs created or deleted by one request, as in Apache Kafka."""

E = TypeVar("E", bound=IntEnum)


class RawAcl(NamedTuple):
    """The fields of a request: numbers that may mean nothing; None is for filters."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int


def new_acl(raw: RawAcl) -> AclBinding:
    """ApiError says why it is refused."""
    acl = AclBinding(
        resource_type=_stored(ResourceType, raw.resource_type, STORED_RESOURCES, "resourceType"),
        resource_name=raw.resource_name or "",
        pattern_type=_stored(PatternType, raw.pattern_type, STORED_PATTERNS, "patternType"),
        principal=raw.principal or "",
        host=raw.host or "",
        operation=_stored(Operation, raw.operation, STORED_OPERATIONS, "operation"),
        permission=_stored(Permission, raw.permission, STORED_PERMISSIONS, "permissionType"),
    )
    if not acl.resource_name:
        raise _invalid("Resource name should not be empty")
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.host:
        raise _invalid("Host should not be empty: give an address, or * for all")
    kind, _, name = acl.principal.partition(":")
    if not kind or not name:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal "
            "type from the principal name)"
        )
    size = sum(len(text.encode()) for text in (acl.resource_name, acl.principal, acl.host))
    if size > MAX_ACL_BYTES:
        raise _invalid(f"The ACL has names of {size} bytes; at most {MAX_ACL_BYTES} are allowed")
    return acl


def acl_filter(raw: RawAcl) -> AclFilter:
    """ApiError for values that Kafka does not have."""
    return AclFilter(
        resource_type=_known(ResourceType, raw.resource_type, "resourceType"),
        resource_name=raw.resource_name,
        pattern_type=_known(PatternType, raw.pattern_type, "patternType"),
        principal=raw.principal,
        host=raw.host,
        operation=_known(Operation, raw.operation, "operation"),
        permission=_known(Permission, raw.permission, "permissionType"),
    )


def _stored(kind: type[E], number: int, stored: frozenset[E], field: str) -> E:
    value = _known(kind, number, field)
    if value not in stored:
        raise _invalid(f"Invalid {field} {value.name}")
    return value


def _known(kind: type[E], number: int, field: str) -> E:
    try:
        return kind(number)
    except ValueError:
        raise _invalid(f"Invalid {field} UNKNOWN ({number})") from None


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, message)
