# SPDX-License-Identifier: Apache-2.0
"""What a session is given."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.pipelines.pack import DESCRIPTION, this_python
from headrace.pipelines.session import default_settings, spark_session


@pytest.mark.parametrize(("master", "shuffles"), [("local", "2"), ("local[3]", "6"), ("local[4,2]", "8")])
def test_shuffles_follow_the_cores_of_this_machine(master: str, shuffles: str) -> None:
    assert default_settings(master, ui=False)["spark.sql.shuffle.partitions"] == shuffles


def test_a_python_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark runs it under one name on the driver and on the executors."""
    monkeypatch.setenv("PYSPARK_PYTHON", "python3.99")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr("headrace.pipelines.session.find_java", lambda: tmp_path)
    pack = tmp_path / "pack.zip"
    with zipfile.ZipFile(pack, "w") as made:
        made.writestr(DESCRIPTION, json.dumps({"python": this_python()}))
    with pytest.raises(ClientError, match=r"no python3\.99 on this machine, .*: python=, --python"):
        spark_session("spark://127.0.0.1:1", pack=pack)


def test_a_cluster_decides_for_itself() -> None:
    chosen = default_settings("spark://host:7077", ui=True)
    assert "spark.sql.shuffle.partitions" not in chosen
    assert "spark.driver.host" not in chosen
    assert chosen["spark.ui.enabled"] == "true"
