# SPDX-License-Identifier: Apache-2.0
"""ACLs as Kafka has them: who may do what, from where, on which resources. Values shared by all layers.

Knows no store and no request. Read next: broker/security/authorizer.py (decides), principal.py (who).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

WILDCARD = "*"
"""As the name of a literal resource: every resource of the type. As a host: every host."""
EVERY_USER = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""


class ResourceType(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


STORED_RESOURCES = frozenset(ResourceType) - {ResourceType.ANY}
STORED_PATTERNS = frozenset({PatternType.LITERAL, PatternType.PREFIXED})
STORED_OPERATIONS = frozenset(Operation) - {Operation.ANY}
STORED_PERMISSIONS = frozenset({Permission.DENY, Permission.ALLOW})
"""What an ACL may have; the other values are for filters only."""

SUPPORTED_OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.CLUSTER: (
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        ),
        ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
        ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
        ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
    }
)
"""What can be done with a resource: these are reported as authorized operations."""

_IMPLIES_DESCRIBE = frozenset(
    {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
)
_IMPLIES_DESCRIBE_CONFIGS = frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL})


def operations_that_allow(operation: Operation) -> frozenset[Operation]:
    """The operations whose permission includes this one; a denial denies only its own."""
    if operation is Operation.DESCRIBE:
        return _IMPLIES_DESCRIBE
    if operation is Operation.DESCRIBE_CONFIGS:
        return _IMPLIES_DESCRIBE_CONFIGS
    return frozenset({operation, Operation.ALL})


def operations_that_deny(operation: Operation) -> frozenset[Operation]:
    return frozenset({operation, Operation.ALL})


class AclBinding(NamedTuple):
    """One ACL. All fields together are its identity: ACLs are a set (S10)."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    """As `KIND:NAME`; `User:*` means every user."""
    host: str
    operation: Operation
    permission: Permission


class AclFilter(NamedTuple):
    """What describing and deleting look for; None, or ANY, matches everything in that field."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    """MATCH: every ACL that has an effect on the named resource."""
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: AclBinding) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        wanted, name = self.pattern_type, self.resource_name
        if wanted in STORED_PATTERNS and wanted is not acl.pattern_type:
            return False
        if name is None:
            return True
        if wanted is PatternType.MATCH:
            return has_effect_on(acl, name)
        return name == acl.resource_name


def has_effect_on(acl: AclBinding, resource_name: str) -> bool:
    """Whether the pattern of the ACL includes a resource of its type with this name."""
    if acl.pattern_type is PatternType.PREFIXED:
        return resource_name.startswith(acl.resource_name)
    return acl.resource_name in (resource_name, WILDCARD)
