# SPDX-License-Identifier: Apache-2.0
"""What a session is given."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from headrace.client.errors import ClientError
from headrace.pipelines.reporting.query_metrics import _register
from headrace.pipelines.spark_session.pack import DESCRIPTION, this_python
from headrace.pipelines.spark_session.session import _runs_this_python, default_settings, spark_session
from pyspark_headrace import DefaultSource


@pytest.mark.parametrize(("master", "shuffles"), [("local", "2"), ("local[3]", "6"), ("local[4,2]", "8")])
def test_shuffles_follow_the_cores_of_this_machine(master: str, shuffles: str) -> None:
    assert default_settings(master, ui=False)["spark.sql.shuffle.partitions"] == shuffles


def test_a_python_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark runs it under one name on the driver and on the executors."""
    monkeypatch.setenv("PYSPARK_PYTHON", "python3.99")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr("headrace.pipelines.spark_session.session.find_java", lambda: tmp_path)
    pack = tmp_path / "pack.zip"
    with zipfile.ZipFile(pack, "w") as made:
        made.writestr(DESCRIPTION, json.dumps({"python": this_python()}))
    with pytest.raises(ClientError, match=r"no python3\.99 on this machine, .*: python=, --python"):
        spark_session("spark://127.0.0.1:1", pack=pack)


@pytest.mark.parametrize("argument", [{"ui": True}, {"pack": "pack.zip"}, {"python": "python3.11"}])
def test_what_a_connect_server_decides_is_refused(argument: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match=f"^{next(iter(argument))}= is the Spark Connect server's"):
        spark_session("sc://127.0.0.1:1", **argument)


def test_a_connect_server_that_is_not_there_is_an_error_at_once() -> None:
    with pytest.raises(ClientError, match=r"no Spark Connect server can be reached at 127\.0\.0\.1:1 \("):
        spark_session("sc://127.0.0.1:1/;user_id=ann")


def test_a_cluster_decides_for_itself() -> None:
    chosen = default_settings("spark://host:7077", ui=True)
    assert "spark.sql.shuffle.partitions" not in chosen
    assert "spark.driver.host" not in chosen
    assert chosen["spark.ui.enabled"] == "true"


@pytest.mark.parametrize(
    ("master", "python", "settings", "expected"),
    [
        ("local[2]", sys.executable, {}, True),
        ("local[2]", "/usr/bin/python3", {}, False),
        ("local[2]", sys.executable, {"spark.pyspark.python": "/usr/bin/python3"}, False),
        ("local-cluster[1,1,1024]", sys.executable, {}, False),
        ("spark://host:7077", sys.executable, {}, False),
    ],
)
def test_only_workers_with_this_python_share_its_packages(
    master: str, python: str, settings: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    assert _runs_this_python(master, settings) is expected


class RefusingSession:
    """Stands for Spark 4.0, which has discovered the formats."""

    def __init__(self, reason: str) -> None:
        self.dataSource = self
        self._reason = reason

    def register(self, source: object) -> None:
        raise AnalysisException(self._reason)


def test_formats_that_spark_has_discovered_are_not_registered_again() -> None:
    session: Any = RefusingSession("[DATA_SOURCE_ALREADY_EXISTS] Data source 'headrace' already exists.")
    _register(session, DefaultSource)


def test_other_refusals_of_a_format_are_raised() -> None:
    session: Any = RefusingSession("[ANOTHER] refused")
    with pytest.raises(AnalysisException, match="ANOTHER"):
        _register(session, DefaultSource)
