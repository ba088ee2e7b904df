# SPDX-License-Identifier: Apache-2.0
"""Decides by ACLs whether a principal may do something, as Apache Kafka's StandardAuthorizer does.

Pure: no request, no store. The ACLs of a principal on a host are gathered once and decisions are remembered
until any ACL changes. Read next: acls.py, authorization.py (asks for the sender of a request).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain

from headrace.acls import (
    EVERY_USER,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    operations_that_allow,
    operations_that_deny,
)
from headrace.principal import NODE, Principal

_MAX_DECISIONS = 20_000
"""Remembered for one operation; then they are made anew, since clients choose the names they ask for."""
_MAX_CALLERS = 100_000
_NO_NAME = "hardcode"
"""Stands for a resource without ACLs of its own, where Apache Kafka asks for it by this name."""


class _Patterns:
    """ACLs of one resource type by their pattern."""

    __slots__ = ("_literal", "_prefix_lengths", "_prefixed")

    def __init__(self) -> None:
        self._literal: dict[str, list[AclBinding]] = {}
        self._prefixed: dict[str, list[AclBinding]] = {}
        self._prefix_lengths: tuple[int, ...] = ()

    def add(self, acl: AclBinding) -> None:
        if acl.pattern_type is not PatternType.PREFIXED:
            self._literal.setdefault(acl.resource_name, []).append(acl)
            return
        known = self._prefixed.setdefault(acl.resource_name, [])
        known.append(acl)
        if len(acl.resource_name) not in self._prefix_lengths:
            self._prefix_lengths = (*self._prefix_lengths, len(acl.resource_name))

    def of(self, name: str) -> Iterable[AclBinding]:
        """The ACLs with an effect on the resource."""
        prefixed = (self._prefixed.get(name[:length], ()) for length in self._prefix_lengths)
        wildcard = self._literal.get(WILDCARD, ()) if name != WILDCARD else ()
        return chain(self._literal.get(name, ()), wildcard, *prefixed)

    def all(self) -> Iterable[AclBinding]:
        return chain(*self._literal.values(), *self._prefixed.values())


def _by_type(acls: Iterable[AclBinding]) -> dict[ResourceType, _Patterns]:
    found: dict[ResourceType, _Patterns] = {}
    for acl in acls:
        found.setdefault(acl.resource_type, _Patterns()).add(acl)
    return found


class _Decisions(dict[str, bool]):
    """About one operation on one type of resource, by name; made when they are first looked up."""

    __slots__ = ("_decide",)

    def __init__(self, decide: Callable[[str], bool]) -> None:
        super().__init__()
        self._decide = decide

    def __missing__(self, name: str) -> bool:
        if len(self) >= _MAX_DECISIONS:
            self.clear()
        decision = self[name] = self._decide(name)
        return decision


class Access:
    """What all principals with the same ACLs may do. Valid until the ACLs change: not to be kept."""

    __slots__ = ("_decisions", "_no_acls_allow", "_patterns", "readable", "unlimited", "writable")

    def __init__(
        self,
        acls: Iterable[AclBinding],
        *,
        unlimited: bool = False,
        no_acls_allow: Callable[[ResourceType, str], bool] | None = None,
    ) -> None:
        """`no_acls_allow`: whether a resource has no ACLs at all, if everyone is allowed then."""
        self.unlimited = unlimited
        """A super user, or a node of the cluster."""
        self._patterns = _by_type(acls)
        self._no_acls_allow = no_acls_allow
        self._decisions: dict[int, _Decisions] = {}
        self.readable = self._about(Operation.READ, ResourceType.TOPIC)
        """Whether a topic may be read, for every name; the fast path of Fetch."""
        self.writable = self._about(Operation.WRITE, ResourceType.TOPIC)

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return self.unlimited or self._about(operation, resource_type)[name]

    def _about(self, operation: Operation, resource_type: ResourceType) -> Mapping[str, bool]:
        number = operation << 8 | resource_type  # members of enumerations are hashed slowly
        known = self._decisions.get(number)
        if known is None:
            decide = partial(self._decide, operation, resource_type)
            known = self._decisions[number] = _Decisions(decide)
        return known

    def _decide(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """A denial wins over every permission, whichever pattern it has."""
        if self.unlimited:
            return True
        allowing, denying = operations_that_allow(operation), operations_that_deny(operation)
        allowed = False
        patterns = self._patterns.get(resource_type)
        for acl in patterns.of(name) if patterns is not None else ():
            if acl.permission is Permission.DENY:
                if acl.operation in denying:
                    return False
            elif acl.operation in allowing:
                allowed = True
        return allowed or (self._no_acls_allow is not None and self._no_acls_allow(resource_type, name))

    def allows_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there may be a resource of the type on which it is allowed (KIP-679)."""
        if self.allows(operation, resource_type, _NO_NAME):
            return True
        same = operations_that_deny(operation)  # here Kafka takes no operation for another
        patterns = self._patterns.get(resource_type)
        acls = [acl for acl in patterns.all() if acl.operation in same] if patterns is not None else []
        denied = {acl[1:3] for acl in acls if acl.permission is Permission.DENY}
        if (WILDCARD, PatternType.LITERAL) in denied:
            return False
        return any(acl.permission is Permission.ALLOW and not _is_denied(acl, denied) for acl in acls)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Bit field of the operations that are allowed on a resource."""
        supported = SUPPORTED_OPERATIONS[resource_type]
        return sum(1 << each for each in supported if self.allows(each, resource_type, name))


def _is_denied(allowing: AclBinding, denied: set[tuple[str, PatternType]]) -> bool:
    """Whether all that the pattern includes is denied."""
    name = allowing.resource_name
    if allowing.pattern_type is PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (name, PatternType.LITERAL) in denied:
            return True
    return any((name[:end], PatternType.PREFIXED) in denied for end in range(1, len(name) + 1))


class Authorizer:
    """`acls`: the present ones; the same object as long as none has changed."""

    def __init__(
        self,
        acls: Callable[[], Mapping[str, AclBinding]],
        *,
        super_users: frozenset[str] = frozenset(),
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        self._present = acls
        self._super_users = super_users
        self._allow_everyone = allow_everyone_if_no_acl_found
        self._unlimited = Access((), unlimited=True)
        self._acls: Mapping[str, AclBinding] | None = None
        self._by_principal: dict[str, list[AclBinding]] = {}
        self._all: dict[ResourceType, _Patterns] = {}
        self._callers: dict[tuple[Principal, str], Access] = {}
        self._shared: dict[frozenset[AclBinding], Access] = {}

    def access(self, principal: Principal, host: str) -> Access:
        """What the principal may do on connections from the host, by the present ACLs."""
        if self._present() is not self._acls:
            self._gather()
        known = self._callers.get((principal, host))
        if known is None:
            if len(self._callers) >= _MAX_CALLERS:
                self._callers.clear()
            known = self._callers[principal, host] = self._new_access(principal, host)
        return known

    def _gather(self) -> None:
        self._acls = self._present()
        self._callers.clear()
        self._shared.clear()
        self._by_principal = {}
        for acl in self._acls.values():
            self._by_principal.setdefault(acl.principal, []).append(acl)
        self._all = _by_type(self._acls.values()) if self._allow_everyone else {}

    def _new_access(self, principal: Principal, host: str) -> Access:
        name = str(principal)
        if principal.kind == NODE or name in self._super_users:
            return self._unlimited
        own = self._by_principal.get(name, ()) if name != EVERY_USER else ()
        everybody = self._by_principal.get(EVERY_USER, ())
        acls = frozenset(acl for acl in chain(own, everybody) if acl.host in (WILDCARD, host))
        shared = self._shared.get(acls)
        if shared is None:
            no_acls_allow = self._has_no_acls if self._allow_everyone else None
            shared = self._shared[acls] = Access(acls, no_acls_allow=no_acls_allow)
        return shared

    def _has_no_acls(self, resource_type: ResourceType, name: str) -> bool:
        patterns = self._all.get(resource_type)
        return patterns is None or next(iter(patterns.of(name)), None) is None
