# SPDX-License-Identifier: Apache-2.0
"""Finds ZooKeeper's jars: in ZOOKEEPER_HOME, those that PySpark contains, or Debian's package.

Read next: zookeeper.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.maven import find_java

_NONE = (
    "no ZooKeeper: pip install 'headrace[spark]' (PySpark contains its jars), "
    "or set ZOOKEEPER_HOME to an unpacked ZooKeeper"
)
_NEEDED = ("zookeeper", "slf4j-api", "log4j", "netty", "metrics-core", "snappy-java", "commons-cli")
"""Of PySpark's jars, what a ZooKeeper server loads."""
_DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperJars:
    class_path: str
    java: str


def find_zookeeper_jars() -> ZooKeeperJars:
    """EngineError says what is missing."""
    java, _ = find_java()
    return ZooKeeperJars(class_path=_class_path(), java=java)


def why_zookeeper_is_missing() -> str | None:
    """None when the jars and Java are available, else the reason, for skipped tests."""
    try:
        find_zookeeper_jars()
    except EngineError as error:
        return str(error)
    return None


def _class_path() -> str:
    if home := os.environ.get("ZOOKEEPER_HOME"):
        folder = Path(home) / "lib"
        if not folder.is_dir():
            raise EngineError(f"ZOOKEEPER_HOME={home} has no folder `lib`: point it at an unpacked ZooKeeper")
        return str(folder / "*")
    if jars := _jars_of_pyspark():
        return os.pathsep.join(map(str, jars))
    if _DEBIAN_JAR.exists():
        return str(_DEBIAN_JAR)
    raise EngineError(_NONE)


def _jars_of_pyspark() -> list[Path]:
    """Empty without PySpark, or with one that has no ZooKeeper."""
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        return []
    folder = Path(package.origin).parent / "jars"
    if not any(folder.glob("zookeeper-*.jar")):
        return []
    return sorted(jar for name in _NEEDED for jar in folder.glob(f"{name}-*.jar"))
