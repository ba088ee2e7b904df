# SPDX-License-Identifier: Apache-2.0
"""Finds Java and downloads jars with Maven, once into the user's cache.

Read next: kafka_jars.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headrace.client.errors import ClientError
from headrace.cluster.engines.engine import EngineError, first_line
from headrace.java import find_java as find_java_home

_TIMEOUT_SECONDS = 900

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId>
  <artifactId>peer</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def find_java() -> tuple[str, str]:
    """The program and the first line of what it says of itself."""
    try:
        program = str(find_java_home() / "bin" / "java")
    except ClientError as error:
        raise EngineError(str(error)) from error
    return program, first_line([program, "-version"]) or ""


def java_is_missing() -> str | None:
    """The reason why Java is missing, for skipped tests."""
    try:
        find_java_home()
    except ClientError as error:
        return str(error)
    return None


def cache_root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"


def resolve_with_maven(folder: Path, artifacts: Sequence[str], product: str, without_maven: str) -> None:
    """Download `artifacts` (group:name:version) with their dependencies into `folder`."""
    if shutil.which("mvn") is None:
        raise EngineError(without_maven)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        dependencies = "\n".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
        (Path(work) / "pom.xml").write_text(_POM.format(dependencies=dependencies))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"]
        try:
            done = subprocess.run(
                command, cwd=work, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"Maven did not fetch the jars of {product} in time: is it online?") from error
        if done.returncode != 0:
            raise EngineError(f"Maven could not fetch {product}:\n{done.stdout[-2000:]}")
        try:
            (Path(work) / "libs").rename(folder)  # atomic
        except OSError:
            if not folder.is_dir():  # else another process did it first
                raise
