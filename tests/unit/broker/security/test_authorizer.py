# SPDX-License-Identifier: Apache-2.0
"""Decisions of the authorizer, from the documented semantics of Apache Kafka's StandardAuthorizer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.acls import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    has_effect_on,
    operations_that_allow,
    operations_that_deny,
)
from headrace.broker.security.authorizer import Authorizer
from headrace.principal import ANONYMOUS, Principal, node, user

ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, ALL, DESCRIBE = Operation.READ, Operation.WRITE, Operation.ALL, Operation.DESCRIBE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
HOST = "10.0.0.1"


def acl(
    operation: Operation,
    name: str = "orders",
    pattern: PatternType = LITERAL,
    permission: Permission = ALLOW,
    principal: str = "User:ana",
    host: str = "*",
    resource_type: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(resource_type, name, pattern, principal, host, operation, permission)


def authorizer(*acls: AclBinding, everyone: bool = False, super_users: str = "") -> Authorizer:
    stored = {str(place): each for place, each in enumerate(acls)}
    return Authorizer(
        lambda: stored,
        super_users=frozenset(super_users.split(";")),
        allow_everyone_if_no_acl_found=everyone,
    )


def allowed(
    found: Authorizer,
    operation: Operation,
    name: str = "orders",
    principal: Principal = user("ana"),  # noqa: B008  a value
    host: str = HOST,
) -> bool:
    return found.access(principal, host).allows(operation, TOPIC, name)


@pytest.mark.parametrize(
    ("acls", "operation", "name", "expected"),
    [
        ([], READ, "orders", False),
        ([acl(READ)], READ, "orders", True),
        ([acl(READ)], READ, "orders2", False),
        ([acl(READ)], WRITE, "orders", False),
        ([acl(ALL)], WRITE, "orders", True),
        ([acl(READ, "*")], READ, "anything", True),
        ([acl(READ, "*", PREFIXED)], READ, "anything", False),
        ([acl(READ, "ord", PREFIXED)], READ, "orders", True),
        ([acl(READ, "ord", PREFIXED)], READ, "or", False),
        ([acl(READ, "ord")], READ, "orders", False),
        ([acl(READ, resource_type=GROUP)], READ, "orders", False),
        ([acl(READ, principal="User:*")], READ, "orders", True),
        ([acl(READ, principal="User:bo")], READ, "orders", False),
        ([acl(READ, principal="Group:ana")], READ, "orders", False),
        ([acl(READ, host=HOST)], READ, "orders", True),
        ([acl(READ, host="10.0.0.2")], READ, "orders", False),
        # A denial wins, whatever pattern, principal or host it has.
        ([acl(READ), acl(READ, permission=DENY)], READ, "orders", False),
        ([acl(READ), acl(READ, "*", permission=DENY)], READ, "orders", False),
        ([acl(READ), acl(READ, "o", PREFIXED, DENY)], READ, "orders", False),
        ([acl(READ, "*"), acl(ALL, permission=DENY)], READ, "orders", False),
        ([acl(READ), acl(READ, permission=DENY, principal="User:*")], READ, "orders", False),
        ([acl(READ), acl(READ, permission=DENY, host="10.0.0.2")], READ, "orders", True),
        ([acl(READ), acl(WRITE, permission=DENY)], READ, "orders", True),
        # Permissions imply Describe and DescribeConfigs; denials do not.
        ([acl(READ)], DESCRIBE, "orders", True),
        ([acl(WRITE)], DESCRIBE, "orders", True),
        ([acl(Operation.DELETE)], DESCRIBE, "orders", True),
        ([acl(Operation.ALTER)], DESCRIBE, "orders", True),
        ([acl(Operation.CREATE)], DESCRIBE, "orders", False),
        ([acl(Operation.ALTER_CONFIGS)], DESCRIBE, "orders", False),
        ([acl(Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS, "orders", True),
        ([acl(Operation.ALTER)], Operation.DESCRIBE_CONFIGS, "orders", False),
        ([acl(DESCRIBE), acl(READ, permission=DENY)], DESCRIBE, "orders", True),
        ([acl(WRITE), acl(READ, permission=DENY)], DESCRIBE, "orders", True),
        ([acl(READ), acl(DESCRIBE, permission=DENY)], DESCRIBE, "orders", False),
    ],
)
def test_decisions(acls: list[AclBinding], operation: Operation, name: str, expected: bool) -> None:
    assert allowed(authorizer(*acls), operation, name) is expected


def test_super_users_and_nodes_may_do_everything() -> None:
    nobody = acl(ALL, "*", permission=DENY, principal="User:*")
    found = authorizer(nobody, super_users="User:CN=a,OU=b;User:c")
    for principal in (user("CN=a,OU=b"), user("c"), node(3)):
        assert allowed(found, WRITE, principal=principal)
    for principal in (user("CN=a"), ANONYMOUS, user("3")):
        assert not allowed(found, WRITE, principal=principal)


def test_everyone_is_allowed_only_where_no_acl_has_an_effect() -> None:
    other = acl(READ, principal="User:bo")
    found = authorizer(other, acl(READ, "pre", PREFIXED, principal="User:bo"), everyone=True)
    assert not allowed(found, READ, "orders")
    assert not allowed(found, READ, "prefixed")
    assert allowed(found, READ, "free")
    assert not allowed(authorizer(acl(READ, "*", principal="User:bo"), everyone=True), READ, "free")
    denied = acl(READ, permission=DENY, host="9.9.9.9")
    assert not allowed(authorizer(denied, everyone=True), READ, "orders")


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl(WRITE)], True),
        ([acl(READ)], False),
        ([acl(ALL, "x", PREFIXED)], True),
        ([acl(WRITE, "*")], True),
        ([acl(WRITE, "*"), acl(WRITE, "*", permission=DENY)], False),
        ([acl(WRITE), acl(WRITE, permission=DENY)], False),
        ([acl(WRITE), acl(WRITE, "ord", PREFIXED, DENY)], False),
        ([acl(WRITE, "ord", PREFIXED), acl(WRITE, "orders", PREFIXED, DENY)], True),
        ([acl(WRITE, "ord", PREFIXED), acl(WRITE, "ord", permission=DENY)], True),
        ([acl(WRITE, "ord", PREFIXED), acl(ALL, "o", PREFIXED, DENY)], False),
        ([acl(WRITE, host="10.0.0.2")], False),
        ([acl(WRITE, resource_type=GROUP)], False),
    ],
)
def test_writing_to_any_topic(acls: list[AclBinding], expected: bool) -> None:
    assert authorizer(*acls).access(user("ana"), HOST).allows_on_any(WRITE, TOPIC) is expected


def test_super_users_may_write_to_any_topic() -> None:
    found = authorizer(acl(WRITE, "*", permission=DENY, principal="User:*"), super_users="User:ana")
    assert found.access(user("ana"), HOST).allows_on_any(WRITE, TOPIC)


def test_authorized_operations_are_a_bit_field_of_what_the_resource_supports() -> None:
    access = authorizer(acl(READ), acl(ALL, CLUSTER_NAME, resource_type=CLUSTER)).access(user("ana"), HOST)
    assert access.operations(TOPIC, "orders") == 1 << READ | 1 << DESCRIBE
    assert access.operations(TOPIC, "other") == 0
    assert access.operations(CLUSTER, CLUSTER_NAME) == sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def test_decisions_follow_a_change_of_the_acls_at_once() -> None:
    present: dict[str, AclBinding] = {}
    found = Authorizer(lambda: present)
    assert not allowed(found, READ)
    present = {"1": acl(READ)}
    assert allowed(found, READ)
    present = {}
    assert not allowed(found, READ)


def test_principals_with_equal_acls_share_their_decisions() -> None:
    found = authorizer(acl(READ, principal="User:*"), acl(WRITE, host="10.0.0.9"))
    ana, bo = found.access(user("ana"), HOST), found.access(user("bo"), "10.0.0.9")
    assert ana is bo
    assert found.access(user("ana"), "10.0.0.9") is not ana


NAMES = st.text("ab", min_size=1, max_size=3)
BINDINGS = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, GROUP]),
    NAMES | st.just("*"),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:ana", "User:bo", "User:*"]),
    st.sampled_from(["*", HOST, "10.0.0.2"]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS]),
    st.sampled_from([ALLOW, DENY]),
)


def _by_definition(acls: list[AclBinding], everyone: bool, operation: Operation, name: str) -> bool:
    effective = [each for each in acls if each.resource_type is TOPIC and has_effect_on(each, name)]
    mine = [
        each for each in effective if each.principal in ("User:ana", "User:*") and each.host in ("*", HOST)
    ]
    if any(each.permission is DENY and each.operation in operations_that_deny(operation) for each in mine):
        return False
    if any(each.permission is ALLOW and each.operation in operations_that_allow(operation) for each in mine):
        return True
    return everyone and not effective


@given(st.lists(BINDINGS, max_size=8), st.booleans(), st.sampled_from([READ, WRITE, DESCRIBE]), NAMES)
def test_decisions_equal_the_definition(
    acls: list[AclBinding], everyone: bool, operation: Operation, name: str
) -> None:
    found = authorizer(*acls, everyone=everyone)
    expected = _by_definition(acls, everyone, operation, name)
    assert allowed(found, operation, name) is expected
    assert allowed(found, operation, name) is expected, "the remembered decision"
    if expected and not everyone:
        assert found.access(user("ana"), HOST).allows_on_any(operation, TOPIC) or operation is DESCRIBE
