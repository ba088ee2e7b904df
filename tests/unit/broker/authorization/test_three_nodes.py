# SPDX-License-Identifier: Apache-2.0
"""ACLs on several nodes: forwarded to the controller, acknowledged when every node knows them."""

from __future__ import annotations

from headrace.acls import Operation, PatternType, Permission, ResourceType
from headrace.config.security.acl_settings import STANDARD_AUTHORIZER
from headrace.principal import user
from headrace.wire.api_key import ApiKey
from tests.harness.broker.acl_node import ANY_ACL
from tests.harness.broker.three_nodes import SimTrio, on_three_nodes

# The nodes do not log in to each other here.
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
CREATION = {
    "resource_type": ResourceType.TOPIC,
    "resource_name": "t",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:ana",
    "host": "*",
    "operation": Operation.READ,
    "permission_type": Permission.ALLOW,
}


def test_an_acl_is_known_to_all_nodes_when_it_is_acknowledged() -> None:
    async def scenario(trio: SimTrio) -> None:
        for member in trio.up:
            reply = await member.ask(ApiKey.CREATE_ACLS, {"creations": [CREATION]}, version=3)
            assert reply.results[0].error_code == 0
            for other in trio.up:
                authorization = other.broker.authorization
                assert authorization is not None
                ana = authorization.sender(user("ana"), "10.0.0.1:5", ApiKey.FETCH)
                assert ana.may_on_topic(Operation.READ, "t")
                described = await other.ask(ApiKey.DESCRIBE_ACLS, ANY_ACL, version=3)
                assert len(described.resources) == 1
            deleted = await member.ask(ApiKey.DELETE_ACLS, {"filters": [ANY_ACL]}, version=3)
            assert len(deleted.filter_results[0].matching_acls) == 1
            assert not any(other.broker.cluster.view.acls for other in trio.up)

    on_three_nodes(scenario, settings=SETTINGS)
