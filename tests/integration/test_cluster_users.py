# SPDX-License-Identifier: Apache-2.0
"""A user that one node has acknowledged is known to every node, also when no node has run before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headrace.client.sasl import ScramSha256
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.raw_client import RawClient
from tests.harness.live.secured_node import SecuredNode


def described(bootstrap: str, name: str) -> ErrorCode:
    with RawClient(bootstrap) as client:
        reply = client.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": name}]})
        code: ErrorCode = reply.results[0].error_code
        return code


def test_every_node_knows_a_user_when_its_change_is_acknowledged(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, nodes=3) as cluster:
        addresses = cluster.bootstrap.split(",")
        for number, through in enumerate(addresses * 3):
            name = f"user-{number}"
            credential = {"iterations": 4096, "salt": b"s", "salted_password": bytes(32)}
            change = {"name": name, "mechanism": 1, **credential}
            with RawClient(through) as client:
                fields = {"deletions": [], "upsertions": [change]}
                (result,) = client.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, fields).results
                assert result.error_code is ErrorCode.none
            assert [described(address, name) for address in addresses] == [ErrorCode.none] * 3


def test_the_first_user_is_added_before_the_node_runs(tmp_path: Path) -> None:
    node = SecuredNode(tmp_path)
    (tmp_path / "secret").write_text("s3cret\n")
    data, file = str(node.process.data), str(tmp_path / "secret")
    add = ["users", "add", "ann", "--data", data, "--password-file", file]
    subprocess.run([sys.executable, "-m", "headrace.cli.main", *add], check=True, timeout=60)
    with node:
        users = [sys.executable, "-m", "headrace.cli.main", "users", "list", "--bootstrap", node.open]
        listed = subprocess.run(users, check=True, capture_output=True, text=True, timeout=60).stdout
        assert "ann\tSCRAM-SHA-256, SCRAM-SHA-512" in listed
        with RawClient(node.secure) as client:
            client.call(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
            messages = ScramSha256("ann", "s3cret").conversation()
            reply = client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": next(messages)})
            final = messages.send(bytes(reply.auth_bytes))
            reply = client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": final})
            assert reply.error_code is ErrorCode.none


def test_a_user_is_added_changed_and_removed_while_the_node_runs(tmp_path: Path) -> None:
    """By the Kafka API and directly in the store: the node sees both."""
    with SecuredNode(tmp_path) as node:
        (tmp_path / "secret").write_text("s3cret\n")
        secret = ["--password-file", str(tmp_path / "secret")]
        store, cluster = ["--data", str(node.process.data)], ["--bootstrap", node.open]
        for command, code in (
            (["add", "ann", *secret, *cluster], ErrorCode.none),
            (["password", "ann", *secret, *store], ErrorCode.none),
            (["remove", "ann", "--yes", *cluster], ErrorCode.resource_not_found),
        ):
            program = [sys.executable, "-m", "headrace.cli.main", "users", *command]
            subprocess.run(program, check=True, timeout=60)
            assert described(node.open, "ann") is code
