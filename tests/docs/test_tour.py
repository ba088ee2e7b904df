"""The README's five-minute tour, command by command, against a live node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
COMMAND_S = 60


def _tour() -> list[str]:
    """What a reader types in the second terminal."""
    section = README.partition("## Five minutes")[2].partition("\n## ")[0]
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)).splitlines()
    return [line for line in lines if "headrace " in line and not line.startswith("headrace serve")]


@pytest.mark.row("D6")
@pytest.mark.row("D18")
def test_every_command_of_the_tour_does_what_the_readme_says(node):
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HEADRACE_BOOTSTRAP": node.bootstrap,
    }
    printed: dict[str, str] = {}
    for line in _tour():
        command = line.replace("~/.local/share/headrace", str(node.data))
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert ended.returncode == 0, f"{line}\n{ended.stdout}{ended.stderr}"
        printed[line] = ended.stdout
    _check_what_was_said(printed)


def _check_what_was_said(printed: dict[str, str]) -> None:
    def output(part: str) -> str:
        return next(text for line, text in printed.items() if part in line)

    assert sorted(output("--from beginning").split()) == ["cake", "coffee", "milk", "tea"]
    assert output("--partition 2 --from 1").split() == ["milk"]
    assert "86400000" in output("configs get")
    assert len(printed) >= 9
