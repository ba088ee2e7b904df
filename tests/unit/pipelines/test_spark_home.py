# SPDX-License-Identifier: Apache-2.0
"""The SPARK_HOME whose workers have PySpark's bytecode."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark")

from headrace.pipelines.spark_home import make_spark_home, spark_home_with_bytecode  # noqa: E402

PACKAGE = Path(pyspark.__file__).parent


def made_in(cache: Path) -> Path:
    home = make_spark_home(cache)
    assert home is not None
    return home


def test_it_has_all_that_sparks_own_has(tmp_path: Path) -> None:
    home = made_in(tmp_path)
    for folder in ("", "python", "python/lib"):
        found = {each.name for each in (home / folder).iterdir()}
        assert found == {each.name for each in (PACKAGE / folder).iterdir()} - {"__pycache__"}
    assert (home / "jars").samefile(PACKAGE / "jars")


def test_a_worker_imports_the_installed_package_and_its_bytecode(tmp_path: Path) -> None:
    archives = (made_in(tmp_path) / "python/lib").iterdir()
    program = (
        "import os, pyspark, py4j\n"
        "for each in (pyspark, py4j):\n"
        "    print(each.__file__)\n"
        "    assert os.path.exists(each.__spec__.cached)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, archives))},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert all(line.startswith(str(tmp_path)) for line in ran.stdout.splitlines())


def test_it_is_made_once_and_again_where_something_is_missing(tmp_path: Path) -> None:
    home = made_in(tmp_path)
    before = home.stat().st_ino
    assert made_in(tmp_path) == home
    assert home.stat().st_ino == before
    (home / "jars").unlink()
    assert made_in(tmp_path) == home
    assert (home / "jars").is_dir()
    assert list(tmp_path.iterdir()) == [home]


def test_without_a_cache_spark_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert make_spark_home(tmp_path / "file") is None


def test_it_is_set_only_while_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment: dict[str, str] = {}
    with spark_home_with_bytecode(environment):
        assert Path(environment["SPARK_HOME"]).parent == tmp_path / "headrace"
    assert environment == {}


def test_a_spark_home_of_the_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = {"SPARK_HOME": "/opt/spark"}
    with spark_home_with_bytecode(environment):
        assert environment == {"SPARK_HOME": "/opt/spark"}
    assert environment == {"SPARK_HOME": "/opt/spark"}
    assert not list(tmp_path.iterdir())


def test_another_process_may_make_it_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = made_in(tmp_path / "other")
    place = tmp_path / "cache" / home.name

    def late(draft: Path, target: Path) -> None:
        shutil.copytree(home, place, symlinks=True)
        os.rename(draft, target)

    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(Path, "rename", late)
    assert make_spark_home(tmp_path / "cache") == place
