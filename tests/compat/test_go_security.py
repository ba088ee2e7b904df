# SPDX-License-Identifier: Apache-2.0
"""franz-go and sarama over every security protocol and mechanism, and their own errors.

The same for Python and Java: test_python_security.py, test_jvm_security.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.live.guarded_node import SCRAM, WAYS, GuardedNode, Reach, Way

pytestmark = pytest.mark.compat_go

LOGIN = Way("SASL_PLAINTEXT", SCRAM[0])
RECORD = {"key": "k", "value": "value", "headers": {}}
TOPIC_DENIED = {
    "franz": "TOPIC_AUTHORIZATION_FAILED",
    "sarama": "The client is not authorized to access this topic",
}
GROUP_DENIED = {
    "franz": "GROUP_AUTHORIZATION_FAILED",
    "sarama": "The client is not authorized to access this group",
}
REFUSED_LOGIN = {"franz": "SASL_AUTHENTICATION_FAILED", "sarama": "invalid credentials with SASL mechanism"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    with GuardedNode(tmp_path_factory.mktemp("guarded")) as node:
        yield node


@pytest.fixture(params=["franz", "sarama"])
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(client: str, go_program: Callable[[str], Path]) -> Run:
    program = go_program(client)

    def call(reach: Reach, mode: str, topic: str, *, stdin: Any = None) -> subprocess.CompletedProcess[str]:
        command = [str(program), *flags(reach, mode=mode, topic=topic)]
        return subprocess.run(
            command, input=json.dumps(stdin), capture_output=True, text=True, timeout=60, check=False
        )

    return call


def flags(reach: Reach, **more: str) -> list[str]:
    return [part for name, value in {**reach.go(), **more}.items() for part in (f"-{name}", value)]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_go_client_produces_and_consumes(node: GuardedNode, client: str, run: Run, way: Way) -> None:
    topic = f"ann-{client}-{way}".replace(" ", "-")
    node.create_topic(topic)
    produced = run(node.reach(way), "produce", topic, stdin=[RECORD])
    assert produced.returncode == 0, produced.stderr
    consumed = run(node.reach(way), "consume", topic)
    assert consumed.returncode == 0, consumed.stderr
    assert [record["value"] for record in json.loads(consumed.stdout)] == ["value"]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_wrong_password_token_or_certificate_is_refused(
    node: GuardedNode, client: str, run: Run, way: Way
) -> None:
    refused = run(node.reach(way, wrong=True), "produce", "ann-refused", stdin=[RECORD])
    assert refused.returncode != 0
    assert refusal(client, way) in refused.stderr


def refusal(client: str, way: Way) -> str:
    """franz-go does not send the message that follows a refused token, so it is not told the code."""
    if not way.mechanism:
        return "unknown certificate authority"
    if (client, way.mechanism) == ("franz", "OAUTHBEARER"):
        return "unexpected data in oauth response"
    return REFUSED_LOGIN[client]


def test_a_missing_acl_is_told_by_its_code(node: GuardedNode, client: str, run: Run) -> None:
    topic = f"else-{client}"
    node.create_topic(topic)
    for mode in ("produce", "consume"):
        refused = run(node.reach(LOGIN), mode, topic, stdin=[RECORD])
        assert refused.returncode != 0
        assert TOPIC_DENIED[client] in refused.stderr


def test_a_group_acl_decides_who_joins(
    node: GuardedNode, client: str, run: Run, go_program: Callable[[str], Path]
) -> None:
    topic = f"ann-group-{client}"
    node.create_topic(topic)
    assert run(node.reach(LOGIN), "produce", topic, stdin=[RECORD]).returncode == 0

    def member(group: str) -> subprocess.Popen[str]:
        command = [str(go_program(client)), *flags(node.reach(LOGIN), mode="group", topic=topic, group=group)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    with member(f"ann-{client}") as allowed:
        assert allowed.stdout is not None
        lines = iter(allowed.stdout.readline, "")
        assert next(line for line in lines if line.startswith("record")) == "record 0 0 value\n"
        allowed.communicate("")  # leaves
    with member(f"else-{client}") as denied:
        assert denied.wait(60) != 0
        assert denied.stderr is not None
        assert GROUP_DENIED[client] in denied.stderr.read()
