# SPDX-License-Identifier: Apache-2.0
"""`make java`, part of `make setup`: installs a Java runtime without a question, or says how."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = "Without Java, Spark, ZooKeeper and Apache Kafka are left out of the demo and the tests."


def make_java(programs: Path, *, as_root: str) -> subprocess.CompletedProcess[str]:
    """With `found` as the Java that is looked for, in a folder that comes first on the PATH."""
    outside_make = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment = {**outside_make, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    command = ["make", "java", f"FIND_JAVA={programs}/found", f"AS_ROOT={as_root}"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def fake_apt(folder: Path, *, has: str) -> None:
    """Notes what it is asked for, and installs one package only."""
    found = folder / "found"
    install = f'case "$*" in update*) ;; *{has}) touch {found}; chmod +x {found} ;; *) exit 100 ;; esac'
    write_program(folder / "apt-get", f'echo "$@" >> {folder}/asked\n{install}')


def test_where_there_is_one_nothing_is_installed(tmp_path: Path) -> None:
    fake_apt(tmp_path, has="any")
    write_program(tmp_path / "found", "true")
    done = make_java(tmp_path, as_root="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "asked").exists()


def test_the_first_package_that_can_be_had_is_installed(tmp_path: Path) -> None:
    fake_apt(tmp_path, has="openjdk-17-jre-headless")
    done = make_java(tmp_path, as_root="")
    assert done.returncode == 0
    assert LEFT_OUT not in done.stdout
    packages = [line.split()[-1] for line in (tmp_path / "asked").read_text().splitlines()[1:]]
    assert packages == ["openjdk-21-jre-headless", "openjdk-17-jre-headless"]


def test_without_install_rights_the_skipped_tests_are_named(tmp_path: Path) -> None:
    fake_apt(tmp_path, has="any")
    done = make_java(tmp_path, as_root="false")
    assert done.returncode == 0, "setup goes on"
    assert done.stdout.splitlines()[-1] == LEFT_OUT
    assert not (tmp_path / "asked").exists()
