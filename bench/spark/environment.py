# SPDX-License-Identifier: Apache-2.0
"""The environment of the peer: PySpark 4.0.0 in an environment of its own, and its Kafka connector's jars.

Made on first use, kept in build/ and in the user's cache folder. That PySpark sees this environment's
packages behind its own, so that ours runs under both versions. Read next: processes.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.maven import cache_root, java_is_missing, resolve_with_maven

PEER_VERSION = "4.0.0"
_ROOT = Path(__file__).resolve().parents[2]
_ENVIRONMENT = _ROOT / "build" / f"pyspark-{PEER_VERSION}"
_CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{PEER_VERSION}"
_PRODUCT = f"Spark's Kafka connector {PEER_VERSION}"
_ELSE = f"no {_PRODUCT}: install Maven (mvn) to have its jars fetched"
_INSTALL_TIMEOUT_S = 900


def peer_python() -> Path:
    """The Python that has PySpark 4.0.0. EngineError says why it cannot be had."""
    python = _ENVIRONMENT / "bin" / "python"
    stamp = _ENVIRONMENT / ".installed"
    if not stamp.exists():
        shutil.rmtree(_ENVIRONMENT, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(_ENVIRONMENT))
        install = ("install", "--quiet", "--disable-pip-version-check", f"pyspark=={PEER_VERSION}")
        _run(str(python), "-m", "pip", *install)
        _see_this_environment(python)
        stamp.touch()
    return python


def connector_jars() -> list[Path]:
    """Those that PySpark does not bring along itself, fetched on first use."""
    folder = _jar_folder()
    if not folder.is_dir():
        resolve_with_maven(folder, [_CONNECTOR], _PRODUCT, _ELSE)
    brought = {_artifact(jar) for jar in _packages(peer_python()).glob("pyspark/jars/*.jar")}
    return [jar for jar in sorted(folder.glob("*.jar")) if _artifact(jar) not in brought]


def why_connector_is_missing() -> str | None:
    """None when it can be had, else the reason: what a skipped test prints."""
    if reason := java_is_missing():
        return reason
    if not _jar_folder().is_dir() and shutil.which("mvn") is None:
        return _ELSE
    try:
        connector_jars()
    except EngineError as error:
        return str(error)
    return None


def _jar_folder() -> Path:
    return cache_root() / f"spark-kafka-{PEER_VERSION}" / "libs"


def _artifact(jar: Path) -> str:
    return re.sub(r"-\d[\w.]*\.jar$", "", jar.name)


def _packages(python: Path) -> Path:
    (folder,) = python.parents[1].glob("lib/python*/site-packages")
    return folder


def _see_this_environment(python: Path) -> None:
    """Behind its own packages: its PySpark goes first. An editable install's sources have to be named."""
    seen = [sysconfig.get_path("purelib"), str(_ROOT / "src")]
    (_packages(python) / "headrace_bench.pth").write_text("".join(f"{folder}\n" for folder in seen))


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"PySpark {PEER_VERSION} was not installed in time: is pip online?") from error
    if done.returncode != 0:
        raise EngineError(f"PySpark {PEER_VERSION} could not be installed:\n{done.stderr[-2000:]}")
