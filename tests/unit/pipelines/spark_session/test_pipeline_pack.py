# SPDX-License-Identifier: Apache-2.0
"""A pack: what is in it, that a bare Python runs tasks from it, and what is said of things that are none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from headrace.client.errors import ClientError
from headrace.pipelines.spark_session.pack import DESCRIPTION, Pack, check_pack, write_pack
from headrace.pipelines.spark_session.session import pack_settings

TASKS = """
import headrace, pyspark_headrace, pyspark_headrace_delta
import pyspark_headrace.reading.task, pyspark_headrace.writing.task, pyspark_headrace_delta.commit
print(headrace.__file__)
"""


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pack]:
    """Removed at once: pytest keeps folders of several runs, and this is 400 MB."""
    folder = tmp_path_factory.mktemp("pack")
    yield write_pack(folder / "below/pack.zip", level=0)
    shutil.rmtree(folder)


def test_a_bare_python_runs_tasks_from_it(pack: Pack, tmp_path: Path) -> None:
    """With Spark's own files beside it, as on a cluster; nothing else of this environment is seen."""
    with zipfile.ZipFile(pack.path) as files:
        files.extractall(tmp_path / "packages")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=60)
    of_spark = Path(pyspark.__file__).parent / "python/lib"
    path = [tmp_path / "packages", *of_spark.glob("*.zip")]
    ran = subprocess.run(
        [tmp_path / "bare/bin/python", "-c", TASKS],
        env={"PYTHONPATH": ":".join(map(str, path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    shutil.rmtree(tmp_path / "packages")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split()[0] == str(tmp_path / "packages/headrace/__init__.py")


def test_the_contents_of_a_pack(pack: Pack) -> None:
    with zipfile.ZipFile(pack.path) as files:
        names = files.namelist()
        description = json.loads(files.read(DESCRIPTION))
    assert {"pyarrow", "deltalake", "kio", "headrace"} <= set(pack.distributions)
    assert not {"pyspark", "py4j", "pytest", "polars"} & set(pack.distributions)
    assert description["distributions"] == dict(pack.distributions)
    assert "pyspark_headrace/__init__.py" in names
    assert not [name for name in names if name.startswith(("/", "..", "pyspark/")) or "__pycache__" in name]
    assert len(names) == len(set(names))


def test_executors_get_the_path_of_the_pack(pack: Pack) -> None:
    assert pack_settings(pack.path) == {
        "spark.archives": f"{pack.path}#headrace_packages",
        "spark.executorEnv.PYTHONPATH": "headrace_packages",
    }


def test_further_packages_come_with_what_they_need(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="no-such-package is not installed in this environment; pip"):
        write_pack(tmp_path / "pack.zip", add=["no-such-package"])
    with pytest.raises(ClientError, match="'a b' is not a package name"):
        write_pack(tmp_path / "pack.zip", add=["a b"])
    assert list(tmp_path.iterdir()) == []


def test_an_invalid_pack_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"there is no pack in .*none.zip: No such file .* pipeline pack"):
        check_pack(tmp_path / "none.zip")
    (tmp_path / "text.zip").write_text("text")
    with pytest.raises(ClientError, match=r"text\.zip is not a pack of"):
        check_pack(tmp_path / "text.zip")
    with zipfile.ZipFile(tmp_path / "old.zip", "w") as old:
        old.writestr(DESCRIPTION, json.dumps({"python": "3.9"}))
    with pytest.raises(ClientError, match=r"is for Python 3\.9, and this is 3"):
        pack_settings(tmp_path / "old.zip")
    with pytest.raises(ClientError, match=r"'pack\.tar\.gz' is not a zip file"):
        write_pack(Path("pack.tar.gz"))
