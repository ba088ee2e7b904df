# SPDX-License-Identifier: Apache-2.0
"""The sdist and the wheels of a release: what is in them, their tags, and that they work installed alone.

Built as `make dist` does. The build backend and the dependencies come from the index that pip is set to;
where it cannot be reached, all of this is left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from headrace.kernels.build import LIBRARY_NAME, find_compiler
from headrace.version import __version__
from tests.harness.left_out import leave_out

ROOT = Path(__file__).resolve().parents[2]
KERNELS = f"headrace/kernels/{LIBRARY_NAME}"
PURE = f"headrace-{__version__}-py3-none-any.whl"
REPOSITORY = {"GITHUB_SERVER_URL": "https://git.example", "GITHUB_REPOSITORY": "streams/headrace"}
OWN_TEST = """
from confluent_kafka.admin import AdminClient

def test_a_broker_is_there(kafka_bootstrap):
    assert len(AdminClient({"bootstrap.servers": kafka_bootstrap}).list_topics(timeout=10).brokers) == 1
"""
OPTIONAL = """
import sys, headrace
print(headrace.__version__, [name for name in ("numpy", "pyarrow", "pyspark") if name in sys.modules])
try:
    headrace.read("orders")
except ImportError as error:
    print(error)
"""


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": "", **environment},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, the wheel of this machine and the pure Python wheel, both made from the sdist."""
    index = [sys.executable, "-m", "pip", "index", "versions", "hatchling"]
    if subprocess.run(index, capture_output=True, timeout=60, check=False).returncode:
        leave_out("sdist and wheels", "the package index cannot be reached")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    with tarfile.open(folder / f"headrace-{__version__}.tar.gz") as sdist:
        sdist.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, source, CC="", **REPOSITORY)
    return folder


@pytest.fixture(scope="module")
def compiled(dist: Path) -> Path:
    if find_compiler() is None:
        leave_out("wheel with kernels", "no C compiler (cc): install gcc or clang")
    (wheel,) = (path for path in dist.glob("*.whl") if path.name != PURE)
    return wheel


@pytest.fixture(scope="module")
def empty(dist: Path) -> Path:
    """The Python of an environment with the pure Python wheel, what it depends on, and pytest."""
    venv.create(dist / "venv", with_pip=True)
    python = dist / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", dist / PURE, "pytest")
    return python


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


def test_the_sdist_has_what_a_build_and_the_tests_need_and_nothing_that_was_made(dist: Path) -> None:
    with tarfile.open(dist / f"headrace-{__version__}.tar.gz") as sdist:
        files = {name.partition("/")[2] for name in sdist.getnames()}
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard").stdout.splitlines()
    tracked = {name for name in listed if (ROOT / name).is_file()}
    assert files - tracked == {"PKG-INFO"}
    assert {"LICENSE", "hatch_build.py", "Makefile", "tests/conftest.py"} <= files
    assert {name for name in tracked if name.startswith("src/")} <= files


def test_wheels_differ_in_the_kernels_only(dist: Path, compiled: Path) -> None:
    assert contents(compiled) - contents(dist / PURE) == {KERNELS}
    packages = {name.partition("/")[0] for name in contents(compiled)}
    assert packages == {
        "headrace", "pyspark_headrace", "pyspark_headrace_delta", f"headrace-{__version__}.dist-info",
    }  # fmt: skip
    assert f"headrace-{__version__}.dist-info/licenses/LICENSE" in contents(compiled)


def test_a_release_names_the_repository_that_built_it(dist: Path) -> None:
    with zipfile.ZipFile(dist / PURE) as wheel:
        metadata = wheel.read(f"headrace-{__version__}.dist-info/METADATA").decode()
    assert "\nProject-URL: Source, https://git.example/streams/headrace\n" in metadata
    assert "\nProject-URL: Security, https://git.example/streams/headrace/security/policy\n" in metadata


@pytest.mark.skipif(sys.platform != "linux", reason="manylinux is about Linux")
def test_the_wheel_runs_on_any_python_and_on_old_systems(compiled: Path) -> None:
    """The kernels use only old symbols of the C library: auditwheel gives the wheel a manylinux tag."""
    assert re.fullmatch(rf"headrace-{re.escape(__version__)}-py3-none-linux_\w+\.whl", compiled.name)
    shown = " ".join(run(sys.executable, "-m", "auditwheel", "show", compiled).stdout.split())
    tag = re.search(r'consistent with the following platform tag: "manylinux_2_(\d+)_\w+"', shown)
    assert tag is not None, shown
    assert int(tag[1]) <= 28, "the C library of Debian 11, Ubuntu 20.04 and RHEL 8 at the latest"


def test_a_node_of_the_pure_wheel_says_that_the_kernels_are_not_compiled(empty: Path) -> None:
    done = run(empty, "-P", "tests/harness/smoke.py")
    assert "10 records came back" in done.stdout
    assert done.stderr.count("the C kernels are not compiled; compile them: python -m") == 1


def test_the_wheel_works_in_an_empty_environment(empty: Path, compiled: Path, tmp_path: Path) -> None:
    run(empty, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", compiled)
    assert run(empty.with_name("headrace"), "version").stdout.startswith(f"headrace {__version__}")
    loaded, refusal = run(empty, "-P", "-c", OPTIONAL).stdout.splitlines()
    assert loaded == f"{__version__} []"
    assert "pip install headrace[arrow]" in refusal
    done = run(empty, "-P", "tests/harness/smoke.py")
    assert "10 records came back" in done.stdout
    assert "kernels" not in done.stderr
    (tmp_path / "test_own.py").write_text(OWN_TEST)
    tested = run(empty, "-P", "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", tmp_path, tmp_path)
    assert "1 passed" in tested.stdout
