# SPDX-License-Identifier: Apache-2.0
"""Finding ZooKeeper, or saying clearly what is missing; and what an ensemble is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.cluster.engines import zookeeper_jars
from headrace.cluster.engines.engine import EngineError, free_ports
from headrace.cluster.engines.zookeeper import prepare_zookeeper, serves
from headrace.cluster.engines.zookeeper_jars import (
    ZooKeeperJars,
    find_zookeeper_jars,
    why_zookeeper_is_missing,
)


@pytest.fixture
def nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java, but no jars from anywhere."""
    java = tmp_path / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'java version \"17\"'\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java-home"))
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr(zookeeper_jars, "find_spec", lambda name: None)
    monkeypatch.setattr(zookeeper_jars, "_DEBIAN_JAR", tmp_path / "zookeeper.jar")


def test_the_jars_in_pyspark_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    names = [Path(jar).name for jar in zookeeper_jars._class_path().split(os.pathsep)]
    assert any(name.startswith("zookeeper-3.9") for name in names)
    assert len(names) < 60, "only what a server loads"


@pytest.mark.usefixtures("nothing_there")
def test_without_jars_the_reason_names_the_ways_to_have_them() -> None:
    reason = why_zookeeper_is_missing()
    assert reason is not None
    assert all(word in reason for word in ("ZOOKEEPER_HOME", "pip install 'headrace[spark]'"))
    with pytest.raises(EngineError, match="no ZooKeeper"):
        find_zookeeper_jars()


@pytest.mark.usefixtures("nothing_there")
def test_debians_jar_is_taken_without_pyspark(tmp_path: Path) -> None:
    (tmp_path / "zookeeper.jar").touch()
    assert why_zookeeper_is_missing() is None
    assert find_zookeeper_jars().class_path == str(tmp_path / "zookeeper.jar")


@pytest.mark.usefixtures("nothing_there")
def test_zookeeper_home_is_used_and_a_wrong_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    with pytest.raises(EngineError, match=str(tmp_path)):
        find_zookeeper_jars()
    (tmp_path / "lib").mkdir()
    assert find_zookeeper_jars().class_path == str(tmp_path / "lib" / "*")


def test_each_server_of_an_ensemble_knows_all_and_its_own_number(tmp_path: Path) -> None:
    jars = ZooKeeperJars(class_path="x", java="java")
    ensemble = prepare_zookeeper(tmp_path, servers=3, jars=jars, settings={"tickTime": "777"})
    assert len(set(ensemble.hosts.split(","))) == 3
    for number in (1, 2, 3):
        folder = tmp_path / f"server-{number}"
        assert (folder / "data" / "myid").read_text() == f"{number}\n"
        lines = (folder / "zoo.cfg").read_text().splitlines()
        assert sum(line.startswith("server.") for line in lines) == 3
        assert {"tickTime=777", "admin.enableServer=false"} <= set(lines)


def test_nobody_serves_on_a_free_port() -> None:
    (port,) = free_ports(1)
    assert not serves(port)
