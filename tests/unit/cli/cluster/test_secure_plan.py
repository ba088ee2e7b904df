# SPDX-License-Identifier: Apache-2.0
"""What `headrace cluster up --secure` makes before the first node starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.cli.cluster.secure import next_commands, secure_plan
from headrace.client.client_config import configured_security
from headrace.client.security_settings import PasswordLogin
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterError
from headrace.cluster.security import ADMIN, USER, SecurityFolder, plan_security
from headrace.cluster.supervisor import plan_cluster


def planned(folder, coordination=None):
    return plan_cluster(
        engine="headrace", nodes=1, coordination=coordination, settings={}, folder=folder, first_port=9092
    )


@pytest.fixture
def folder(tmp_path):
    return ClusterFolder(tmp_path / "my cluster")


@pytest.fixture
def plan(folder):
    pytest.importorskip("cryptography")
    return secure_plan(planned(folder), folder)


def login(path):
    security = configured_security(path)
    assert security.protocol == "SASL_SSL"
    assert isinstance(security.login, PasswordLogin)
    return security.login.mechanism, security.login.user, security.login.password.reveal()


@pytest.mark.parametrize("user", [ADMIN, USER])
def test_both_client_files_have_the_login_and_trust_the_authority(plan, user):
    files = SecurityFolder(Path(plan.security))
    password = files.password(user).read_text().strip()
    assert len(password) >= 32
    expected = ("SCRAM-SHA-512", user, password)
    assert login(files.client_properties(user)) == login(files.librdkafka(user)) == expected
    assert configured_security(files.librdkafka(user)).tls.authorities_file == str(files.authority)
    configured_security(files.client_properties(user)).security()


def test_the_users_are_in_the_store_before_any_node_runs(plan, capsys):
    assert main.run(["users", "list", "--coordination", plan.coordination]) == 0
    listed = capsys.readouterr().out.splitlines()[1:]
    assert [line.split("\t")[0] for line in listed] == [ADMIN, USER]


def test_commands_connect_as_the_admin(plan, folder):
    assert plan_security(plan).login.user == ADMIN
    folder.create(plan)
    assert folder.read() == plan


def test_the_next_commands_quote_the_path_and_have_no_password(plan):
    lines = "\n".join(next_commands(plan))
    files = SecurityFolder(Path(plan.security))
    assert f"--command-config '{files.client_properties(ADMIN)}'" in lines
    assert files.password(ADMIN).read_text().strip() not in lines


def test_a_store_that_has_such_a_user_is_not_taken_over(plan, tmp_path):
    other = ClusterFolder(tmp_path / "other")
    with pytest.raises(ClusterError, match="has a user 'admin' already"):
        secure_plan(planned(other, plan.coordination), other)
    assert not SecurityFolder(other.path / "security").client_properties(ADMIN).exists()


def test_the_missing_package_is_named_before_anything_is_made(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert main.run(["cluster", "up", "--secure", "--dir", str(folder.path)]) == 1
    assert "pip install headrace[certs]" in capsys.readouterr().err
    assert not folder.path.exists()
