# SPDX-License-Identifier: Apache-2.0
"""The Java that is found, too old, or missing, and the command that installs one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.java import find_java, install_command


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
    installed = [str(tmp_path / "jvm/*")]
    assert find_java({"JAVA_HOME": str(old), "PATH": ""}, installed=installed) == new
    assert find_java({"PATH": str(new / "bin")}, installed=()) == new


def test_a_java_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(ClientError, match=r"Java 17 or later is needed, and only Java 8 in .*old was found"):
        find_java({"JAVA_HOME": str(old), "PATH": ""}, installed=())


@pytest.mark.parametrize(
    ("manager", "package"),
    [("apt-get", "openjdk-17-jre-headless"), ("dnf", "java-21-openjdk-headless"), ("brew", "openjdk@21")],
)
def test_a_missing_java_names_the_package_of_this_platform(
    manager: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / manager).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClientError, match=rf"none was found; install it \({manager} .*{package}\)"):
        find_java({"PATH": ""}, installed=())


def test_without_a_known_package_manager_all_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert all(manager in install_command() for manager in ("apt-get", "dnf", "brew", "winget"))
