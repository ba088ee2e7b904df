"""A Spark session that just starts: the right Java, this environment's Python, quiet, no web server.

Everything that it sets can be set otherwise. A plain session works too: nothing in the source or the sink
depends on these settings. Read next: java.py, pack.py, docs/pipelines.md.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client.errors import ClientError
from headrace.pipelines.java import find_java
from headrace.pipelines.pack import check_pack, this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHUFFLE_PER_CORE = 2
_TRUE, _FALSE = "true", "false"
_UNPACKED = "headrace_packages"
"""The folder in which executors find the pack, below the one they run in."""


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

    master: `local[*]`, `local[2]`, `spark://HOST:PORT`, `yarn`, `k8s://…`.
    ui: serve Spark's web pages. settings: any of Spark's; they go before ours.
    pack: what `headrace pipeline pack` wrote, for a cluster whose machines lack our packages.
    python: the name of the same Python on all of its machines, this one included; `python3.11` or the like.

    ClientError says what to install when PySpark or Java is missing.
    """
    pyspark = need_pyspark()
    os.environ["JAVA_HOME"] = str(find_java())
    chosen = default_settings(master, ui=ui)
    if pack is not None and not _is_local(master):
        chosen |= shipped(Path(pack))
        _share_packages(python or f"python{this_python()}")
    # Read by the JVM when it starts and by PySpark itself, so that a setting alone would come too late.
    os.environ.setdefault("PYSPARK_PYTHON", python or sys.executable)
    builder = pyspark.SparkSession.builder.master(master).appName(name)
    for key, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    # Spark finds the formats by itself, but where that fails once (a slow start is enough, or a package of
    # somebody else's that cannot be imported) it says nothing and never looks again.
    for package in ("pyspark_headrace", "pyspark_headrace_delta"):
        session.dataSource.register(importlib.import_module(package).DefaultSource)
    return session


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
        "spark.sql.python.filterPushdown.enabled": _TRUE,  # what option("pushdown", True) needs
        "spark.ui.enabled": _TRUE if ui else _FALSE,
        "spark.ui.showConsoleProgress": _FALSE,
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        chosen |= {
            "spark.sql.shuffle.partitions": str(_SHUFFLE_PER_CORE * _local_cores(master)),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return chosen


def shipped(pack: Path) -> dict[str, str]:
    """Settings that hand a pack to all executors and have their Python look into it."""
    check_pack(pack)
    return {
        "spark.archives": f"{pack.resolve()}#{_UNPACKED}",
        "spark.executorEnv.PYTHONPATH": _UNPACKED,
    }


def _share_packages(python: str) -> None:
    """Spark runs Python by one name everywhere: under it the driver must find this environment's packages."""
    chosen = os.environ.setdefault("PYSPARK_PYTHON", python)
    if shutil.which(chosen) is None:
        raise ClientError(
            f"there is no {chosen} on this machine, under which Spark would run Python everywhere",
            next_step="name one that the driver and all machines of the cluster have: python=, --python",
        )
    library = sysconfig.get_path("platstdlib")
    of_python = {sysconfig.get_path("stdlib"), library, f"{library}/lib-dynload"}
    here = [path for path in sys.path if path not in of_python and path and Path(path).is_dir()]
    os.environ["PYTHONPATH"] = os.pathsep.join(here)


def _is_local(master: str) -> bool:
    """Whether tasks run in the driver's own process; `local-cluster[…]` starts executors."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def _local_cores(master: str) -> int:
    """Of `local`, `local[2]`, `local[*]`, `local[2,3]`."""
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    if inside == "*":
        return os.cpu_count() or 1
    return int(inside) if inside.isdecimal() else 1
