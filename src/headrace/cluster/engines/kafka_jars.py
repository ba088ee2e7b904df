"""Where Apache Kafka's jars come from: KAFKA_HOME, or Maven once into the user's cache folder.

Knows nothing of running a broker; read kafka.py next.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.cluster.engines.engine import EngineError, first_line

KAFKA_VERSION = "4.3.0"
_MAVEN_TIMEOUT_SECONDS = 900

_BROKER_AND_TOOLS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # gives the broker's log lines somewhere to go
)
_APPLICATIONS = (
    f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-file:{KAFKA_VERSION}",
)

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId>
  <artifactId>apache-kafka-peer</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaJars:
    folder: Path
    version: str
    java: str
    java_version: str

    @property
    def class_path(self) -> str:
        return str(self.folder / "*")


def find_kafka_jars() -> KafkaJars:
    """The jars, fetched on first use. Raises EngineError that says what is missing."""
    java, java_version = _find_java()
    home = os.environ.get("KAFKA_HOME")
    folder = Path(home) / "libs" if home else _cached_libs()
    if home and not folder.is_dir():
        raise EngineError(f"KAFKA_HOME={home} has no folder `libs`: point it at an unpacked Apache Kafka")
    if not home and not folder.is_dir():
        _resolve_with_maven(folder, _BROKER_AND_TOOLS)
    return KafkaJars(folder=folder, version=_version_in(folder), java=java, java_version=java_version)


def application_class_path(jars: KafkaJars) -> str:
    """Kafka Streams and Connect's file connectors besides: a distribution has them, Maven fetches them."""
    if os.environ.get("KAFKA_HOME"):
        return jars.class_path
    folder = cache_folder() / "applications"
    if not folder.is_dir():
        _resolve_with_maven(folder, _APPLICATIONS)
    return os.pathsep.join((jars.class_path, str(folder / "*")))


def why_kafka_is_missing() -> str | None:
    """None when jars can be had, else the reason: what a skipped test prints."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "no Java: install a Java 17 runtime or set JAVA_HOME"
    if os.environ.get("KAFKA_HOME") or _cached_libs().is_dir():
        return None
    if shutil.which("mvn") is None:
        return "no Apache Kafka: set KAFKA_HOME, or install Maven (mvn) to have its jars fetched"
    return None


def _find_java() -> tuple[str, str]:
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else "java"
    version = first_line([java, "-version"])
    if version is None:
        raise EngineError("no Java: install a Java 17 runtime or set JAVA_HOME")
    return java, version


def cache_folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "headrace" / f"kafka-{KAFKA_VERSION}"


def _cached_libs() -> Path:
    return cache_folder() / "libs"


def _resolve_with_maven(folder: Path, artifacts: Sequence[str]) -> None:
    """`artifacts` as group:name:version; with all that they depend on."""
    if shutil.which("mvn") is None:
        raise EngineError("no Apache Kafka: set KAFKA_HOME, or install Maven (mvn) to have its jars fetched")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        dependencies = "\n".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
        (Path(work) / "pom.xml").write_text(_POM.format(dependencies=dependencies))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"]
        try:
            done = subprocess.run(
                command, cwd=work, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError("Maven did not fetch Apache Kafka's jars in time: is it online?") from error
        if done.returncode != 0:
            raise EngineError(f"Maven could not fetch Apache Kafka {KAFKA_VERSION}:\n{done.stdout[-2000:]}")
        try:
            (Path(work) / "libs").rename(folder)  # whole or not at all
        except OSError:
            if not folder.is_dir():  # else another process was quicker
                raise


def _version_in(folder: Path) -> str:
    for jar in folder.glob("kafka_2.*-*.jar"):
        match = re.fullmatch(r"kafka_2\.\d+-(\d[\w.]*?)\.jar", jar.name)
        if match:
            return match[1]
    raise EngineError(f"{folder} holds no kafka_2.13-*.jar: is it Apache Kafka's `libs` folder?")
