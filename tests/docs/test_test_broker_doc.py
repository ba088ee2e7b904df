"""The examples of docs/test-broker.md pass as tests, with the fixtures of the plugin and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from headrace.testing import pytest_plugin

TEXT = (Path(__file__).parents[2] / "docs/test-broker.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


def test_the_examples_pass(tmp_path: Path) -> None:
    (tmp_path / "test_examples.py").write_text("\n\n".join(EXAMPLES))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "headrace.testing.pytest_plugin", str(tmp_path)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{TEXT.count('def test_')} passed" in done.stdout


def test_every_fixture_is_in_the_table() -> None:
    fixtures = {name for name in vars(pytest_plugin) if name.startswith("kafka")}
    assert fixtures == set(re.findall(r"^\| `(kafka\w*)` \|", TEXT, flags=re.MULTILINE))
