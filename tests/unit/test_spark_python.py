# SPDX-License-Identifier: Apache-2.0
"""`import headrace.spark` has Spark's workers run the Python of the program."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import headrace.spark


def running(monkeypatch: pytest.MonkeyPatch, python: str) -> None:
    context = SimpleNamespace(_active_spark_context=SimpleNamespace(pythonExec=python))
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(SparkContext=context))  # type: ignore[arg-type]


def test_workers_run_this_python_unless_another_is_chosen() -> None:
    environment: dict[str, str] = {}
    headrace.spark._use_this_python(environment)
    assert environment == {"PYSPARK_PYTHON": sys.executable}
    chosen = {"PYSPARK_PYTHON": "python3.12"}
    headrace.spark._use_this_python(chosen)
    assert chosen == {"PYSPARK_PYTHON": "python3.12"}


def test_a_session_that_runs_another_python_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    running(monkeypatch, str(tmp_path / "python3"))
    with pytest.warns(UserWarning, match=r"runs already, and its workers run .*/python3.*before the session"):
        headrace.spark._use_this_python({})


def test_a_session_that_runs_this_python_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, os.path.basename(sys.executable))
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    headrace.spark._use_this_python({})
