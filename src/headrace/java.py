# SPDX-License-Identifier: Apache-2.0
"""Finds a Java runtime for Spark, ZooKeeper and Apache Kafka; `python -m headrace.java` says which one.

Read next: pipelines/spark_session/session.py, cluster/engines/zookeeper_jars.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path

from headrace.client.errors import ClientError

LEAST_JAVA = 17
_INSTALLED = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "C:/Program Files/Eclipse Adoptium/*",
)
"""Where Linux distributions, macOS, Homebrew and Windows install it, on the PATH or not."""
_INSTALL_COMMANDS = {
    "apt-get": "apt-get install openjdk-21-jre-headless, or openjdk-17-jre-headless",
    "dnf": "dnf install java-21-openjdk-headless",
    "brew": "brew install openjdk@21",
    "winget": "winget install EclipseAdoptium.Temurin.21.JRE",
}
_VERSION = re.compile(r'version "(\d+)')
_TIMEOUT_S = 20


def find_java(environment: Mapping[str, str] = os.environ, *, installed: Sequence[str] = _INSTALLED) -> Path:
    """Home of the first Java that is recent enough: JAVA_HOME, the PATH, then known locations.

    ClientError names what was found instead and the package to install.
    """
    too_old = []
    for home in dict.fromkeys(_homes(environment, installed)):
        major = java_version(home / "bin/java")
        if major is None:
            continue
        if major >= LEAST_JAVA:
            return home
        too_old.append(f"Java {major} in {home}")
    found = f"only {', '.join(too_old)} was found" if too_old else "none was found"
    raise ClientError(
        f"Java {LEAST_JAVA} or later is needed, and {found}",
        next_step=f"install it ({install_command()}), or set JAVA_HOME",
    )


def install_command() -> str:
    """The command that installs Java here; where the package manager is unknown, all that are known."""
    here = (command for manager, command in _INSTALL_COMMANDS.items() if shutil.which(manager))
    return next(here, "; ".join(_INSTALL_COMMANDS.values()))


def java_version(program: Path) -> int | None:
    """The major version; None when it does not run."""
    try:
        ran = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(ran.stderr + ran.stdout)
    if match is None:
        return None
    major = int(match[1])
    return 8 if major == 1 else major  # before Java 9: "1.8"


def _homes(environment: Mapping[str, str], installed: Sequence[str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    program = shutil.which("java", path=environment.get("PATH", ""))
    if program is not None:
        yield Path(program).resolve().parents[1]
    for pattern in installed:
        found = (Path(each) for each in glob(pattern))
        yield from sorted((each for each in found if not each.is_symlink()), reverse=True)


def main() -> str | None:
    """Prints where it is; why there is none, for the exit code."""
    try:
        print(find_java())
    except ClientError as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main())
