# SPDX-License-Identifier: Apache-2.0
"""Finds Apache Kafka's jars: in KAFKA_HOME, or downloaded once with Maven into the user's cache.

Read next: kafka.py.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.maven import cache_root, find_java, java_is_missing, resolve_with_maven

KAFKA_VERSION = "4.3.0"
_PRODUCT = f"Apache Kafka {KAFKA_VERSION}"
_ELSE = "no Apache Kafka: set KAFKA_HOME, or install Maven (mvn) to have its jars fetched"

_BROKER_AND_TOOLS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # log output of the broker
)
_APPLICATIONS = (
    f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
    f"org.apache.kafka:connect-file:{KAFKA_VERSION}",
)
_MIRROR_MAKER = (f"org.apache.kafka:connect-mirror:{KAFKA_VERSION}",)


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
    """The jars, downloaded on first use; EngineError says what is missing."""
    java, java_version = find_java()
    home = os.environ.get("KAFKA_HOME")
    folder = Path(home) / "libs" if home else _cached_libs()
    if home and not folder.is_dir():
        raise EngineError(f"KAFKA_HOME={home} has no folder `libs`: point it at an unpacked Apache Kafka")
    if not home and not folder.is_dir():
        resolve_with_maven(folder, _BROKER_AND_TOOLS, _PRODUCT, _ELSE)
    return KafkaJars(folder=folder, version=_version_in(folder), java=java, java_version=java_version)


def application_class_path(jars: KafkaJars) -> str:
    """The jars plus Kafka Streams and Connect's file connectors."""
    return _extended(jars, "applications", _APPLICATIONS)


def mirror_maker_class_path(jars: KafkaJars) -> str:
    """The jars plus MirrorMaker 2 and the Connect worker that it runs in."""
    return _extended(jars, "mirror-maker", _MIRROR_MAKER)


def _extended(jars: KafkaJars, name: str, artifacts: Sequence[str]) -> str:
    """An unpacked Apache Kafka has them; otherwise they are downloaded on first use."""
    if os.environ.get("KAFKA_HOME"):
        return jars.class_path
    folder = cache_folder() / name
    if not folder.is_dir():
        resolve_with_maven(folder, artifacts, _PRODUCT, _ELSE)
    return os.pathsep.join((jars.class_path, str(folder / "*")))


def why_kafka_is_missing() -> str | None:
    """None when the jars are available, else the reason, for skipped tests."""
    if reason := java_is_missing():
        return reason
    if os.environ.get("KAFKA_HOME") or _cached_libs().is_dir():
        return None
    if shutil.which("mvn") is None:
        return _ELSE
    return None


def cache_folder() -> Path:
    return cache_root() / f"kafka-{KAFKA_VERSION}"


def _cached_libs() -> Path:
    return cache_folder() / "libs"


def _version_in(folder: Path) -> str:
    for jar in folder.glob("kafka_2.*-*.jar"):
        match = re.fullmatch(r"kafka_2\.\d+-(\d[\w.]*?)\.jar", jar.name)
        if match:
            return match[1]
    raise EngineError(f"{folder} has no kafka_2.13-*.jar: is it Apache Kafka's `libs` folder?")
