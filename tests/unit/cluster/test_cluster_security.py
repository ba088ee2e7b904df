# SPDX-License-Identifier: Apache-2.0
"""The plan of a secure cluster, and how its nodes are started."""

from __future__ import annotations

import json
import stat
from dataclasses import replace

import pytest

from headrace.cli.certs.folder import make_folder
from headrace.cli.cluster.secure import write_client_files
from headrace.cluster.engines.headrace import HeadraceEngine, properties_text
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterPlan, Member, plan_of
from headrace.cluster.security import ADMIN, SecurityFolder
from headrace.config.properties import parse_properties

OPEN = ClusterPlan(
    engine="headrace", coordination="sqlite:/c", cluster_id="abc", members=(Member(node_id=0, port=1),)
)
SETTINGS = {"ssl.keystore.key": "-----BEGIN\nabc\n-----END", "ssl.key.password": "a\\b=c #d"}


def test_only_a_secure_plan_is_refused_by_earlier_releases():
    secure = replace(OPEN, security="/s")
    assert (OPEN.document()["format"], secure.document()["format"]) == (1, 2)
    assert plan_of(secure.document()) == secure
    earlier = OPEN.document()
    del earlier["security"]
    assert plan_of(earlier) == OPEN


def test_the_plan_is_private_since_settings_may_be_secret(tmp_path):
    folder = ClusterFolder(tmp_path)
    folder.create(OPEN)
    plan = tmp_path / "cluster.json"
    assert stat.S_IMODE(plan.stat().st_mode) == 0o600
    assert json.loads(plan.read_text())["engine"] == "headrace"


def test_values_of_several_lines_are_read_as_they_were_given():
    read = parse_properties(properties_text(SETTINGS), "here")
    assert {entry.key: entry.value for entry in read} == SETTINGS


@pytest.mark.parametrize("times", [1, 2])
def test_settings_of_a_secure_node_are_in_a_private_file_not_in_its_command(tmp_path, times):
    files = SecurityFolder(tmp_path / "security")
    make_folder(files.path)
    write_client_files(ADMIN, "the password", "127.0.0.1:1", files)
    plan = replace(OPEN, security=str(files.path), settings=SETTINGS)
    for _ in range(times):
        prepared = HeadraceEngine().prepare_member(plan, plan.members[0], tmp_path)
    file = tmp_path / "server.properties"
    command = " ".join(prepared.command)
    assert f"--config {file}" in command
    assert "main=127.0.0.1:1,protocol=SASL_SSL" in command
    assert not any(value in command for value in (*SETTINGS.values(), "the password"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert prepared.security.protocol == "SASL_SSL"
