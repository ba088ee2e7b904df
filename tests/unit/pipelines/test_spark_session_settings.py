"""What a session is given, and the Java it runs on: found, too old, or missing."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.pipelines.java import find_java
from headrace.pipelines.pack import DESCRIPTION, this_python
from headrace.pipelines.session import default_settings, spark_session


def make_java(home: Path, version: str) -> Path:
    program = home / "bin/java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return home


def test_the_first_java_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    make_java(tmp_path / "jvm/a-8", "1.8.0_402")
    new = make_java(tmp_path / "jvm/b-21", "21.0.1")
    environment = {"JAVA_HOME": str(old), "PATH": ""}
    assert find_java(environment, installed=tmp_path / "jvm") == new
    assert find_java({"PATH": str(new / "bin")}, installed=tmp_path) == new


def test_a_java_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(ClientError, match=r"needs Java 17 or later, and only Java 8 in .*old was found"):
        find_java({"JAVA_HOME": str(old), "PATH": ""}, installed=tmp_path / "none")


def test_a_missing_java_names_the_package(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"none was found; install it .*openjdk-17-jre-headless"):
        find_java({"PATH": str(tmp_path)}, installed=tmp_path / "none")


@pytest.mark.parametrize(("master", "shuffles"), [("local", "2"), ("local[3]", "6"), ("local[4,2]", "8")])
def test_shuffles_follow_the_cores_of_this_machine(master: str, shuffles: str) -> None:
    assert default_settings(master, ui=False)["spark.sql.shuffle.partitions"] == shuffles


def test_a_python_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark runs it under one name on the driver and on the executors."""
    monkeypatch.setenv("PYSPARK_PYTHON", "python3.99")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr("headrace.pipelines.session.find_java", lambda: tmp_path)
    pack = tmp_path / "pack.zip"
    with zipfile.ZipFile(pack, "w") as made:
        made.writestr(DESCRIPTION, json.dumps({"python": this_python()}))
    with pytest.raises(ClientError, match=r"no python3\.99 on this machine, .*: python=, --python"):
        spark_session("spark://127.0.0.1:1", pack=pack)


def test_a_cluster_decides_for_itself() -> None:
    chosen = default_settings("spark://host:7077", ui=True)
    assert "spark.sql.shuffle.partitions" not in chosen
    assert "spark.driver.host" not in chosen
    assert chosen["spark.ui.enabled"] == "true"
