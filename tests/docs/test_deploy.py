"""The files of deploy/ name settings, flags and variables that exist, and nodes that would start."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from headrace.cli.serve_plainly import read_plainly
from headrace.config import load_config
from headrace.config.coordination_address import ZooKeeperAddress

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
OUTSIDE = {"ME": "2", "HOST1": "h1", "HOST2": "h2", "HOST3": "h3", "MY_ADDRESS": "h2"}


def _filled(text: str) -> str:
    return re.sub(r"\$\{(\w+)(:\?[^}]*)?\}", lambda match: OUTSIDE[match[1]], text)


def _service(name: str) -> dict:
    return yaml.safe_load(_filled((DEPLOY / "compose.three-hosts.yaml").read_text()))["services"][name]


def test_the_unit_runs_a_command_that_exists_with_flags_that_exist():
    unit = (DEPLOY / "headrace.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    options = read_plainly(shlex.split(line)[1:])
    assert options is not None
    assert options.from_env


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
    assert int(re.search(r"minSessionTimeout=(\d+)", extra)[1]) <= load_config(None, {}, None)[
        "broker.session.timeout.ms"
    ]


def test_the_image_has_what_the_store_of_several_hosts_needs():
    assert '".[zookeeper]"' in (ROOT / "Dockerfile").read_text()
