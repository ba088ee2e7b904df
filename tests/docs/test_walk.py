# SPDX-License-Identifier: Apache-2.0
"""A new user installs the built wheel in an empty environment and follows the first pages line by line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.cluster.engines.engine import free_ports
from headrace.java import find_java
from tests.harness.left_out import leave_out
from tests.harness.live.wheel_environment import build_wheel, install
from tests.harness.snippets.page_run import METRICS_PORT, NODE_PORT, PageRun

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(600)  # packages are downloaded where pip has not kept them
PAGES = [page for page in (ROOT / "README.md", ROOT / "docs" / "tutorial.md") if page.exists()]


def _requirements() -> list[str]:
    """What the pages tell a reader to install."""
    commands = [found for page in PAGES for found in re.findall(r"pip install ([^`\n]+)", page.read_text())]
    return list(dict.fromkeys(word for command in commands for word in shlex.split(command)))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(ROOT, folder / "build")
    return install(wheel, _requirements(), ROOT / "requirements.lock", folder / "environment")


def test_the_pages_say_what_to_install() -> None:
    assert {"headrace", "headrace[arrow]"} <= set(_requirements())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_whoever_follows_the_page_sees_what_it_shows(page: Path, python: str, tmp_path: Path) -> None:
    if "headrace pipeline run" in page.read_text():
        _need_java()
    ports = dict(zip((NODE_PORT, METRICS_PORT), free_ports(2), strict=True))
    assert PageRun(document=page, folder=tmp_path / "reader", ports=ports, python=python).run() > 5


def _need_java() -> None:
    try:
        find_java()
    except ClientError as error:
        leave_out("Spark", str(error))
