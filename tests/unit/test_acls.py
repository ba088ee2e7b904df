# SPDX-License-Identifier: Apache-2.0
"""Filters of ACLs match as in Apache Kafka."""

from __future__ import annotations

import pytest

from headrace.acls import (
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def acl(name: str = "orders", pattern: PatternType = LITERAL, **fields: object) -> AclBinding:
    binding = AclBinding(TOPIC, name, pattern, "User:ana", "*", Operation.READ, Permission.ALLOW)
    return binding._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "matches", "differs"),
    [
        (AclFilter(), [acl(), acl("*"), acl("or", PREFIXED), acl(resource_type=GROUP)], []),
        (AclFilter(resource_type=GROUP), [acl(resource_type=GROUP)], [acl()]),
        (AclFilter(resource_name="orders"), [acl(), acl("orders", PREFIXED)], [acl("*"), acl("o", PREFIXED)]),
        (AclFilter(resource_name="orders", pattern_type=LITERAL), [acl()], [acl("orders", PREFIXED)]),
        (AclFilter(pattern_type=PREFIXED), [acl("or", PREFIXED)], [acl("or")]),
        (
            AclFilter(resource_name="orders", pattern_type=MATCH),
            [acl(), acl("*"), acl("or", PREFIXED), acl("orders", PREFIXED)],
            [acl("or"), acl("orders2"), acl("orders2", PREFIXED), acl("*", PREFIXED)],
        ),
        (AclFilter(pattern_type=MATCH), [acl(), acl("x", PREFIXED)], []),
        (AclFilter(principal="User:ana"), [acl()], [acl(principal="User:*"), acl(principal="User:bo")]),
        (AclFilter(host="*"), [acl()], [acl(host="10.0.0.1")]),
        (AclFilter(operation=Operation.ALL), [acl(operation=Operation.ALL)], [acl()]),
        (AclFilter(permission=Permission.DENY), [acl(permission=Permission.DENY)], [acl()]),
    ],
)
def test_a_filter_matches_every_field(
    wanted: AclFilter, matches: list[AclBinding], differs: list[AclBinding]
) -> None:
    assert [each for each in (*matches, *differs) if wanted.matches(each)] == matches


def test_the_operations_of_each_resource_are_those_that_kafka_reports() -> None:
    bits = {kind: sum(1 << each for each in found) for kind, found in SUPPORTED_OPERATIONS.items()}
    assert bits[TOPIC] == sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
    assert bits[ResourceType.CLUSTER] == sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
    assert bits[GROUP] == sum(1 << bit for bit in (3, 6, 8, 10, 11))
