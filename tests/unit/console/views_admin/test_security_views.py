# SPDX-License-Identifier: Apache-2.0
"""ACLs, users and quotas as documents: the commands that undo them, and what to do where there are none."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from headrace.client.errors import ClientError
from headrace.client_quotas import QuotaEntity
from tests.unit.console.views_admin.planted import built

WRITE = AclBinding(
    ResourceType.TOPIC, "or ders", PatternType.PREFIXED, "User:ana", "*", Operation.WRITE, Permission.DENY
)
ADMIN = AclBinding(
    ResourceType.CLUSTER,
    "kafka-cluster",
    PatternType.LITERAL,
    "User:ops",
    "10.0.0.1",
    Operation.ALTER_CONFIGS,
    Permission.ALLOW,
)
TOKEN = ADMIN._replace(resource_type=ResourceType.DELEGATION_TOKEN, operation=Operation.DESCRIBE)


def test_an_acl_has_the_command_that_removes_exactly_it() -> None:
    write, admin, token = built("acls", [WRITE, ADMIN, TOKEN])["acls"]
    assert write["remove"] == (
        "headrace acls remove --topic 'or ders' --pattern prefixed --principal User:ana "
        "--operation write --host '*' --permission deny"
    )
    assert admin["remove"].startswith("headrace acls remove --cluster --pattern literal")
    assert (admin["operation"], admin["resource_type"]) == ("alter-configs", "cluster")
    assert token["remove"] is None


def test_acls_are_found_by_principal_and_by_resource() -> None:
    for wanted, expected in (("ANA", 1), ("kafka-", 1), ("", 2), ("nobody", 0)):
        document = built("acls", [WRITE, ADMIN], {"q": wanted})
        assert document["total"] == len(document["acls"]) == expected


def test_more_than_the_limit_is_counted() -> None:
    document = built("acls", [WRITE, ADMIN], {"limit": "1"})
    assert (document["total"], len(document["acls"])) == (2, 1)


@pytest.mark.parametrize("view", ["acls", "users", "quotas", "transactions"])
@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("SECURITY_DISABLED", "off"),
        ("UNSUPPORTED_VERSION", "off"),
        ("CLUSTER_AUTHORIZATION_FAILED", "refused"),
        ("REQUEST_TIMED_OUT", "failed"),
        (None, "failed"),
    ],
)
def test_a_refused_answer_says_why_and_what_to_do(view: str, code: str | None, state: str) -> None:
    document = built(view, ClientError("it is so", next_step="do this", code=code))
    assert document["answer"] == {"state": state, "text": "it is so", "next": "do this"}


def test_users_are_sorted_and_few_iterations_are_told() -> None:
    found = {"bo": {"SCRAM-SHA-512": 8192}, "ana": {"SCRAM-SHA-256": 1000, "SCRAM-SHA-512": 4096}}
    ana, bo = built("users", found)["users"]
    assert (ana["name"], ana["weak"], bo["weak"]) == ("ana", True, False)
    assert ana["mechanisms"][0] == {"mechanism": "SCRAM-SHA-256", "iterations": 1000}
    assert ana["change"] == "headrace users password ana"


def test_a_name_cannot_smuggle_words_into_a_command() -> None:
    (user,) = built("users", {"a; rm -rf /": {"SCRAM-SHA-256": 4096}})["users"]
    assert user["remove"] == "headrace users remove 'a; rm -rf /'"


def test_quotas_name_whom_they_limit() -> None:
    found: Any = {
        QuotaEntity(user="ana", client_id=""): {"producer_byte_rate": 1024.0},
        QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 5.0},
    }
    address, ana = built("quotas", found)["quotas"]
    assert ana["remove"] == "headrace quotas remove --user ana --default-client-id"
    assert ana["entity"] == "user ana, client-id (default)"
    assert address["values"] == [{"name": "connection_creation_rate", "value": 5.0, "unit": "connections/s"}]
