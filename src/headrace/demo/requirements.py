# SPDX-License-Identifier: Apache-2.0
"""What scenes may require beyond the package, and how to tell whether it is installed."""

from __future__ import annotations

import signal
from importlib.util import find_spec

from headrace.client.errors import ClientError
from headrace.cluster.engines.zookeeper_jars import why_zookeeper_is_missing
from headrace.demo.scene import Requirement
from headrace.java import find_java

_SPARK_PACKAGES = ("pyspark", "pyarrow", "deltalake")


def _missing_spark() -> str | None:
    absent = [name for name in _SPARK_PACKAGES if find_spec(name) is None]
    if absent:
        return f"Python packages are missing ({', '.join(absent)}); pip install 'headrace[spark]'"
    try:
        find_java()
    except ClientError as error:
        return str(error)
    return None


SPARK = Requirement(name="Spark", missing=_missing_spark)


def _missing_zookeeper() -> str | None:
    if find_spec("kazoo") is None:
        return "the Python package kazoo is missing; pip install 'headrace[zookeeper]'"
    return why_zookeeper_is_missing()


ZOOKEEPER = Requirement(name="ZooKeeper", missing=_missing_zookeeper)


def _missing_signals() -> str | None:
    if hasattr(signal, "SIGSTOP"):
        return None
    return "nodes of a cluster are stopped and killed by POSIX signals, which this system lacks"


SIGNALS = Requirement(name="POSIX signals", missing=_missing_signals)
