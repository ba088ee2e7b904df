# SPDX-License-Identifier: Apache-2.0
"""The files of deploy/ name settings, flags and variables that exist, and nodes that would start."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli.serve_without_typer import parse_serve
from headrace.config import load_config
from headrace.config.coordination_address import ZooKeeperAddress

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
OUTSIDE = {"ME": "2", "HOST1": "h1", "HOST2": "h2", "HOST3": "h3", "MY_ADDRESS": "h2"}


def _filled(text: str) -> str:
    return re.sub(r"\$\{(\w+)(:\?[^}]*)?\}", lambda match: OUTSIDE[match[1]], text)


def _service(name: str) -> dict[str, Any]:
    return yaml.safe_load(_filled((DEPLOY / "compose.three-hosts.yaml").read_text()))["services"][name]


def test_the_unit_runs_a_command_that_exists_with_flags_that_exist():
    unit = (DEPLOY / "headrace.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    options = parse_serve(shlex.split(line)[1:])
    assert options is not None
    assert options.from_env


def _unit() -> dict[str, str]:
    lines = (DEPLOY / "headrace.service").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_the_unit_writes_where_the_node_writes_and_nowhere_else():
    unit = _unit()
    options = parse_serve(shlex.split(unit["ExecStart"])[1:])
    assert unit["ReadWritePaths"] == str(options.data) == f"/var/lib/{unit['StateDirectory']}"
    assert (unit["UMask"], unit["StateDirectoryMode"]) == ("0077", "0700")
    assert unit["User"] != "root"


def test_the_unit_gives_the_node_no_privilege():
    unit = _unit()
    assert (unit["ProtectSystem"], unit["CapabilityBoundingSet"]) == ("strict", "")
    assert unit["SystemCallFilter"] == "@system-service"
    for name in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "RestrictSUIDSGID"):
        assert unit[name] == "true", name
    assert "ProcSubset" not in unit, "/proc/sys/kernel/random/boot_id is read"


def test_systemd_finds_the_sandbox_closed(tmp_path):
    """`systemd-analyze security` rates a unit from 0 to 10; one without a sandbox has 9.6."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    command = [program, "security", "--offline=true", "--threshold=25", str(DEPLOY / "headrace.service")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-300:] + ended.stderr
    assert not re.search("unknown|ignoring", ended.stderr.lower()), ended.stderr


def _variables_of_the_unit() -> dict[str, str]:
    lines = (DEPLOY / "headrace.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("where", ["unit", "compose"])
def test_variables_make_a_node_of_a_cluster_on_zookeeper(where):
    variables = _variables_of_the_unit() if where == "unit" else _service("headrace")["environment"]
    image = {"HEADRACE_LISTENERS_ALLOW_ANONYMOUS": "true"}  # as the Dockerfile sets it
    config = load_config(None, {}, {**image, **variables})
    assert not config.notes, "nothing is ignored"
    assert isinstance(config.coordination, ZooKeeperAddress)
    assert config.coordination.hosts.count(",") == 2
    assert config.coordination.root == "/headrace"
    assert config["node.id"] == (1 if where == "unit" else 2)


def test_zookeeper_grants_the_sessions_that_nodes_ask_for():
    extra = _service("zookeeper")["environment"]["ZOO_CFG_EXTRA"]
    assert (
        int(re.search(r"minSessionTimeout=(\d+)", extra)[1])
        <= load_config(None, {}, None)["broker.session.timeout.ms"]
    )


def test_the_image_has_what_the_store_of_several_hosts_needs():
    assert '".[zookeeper]"' in (ROOT / "Dockerfile").read_text()
