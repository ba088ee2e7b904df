# SPDX-License-Identifier: Apache-2.0
"""Every API without a login, with a wrong one, without ACLs and with those it needs: answers of Apache Kafka.

On a PLAINTEXT listener with an authorizer and on a SASL_PLAINTEXT one. The requests: api_cases.py.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.acls import AclBinding
from headrace.client.sasl import Plain, ScramSha512
from headrace.cluster.engines.engine import free_ports
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.config.security.acl_settings import STANDARD_AUTHORIZER
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS, NODE_APIS
from headrace.wire.error_codes import ErrorCode
from tests.compat.api_cases import CASES, GROUP, TOPIC, Case
from tests.compat.reply_summary import summary
from tests.harness.live.node import HOST
from tests.harness.live.raw_client import RawClient
from tests.harness.live.secured_node import SecuredNode
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.compat_jvm

NOT_COMPARED = {
    ApiKey.ALTER_PARTITION: "between nodes; Apache Kafka serves it on listeners of controllers only",
    ApiKey.ENVELOPE: "between nodes; Apache Kafka serves it on listeners of controllers only",
    ApiKey.BROKER_HEARTBEAT: "between nodes; Apache Kafka serves it on listeners of controllers only",
}
PASSWORD = "secret"
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
MODULE = "org.apache.kafka.common.security"
PLAIN = f'{MODULE}.plain.PlainLoginModule required username="admin" password="secret" user_admin="secret";'
KAFKA = SETTINGS | {
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": PLAIN,
    "listener.name.login.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
    "listener.name.login.plain.sasl.jaas.config": PLAIN,
    "listener.name.login.scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
}
STATES = (
    "PLAINTEXT, without ACLs",
    "PLAINTEXT, with ACLs",
    "SASL, no login",
    "SASL, wrong login",
    "SASL, without ACLs",
    "SASL, with the ACLs it needs",
)


_NODE_IS_ANONYMOUS = (
    "Apache Kafka's node asks the coordinator of transactions on its PLAINTEXT listener, and ANONYMOUS may "
    "not do that yet; ours asks itself"
)
DIFFERENT = {
    ("SASL, with the ACLs it needs", "TxnOffsetCommit"): _NODE_IS_ANONYMOUS,
    ("SASL, with the ACLs it needs", "TxnOffsetCommit, one topic denied"): _NODE_IS_ANONYMOUS,
}
"""By state and request: why our answer is another one."""
NOT_READY = (ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available)


class Broker(NamedTuple):
    plain: str
    login: str
    admin: Plain | ScramSha512


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("ours")
    node = SecuredNode(folder, SETTINGS | {"sasl.enabled.mechanisms": "SCRAM-SHA-512"})
    (folder / "password").write_text(PASSWORD)
    add = ("users", "add", "admin", "--data", str(node.process.data))
    password = ("--password-file", str(folder / "password"))
    subprocess.run([sys.executable, "-m", "headrace.cli.main", *add, *password], check=True, timeout=60)
    with node:
        yield Broker(node.open, node.secure, ScramSha512("admin", PASSWORD))


@pytest.fixture(scope="module")
def theirs(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder: Path = tmp_path_factory.mktemp("theirs")
    prepared = kafka_engine.prepare(folder, KAFKA)
    properties = folder / "server.properties"
    (port,) = free_ports(1)
    text = properties.read_text()
    for name in ("listeners", "advertised.listeners"):
        own = re.search(rf"^{name}=(.*)$", text, flags=re.MULTILINE)
        assert own is not None
        text += f"{name}={own[1]},LOGIN://{HOST}:{port}\n"
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,LOGIN:SASL_PLAINTEXT"
    properties.write_text(f"{text}listener.security.protocol.map={protocols}\n")
    with prepared.launch() as node:
        yield Broker(node.bootstrap, f"{HOST}:{port}", Plain("admin", PASSWORD))


# One broker's answers


def log_in(client: RawClient, sasl: Plain | ScramSha512) -> ErrorCode:
    client.call(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": sasl.name})
    messages = sasl.conversation()
    message = next(messages)
    while True:
        reply = client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})
        if reply.error_code is not ErrorCode.none:
            return ErrorCode(reply.error_code)
        try:
            message = messages.send(bytes(reply.auth_bytes))
        except StopIteration:
            return ErrorCode.none


def answer(address: str, case: Case, sasl: ScramSha512 | None = None) -> Any:
    """The summary of a reply, or that the connection was closed; with the code of a login that failed."""
    with RawClient(address) as client:
        code = None if sasl is None else log_in(client, sasl)
        try:
            reply = summary(client.call(case.key, case.version, case.fields))
            while reply.get("error_code") in NOT_READY:  # Apache Kafka's first producer id
                reply = summary(client.call(case.key, case.version, case.fields))
        except (ConnectionResetError, BrokenPipeError):
            reply = "closed"
        return reply if code in (None, ErrorCode.none) else (code, reply)


def create_users(admin: RawClient, users: list[str]) -> None:
    salt = b"0123456789abcdef"
    salted = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, 4096)
    changes = [
        {"name": user, "mechanism": 2, "iterations": 4096, "salt": salt, "salted_password": salted}
        for user in users
    ]
    reply = admin.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": changes})
    assert {result.error_code for result in reply.results} == {ErrorCode.none}


def create_acls(admin: RawClient, acls: list[AclBinding]) -> None:
    creations = [
        {
            "resource_type": acl.resource_type,
            "resource_name": acl.resource_name,
            "resource_pattern_type": acl.pattern_type,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permission_type": acl.permission,
        }
        for acl in acls
    ]
    reply = admin.call(ApiKey.CREATE_ACLS, 3, {"creations": creations})
    assert {result.error_code for result in reply.results} == {ErrorCode.none}
    principal = acls[-1].principal
    described = CASES["DescribeAcls"].fields | {"principal_filter": principal}
    wait_until(lambda: admin.call(ApiKey.DESCRIBE_ACLS, 3, described).resources)


def knows(broker: Broker, sasl: ScramSha512) -> bool:
    """Apache Kafka acknowledges users before its nodes know them."""
    with RawClient(broker.login) as client:
        return log_in(client, sasl) is ErrorCode.none


def prepare(admin: RawClient) -> None:
    """The topic, and coordinators that work."""
    new = CASES["CreateTopics"].fields["topics"][0] | {"name": TOPIC}
    fields = {"topics": [new], "timeout": 10_000, "validate_only": False}
    assert admin.call(ApiKey.CREATE_TOPICS, 7, fields).topics[0].error_code is ErrorCode.none
    find, commit = CASES["FindCoordinator"], CASES["OffsetCommit"]

    def works() -> bool:
        admin.call(find.key, find.version, find.fields)
        reply = admin.call(commit.key, commit.version, commit.fields)
        return bool(reply.topics[0].partitions[0].error_code is ErrorCode.none)

    wait_until(works, f"the coordinator of {GROUP}", poll_s=0.2)
    find_other, end = CASES["FindCoordinator of transactions"], CASES["EndTxn"]

    def knows_transactions() -> bool:
        admin.call(find_other.key, find_other.version, find_other.fields)
        reply = admin.call(end.key, end.version, end.fields)
        return reply.error_code not in (*NOT_READY, ErrorCode.not_coordinator)

    wait_until(knows_transactions, "the coordinator of transactions", poll_s=0.2)


def answers(broker: Broker) -> dict[str, dict[str, Any]]:
    users = {title: ScramSha512(f"user-{number}", PASSWORD) for number, title in enumerate(CASES)}
    nobody, wrong = ScramSha512("nobody-special", PASSWORD), ScramSha512("nobody-special", "wrong")
    found: dict[str, dict[str, Any]] = {}

    def ask(state: str, address: str, sasl: Callable[[str], ScramSha512 | None]) -> None:
        found[state] = {title: answer(address, case, sasl(title)) for title, case in CASES.items()}

    with RawClient(broker.login) as admin:
        assert log_in(admin, broker.admin) is ErrorCode.none
        prepare(admin)
        create_users(admin, [nobody.user, *(sasl.user for sasl in users.values())])
        wait_until(lambda: knows(broker, [*users.values()][-1]))
        ask(STATES[0], broker.plain, lambda _: None)
        ask(STATES[2], broker.login, lambda _: None)
        ask(STATES[3], broker.login, lambda _: wrong)
        ask(STATES[4], broker.login, lambda _: nobody)
        create_acls(
            admin, [acl for title, case in CASES.items() for acl in case.acls(f"User:{users[title].user}")]
        )
        ask(STATES[5], broker.login, users.__getitem__)
        create_acls(admin, [acl for case in CASES.values() for acl in case.acls("User:ANONYMOUS")])
        ask(STATES[1], broker.plain, lambda _: None)
    return found


@pytest.fixture(scope="module")
def both(ours: Broker, theirs: Broker) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    return answers(ours), answers(theirs)


@pytest.mark.parametrize("title", CASES)
@pytest.mark.parametrize("state", STATES)
def test_a_request_is_answered_as_by_apache_kafka(
    both: tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]], state: str, title: str
) -> None:
    ours, theirs = both
    if (state, title) in DIFFERENT:
        assert ours[state][title] != theirs[state][title], "equal by now: take it out of the list"
    else:
        assert ours[state][title] == theirs[state][title]


def test_every_api_for_clients_is_compared() -> None:
    assert {case.key for case in CASES.values()} | set(NOT_COMPARED) == set(APIS)
    assert set(NOT_COMPARED) == NODE_APIS
