# SPDX-License-Identifier: Apache-2.0
"""`headrace demo --console --report FILE`: the console beside the story, and one file of what was shown."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.harness.browser.chromium import OpenBrowser

pytestmark = pytest.mark.timeout(300)

DEMO = [sys.executable, "-m", "headrace.cli.main", "demo", "--scene", "group", "--console"]
ADDRESS = re.compile(r"The console beside this story: (http://127\.0\.0\.1:\d+/)")


def topics_at(address: str) -> list[str]:
    with urlopen(f"{address}api/views/topics", timeout=30) as reply:
        return [topic["name"] for topic in json.load(reply)["topics"]]


def test_the_console_is_there_while_the_story_is_told_and_a_report_afterwards(
    tmp_path: Path, browser: OpenBrowser
) -> None:
    report = tmp_path / "demo-report.html"
    environment = {**os.environ, "COLUMNS": "80", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    with subprocess.Popen(
        [*DEMO, "--report", str(report)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as demo:
        assert demo.stdout is not None
        shown, address, seen = "", "", []
        for line in demo.stdout:
            shown += line
            if found := ADDRESS.search(line):
                address = found[1]
            if "A partition is added" in line:
                seen = topics_at(address)
        assert demo.wait(60) == 0, shown
    assert "clicks" in seen, "the console shows the scene's topic"
    with pytest.raises(URLError):
        urlopen(address, timeout=10)
    assert re.search(r"All as promised \(1 scene, 5 promises, ", shown)
    page = browser.open()
    page.goto(report.as_uri())
    assert page.locator("tfoot td").all_inner_texts()[:2] == ["5", "5"]
    assert page.locator("section#group ul.promises li").count() == 5
    assert page.locator("section#group figure svg").count() == 1
    assert page.locator("section#group pre").first.inner_text().startswith("$ headrace topics create clicks")


def test_without_the_packages_of_the_console_it_says_how_to_install_them(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfor name in ('starlette', 'uvicorn'):\n    sys.modules[name] = None\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(DEMO, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 1
    assert "pip install 'headrace[console]'" in done.stderr
