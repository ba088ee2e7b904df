"""Java, and jars from Maven Central, once into the user's cache folder.

Knows no product; read kafka_jars.py and zookeeper_jars.py next.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headrace.cluster.engines.engine import EngineError, first_line

_TIMEOUT_SECONDS = 900
_NO_JAVA = "no Java: install a Java 17 runtime or set JAVA_HOME"

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
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else "java"
    version = first_line([java, "-version"])
    if version is None:
        raise EngineError(_NO_JAVA)
    return java, version


def java_is_missing() -> str | None:
    """The reason, as a skipped test prints it."""
    return _NO_JAVA if shutil.which("java") is None and not os.environ.get("JAVA_HOME") else None


def cache_root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"


def resolve_with_maven(folder: Path, artifacts: Sequence[str], product: str, without_maven: str) -> None:
    """`artifacts` as group:name:version; with all that they depend on, into `folder`."""
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
            (Path(work) / "libs").rename(folder)  # whole or not at all
        except OSError:
            if not folder.is_dir():  # else another process was quicker
                raise
