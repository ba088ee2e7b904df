"""Where ZooKeeper's jars come from: ZOOKEEPER_HOME, Maven once into the user's cache, Debian's package.

Knows nothing of running a server; read zookeeper.py next.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.maven import cache_root, find_java, java_is_missing, resolve_with_maven

ZOOKEEPER_VERSION = "3.9.5"
_PRODUCT = f"ZooKeeper {ZOOKEEPER_VERSION}"
_NONE = (
    "no ZooKeeper: set ZOOKEEPER_HOME, install Maven (mvn) to have its jars fetched, "
    "or install Debian's package zookeeper"
)
_ARTIFACTS = (
    f"org.apache.zookeeper:zookeeper:{ZOOKEEPER_VERSION}",
    "io.dropwizard.metrics:metrics-core:4.1.12.1",  # these two are needed to run, and not declared
    "org.xerial.snappy:snappy-java:1.1.10.5",
    "org.slf4j:slf4j-simple:2.0.13",  # gives the server's log lines somewhere to go
)
_DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperJars:
    class_path: str
    java: str


def find_zookeeper_jars() -> ZooKeeperJars:
    """The jars, fetched on first use. Raises EngineError that says what is missing."""
    java, _ = find_java()
    home = os.environ.get("ZOOKEEPER_HOME")
    if home:
        folder = Path(home) / "lib"
        if not folder.is_dir():
            raise EngineError(f"ZOOKEEPER_HOME={home} has no folder `lib`: point it at an unpacked ZooKeeper")
        return ZooKeeperJars(class_path=str(folder / "*"), java=java)
    folder = _cached_libs()
    if not folder.is_dir():
        try:
            resolve_with_maven(folder, _ARTIFACTS, _PRODUCT, _NONE)
        except EngineError:
            if _DEBIAN_JAR.exists():  # old, but good enough for tests
                return ZooKeeperJars(class_path=str(_DEBIAN_JAR), java=java)
            raise
    return ZooKeeperJars(class_path=str(folder / "*"), java=java)


def why_zookeeper_is_missing() -> str | None:
    """None when jars can be had, else the reason: what a skipped test prints."""
    if reason := java_is_missing():
        return reason
    if os.environ.get("ZOOKEEPER_HOME") or _cached_libs().is_dir() or _DEBIAN_JAR.exists():
        return None
    return None if shutil.which("mvn") else _NONE


def _cached_libs() -> Path:
    return cache_root() / f"zookeeper-{ZOOKEEPER_VERSION}" / "libs"
