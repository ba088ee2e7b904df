# SPDX-License-Identifier: Apache-2.0
"""A setting of a Spark session for the moment in which a DataFrame is made. Read next: native_rows.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_lock = threading.RLock()
"""Threads of one session would restore each other's values."""


@contextmanager
def session_setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    with _lock:
        before = spark.conf.get(name, None)
        if before == value:
            yield
            return
        spark.conf.set(name, value)
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, before)
