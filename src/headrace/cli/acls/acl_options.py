# SPDX-License-Identifier: Apache-2.0
"""The options that name ACLs, and how they become ACLs and filters. Read next: commands.py."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, TypeVar

import typer

from headrace.acls import (
    CLUSTER_NAME,
    STORED_OPERATIONS,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

E = TypeVar("E", bound=IntEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Which resources ACLs are about."""

    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="This topic, or * for all; repeatable.")
    ] = None
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="This group, or * for all; repeatable.")
    ] = None
    transactional_id: Annotated[
        list[str] | None, typer.Option("--transactional-id", help="This transactional id; repeatable.")
    ] = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster itself.")] = False

    @property
    def named(self) -> list[tuple[ResourceType, str]]:
        return [
            *((ResourceType.TOPIC, name) for name in self.topic or ()),
            *((ResourceType.GROUP, name) for name in self.group or ()),
            *((ResourceType.TRANSACTIONAL_ID, name) for name in self.transactional_id or ()),
            *([(ResourceType.CLUSTER, CLUSTER_NAME)] if self.cluster else []),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which ACLs are meant; what is left out matches all."""

    principal: Annotated[
        str | None, typer.Option("--principal", "-p", metavar="User:NAME", help="Of this principal.")
    ] = None
    operation: Annotated[
        list[str] | None, typer.Option("--operation", "-o", help="For this operation; repeatable.")
    ] = None
    host: Annotated[str | None, typer.Option("--host", help="For connections from this address.")] = None
    pattern: Annotated[
        str,
        typer.Option(
            "--pattern",
            metavar="any|literal|prefixed|match",
            help="Kind of the names; match: all ACLs that have an effect on the named resource.",
        ),
    ] = "any"
    permission: Annotated[
        str, typer.Option("--permission", metavar="any|allow|deny", help="Only those that allow, or deny.")
    ] = "any"


def filters_of(resources: Resources, filters: Filters) -> list[AclFilter]:
    """One for each resource and operation that is named."""
    named: list[tuple[ResourceType, str | None]] = [*resources.named] or [(ResourceType.ANY, None)]
    pattern = _parse(PatternType, filters.pattern, "--pattern")
    permission = _parse(Permission, filters.permission, "--permission")
    principal = None if filters.principal is None else check_principal(filters.principal)
    return [
        AclFilter(kind, name, pattern, principal, filters.host, operation, permission)
        for kind, name in named
        for operation in _operations(filters.operation) or [Operation.ANY]
    ]


def new_acls(
    resources: Resources,
    *,
    principal: str,
    operations: list[str],
    host: str,
    prefixed: bool,
    deny: bool,
) -> list[AclBinding]:
    if not resources.named:
        raise typer.BadParameter("no resource: add --topic, --group, --transactional-id or --cluster")
    if prefixed and any(name == WILDCARD for _, name in resources.named):
        raise typer.BadParameter("* is no prefix: leave out --prefixed to mean all", param_hint="--prefixed")
    permission = Permission.DENY if deny else Permission.ALLOW
    who = check_principal(principal)
    found = []
    for kind, name in resources.named:
        is_prefix = prefixed and kind is not ResourceType.CLUSTER
        pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
        for operation in _operations(operations):
            _check_supported(kind, operation)
            found.append(AclBinding(kind, name, pattern, who, host, operation, permission))
    return found


def check_principal(text: str) -> str:
    kind, _, name = text.partition(":")
    if not kind or not name:
        guess = f"User:{text.strip(':')}"
        raise typer.BadParameter(f"{text!r} is no principal; try {guess}", param_hint="--principal")
    return text


def shown(value: IntEnum) -> str:
    """As an option takes it: describe-configs."""
    return value.name.lower().replace("_", "-")


def _operations(texts: Iterable[str] | None) -> list[Operation]:
    parsed = [_parse(Operation, text, "--operation") for text in texts or ()]
    wrong = [each for each in parsed if each not in STORED_OPERATIONS]
    if wrong:
        raise typer.BadParameter(f"{shown(wrong[0])!r} is no operation", param_hint="--operation")
    return parsed


def _check_supported(kind: ResourceType, operation: Operation) -> None:
    supported = (Operation.ALL, *SUPPORTED_OPERATIONS[kind])
    if operation not in supported:
        choice = ", ".join(map(shown, supported))
        raise typer.BadParameter(
            f"{shown(operation)!r} cannot be done to a {shown(kind)}; use {choice}", param_hint="--operation"
        )


def _parse(kind: type[E], text: str, option: str) -> E:
    wanted = text.replace("-", "").replace("_", "").lower()
    for value in kind:
        if value.name.replace("_", "").lower() == wanted:
            return value
    choice = ", ".join(map(shown, kind))
    raise typer.BadParameter(f"{text!r} is not one of {choice}", param_hint=option)
