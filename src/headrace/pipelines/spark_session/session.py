# SPDX-License-Identifier: Apache-2.0
"""Creates a Spark session with suitable defaults: Java, this environment's Python, no web UI.

All settings can be overridden. A plain session works, too: neither source nor sink depends on them.
Read next: java.py, pack.py, spark_home.py, docs/pipelines.md.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import socket
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headrace.client.errors import ClientError
from headrace.java import find_java
from headrace.pipelines.spark_session.pack import check_pack, this_python
from headrace.pipelines.spark_session.spark_home import spark_home_with_bytecode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHUFFLE_PER_CORE = 2
_TRUE, _FALSE = "true", "false"
CONNECT = "sc://"
_CONNECT_PORT = 15002
_CONNECT_TIMEOUT_S = 10
_UNPACKED = "headrace_packages"
"""Directory of the pack within an executor's working directory."""


def spark_session(
    master: str = "local[*]",
    *,
    name: str = "headrace",
    ui: bool = False,
    settings: Mapping[str, str] | None = None,
    pack: str | Path | None = None,
    python: str | None = None,
) -> SparkSession:
    """A session, or the one that runs already.

    master: `local[*]`, `local[2]`, `spark://HOST:PORT`, `yarn`, `k8s://…`; `sc://HOST:15002` is a Spark
    Connect server, which has its own Java, Python and packages.
    ui: serve Spark's web pages. settings: any of Spark's; they override ours.
    pack: the file from `headrace pipeline pack`, for a cluster whose machines lack our packages.
    python: the name of the same Python on all of its machines, this one included; `python3.11` or the like.

    ClientError says what to install when PySpark or Java is missing.
    """
    pyspark = need_pyspark()
    if master.startswith(CONNECT):
        _check_client_only(ui=ui, pack=pack, python=python)
        _check_reachable(master)
        return _connected(pyspark.SparkSession.builder.remote(master), settings or {})
    os.environ["JAVA_HOME"] = str(find_java())
    chosen = default_settings(master, ui=ui)
    if pack is not None and not _is_local(master):
        chosen |= pack_settings(Path(pack))
        _share_packages(python or _chosen_python() or f"python{this_python()}")
    else:
        # The JVM and PySpark read it at start, so a Spark setting would be too late.
        os.environ["PYSPARK_PYTHON"] = python or _chosen_python() or sys.executable
    builder = pyspark.SparkSession.builder.master(master).appName(name)
    for key, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(key, value)
    with spark_home_with_bytecode() if _runs_this_python(master, settings or {}) else nullcontext():
        session: SparkSession = builder.getOrCreate()
    from headrace.pipelines.reporting.query_metrics import install_metrics  # needs PySpark

    # It registers the formats, too. Spark discovers them, but if that fails once (a slow start, or another
    # pyspark_* package that cannot be imported) it neither reports an error nor retries.
    install_metrics(session)
    return session


def _connected(builder: Any, settings: Mapping[str, str]) -> SparkSession:
    """A session of a Spark Connect server. Only settings of Spark SQL can be changed there."""
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except ImportError as error:
        raise ClientError(
            f"Spark Connect: {str(error).splitlines()[0]}", next_step="pip install headrace[declarative]"
        ) from error
    return session


def _check_client_only(**given: object) -> None:
    named = next((name for name, value in given.items() if value), None)
    if named is not None:
        raise ClientError(
            f"{named}= is the Spark Connect server's to choose",
            next_step="leave it out, and start the server with it",
        )


def _check_reachable(address: str) -> None:
    """Spark's client tries for minutes, and says nothing."""
    place = urlsplit(address)
    host, port = place.hostname or "localhost", place.port or _CONNECT_PORT
    try:
        socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise ClientError(
            f"no Spark Connect server can be reached at {host}:{port} ({error.strerror or error})",
            next_step="start it, or name another: sc://HOST:PORT",
        ) from None


def need_pyspark() -> Any:
    """The module `pyspark.sql`; ClientError says what to install."""
    try:
        return importlib.import_module("pyspark.sql")
    except ModuleNotFoundError as error:
        raise ClientError(
            f"{error.name} is not installed", next_step="pip install headrace[spark]"
        ) from error


def default_settings(master: str, *, ui: bool) -> dict[str, str]:
    """What `spark_session` sets."""
    chosen = {
        "spark.sql.execution.arrow.pyspark.enabled": _TRUE,
        "spark.ui.enabled": _TRUE if ui else _FALSE,
        "spark.ui.showConsoleProgress": _FALSE,
        "spark.log.level": "ERROR",
        # Spark hides options named password, secret or token by itself; these hold secrets, too (S24).
        "spark.sql.redaction.options.regex": "(?i)url|jaas|keystore[.]key|key[.]pem|storage[.]",
    }
    if master.startswith("local"):
        chosen |= {
            "spark.sql.shuffle.partitions": str(_SHUFFLE_PER_CORE * _local_cores(master)),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return chosen


def pack_settings(pack: Path) -> dict[str, str]:
    """Settings that distribute a pack to all executors and add it to their Python path."""
    check_pack(pack)
    return {
        "spark.archives": f"{pack.resolve()}#{_UNPACKED}",
        "spark.executorEnv.PYTHONPATH": _UNPACKED,
    }


def _chosen_python() -> str | None:
    """The user's choice. This process's own Python is none: importing headrace.spark sets it."""
    chosen = os.environ.get("PYSPARK_PYTHON")
    return None if chosen == sys.executable else chosen


def _share_packages(python: str) -> None:
    """Spark runs Python by one name everywhere; it must find this environment's packages on the driver."""
    os.environ["PYSPARK_PYTHON"] = python
    if shutil.which(python) is None:
        raise ClientError(
            f"there is no {python} on this machine, under which Spark would run Python everywhere",
            next_step="name one that the driver and all machines of the cluster have: python=, --python",
        )
    library = sysconfig.get_path("platstdlib")
    of_python = {sysconfig.get_path("stdlib"), library, f"{library}/lib-dynload"}
    here = [path for path in sys.path if path not in of_python and path and Path(path).is_dir()]
    os.environ["PYTHONPATH"] = os.pathsep.join(here)


def _runs_this_python(master: str, settings: Mapping[str, str]) -> bool:
    """Whether the workers have this process's PySpark: elsewhere it may not be installed, or be another."""
    if not _is_local(master) or "spark.pyspark.python" in settings:
        return False
    return os.environ["PYSPARK_PYTHON"] == sys.executable


def _is_local(master: str) -> bool:
    """Whether tasks run in the driver's own process; `local-cluster[…]` starts executors."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def _local_cores(master: str) -> int:
    """Of `local`, `local[2]`, `local[*]`, `local[2,3]`."""
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    if inside == "*":
        return os.cpu_count() or 1
    return int(inside) if inside.isdecimal() else 1
