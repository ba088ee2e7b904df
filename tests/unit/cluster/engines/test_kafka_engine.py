# SPDX-License-Identifier: Apache-2.0
"""Finding Apache Kafka, or saying clearly what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cluster.engines import maven
from headrace.cluster.engines.engine import EngineError, PreparedNode, answers, free_ports
from headrace.cluster.engines.kafka_jars import find_kafka_jars, why_kafka_is_missing
from headrace.java import find_java


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'java version \"17\"'\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java-home"))


@pytest.mark.usefixtures("fake_java")
def test_kafka_home_is_used_and_its_version_is_read_from_the_jar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.3.0.jar").touch()
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    jars = find_kafka_jars()
    assert (jars.version, jars.java_version) == ("4.3.0", 'java version "17"')
    assert jars.class_path == str(tmp_path / "libs" / "*")
    assert why_kafka_is_missing() is None


@pytest.mark.usefixtures("fake_java")
@pytest.mark.parametrize("make_libs", [False, True])
def test_a_wrong_kafka_home_is_named(
    make_libs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if make_libs:
        (tmp_path / "libs").mkdir()
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    with pytest.raises(EngineError, match=str(tmp_path)):
        find_kafka_jars()


def test_without_java_the_reason_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maven, "find_java_home", lambda: find_java({"PATH": ""}, installed=()))
    reason = why_kafka_is_missing()
    assert reason is not None
    assert reason.startswith("Java 17 or later is needed, and none was found; install it (")
    with pytest.raises(EngineError, match="Java 17 or later is needed"):
        find_kafka_jars()


def test_a_process_that_dies_before_it_is_ready_shows_the_end_of_its_log(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    prepared = PreparedNode(
        engine="kafka",
        command=("/bin/sh", "-c", "echo the disk is on fire; exit 3"),
        environment={},
        data_dir=tmp_path,
        log_path=tmp_path / "server.log",
        host="127.0.0.1",
        port=port,
    )
    with pytest.raises(EngineError, match=r"(?s)exit code 3.*the disk is on fire"):
        prepared.launch()


def test_nobody_answers_on_a_free_port() -> None:
    (port,) = free_ports(1)
    assert not answers("127.0.0.1", port)
