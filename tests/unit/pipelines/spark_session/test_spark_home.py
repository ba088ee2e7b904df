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

from headrace.pipelines.spark_session.spark_home import make_spark_home, spark_home_with_bytecode  # noqa: E402

PACKAGE = Path(pyspark.__file__).parent


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "headrace"


def made() -> Path:
    home = make_spark_home()
    assert home is not None
    return home


def test_it_has_all_that_sparks_own_has() -> None:
    home = made()
    for folder in ("", "python", "python/lib"):
        found = {each.name for each in (home / folder).iterdir()}
        assert found == {each.name for each in (PACKAGE / folder).iterdir()} - {"__pycache__"}
    assert (home / "jars").samefile(PACKAGE / "jars")


def test_a_worker_imports_the_installed_package_and_its_bytecode(cache: Path) -> None:
    archives = (made() / "python/lib").iterdir()
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
    assert all(line.startswith(str(cache)) for line in ran.stdout.splitlines())


def test_it_is_made_once_and_again_where_something_is_missing(cache: Path) -> None:
    home = made()
    before = home.stat().st_ino
    assert made() == home
    assert home.stat().st_ino == before
    (home / "jars").unlink()
    assert made() == home
    assert (home / "jars").is_dir()
    assert list(cache.iterdir()) == [home]


def test_without_a_cache_spark_has_its_own(cache: Path) -> None:
    cache.touch()
    assert make_spark_home() is None


def test_without_a_home_folder_spark_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert make_spark_home() is None


def test_it_is_set_only_while_spark_starts(cache: Path) -> None:
    environment: dict[str, str] = {}
    with spark_home_with_bytecode(environment):
        assert Path(environment["SPARK_HOME"]).parent == cache
    assert environment == {}


def test_a_spark_home_of_the_user_stays(cache: Path) -> None:
    environment = {"SPARK_HOME": "/opt/spark"}
    with spark_home_with_bytecode(environment):
        assert environment == {"SPARK_HOME": "/opt/spark"}
    assert environment == {"SPARK_HOME": "/opt/spark"}
    assert not cache.exists()


def test_another_process_may_make_it_meanwhile(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = made()
    other = home.rename(cache / "made by another")

    def late(draft: Path, target: Path) -> None:
        shutil.copytree(other, home, symlinks=True)
        os.rename(draft, target)

    monkeypatch.setattr(Path, "rename", late)
    assert make_spark_home() == home
