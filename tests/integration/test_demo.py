# SPDX-License-Identifier: Apache-2.0
"""`headrace demo`: each scene keeps its promises, and the whole reads well in a pipe and is over soon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.demo.scenes.catalog import SCENES
from headrace.demo.tour import sections_of, stable
from tests.harness.left_out import leave_out

TOUR = Path(__file__).resolve().parents[2] / "docs" / "tour.md"
COMMAND = [sys.executable, "-m", "headrace.cli.main", "demo"]
TIMEOUT_S = 500
LONGEST_S = 300
"""Of the whole on a loaded machine."""

pytestmark = pytest.mark.timeout(600)  # all scenes are played once, with Spark and four clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One run of the whole demo."""

    code: int
    stdout: str
    stderr: str
    sections: dict[str, str]

    @property
    def last_line(self) -> str:
        return self.stdout.rstrip().splitlines()[-1]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo")
    command = [*COMMAND, "--tour", str(folder / "tour.md"), "--pictures", str(folder / "pictures")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    tour = folder / "tour.md"
    sections = sections_of(tour.read_text()) if tour.exists() else {}
    return Shown(code=done.returncode, stdout=done.stdout, stderr=done.stderr, sections=sections)


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param("log", marks=pytest.mark.row("D1")),
        pytest.param("records", marks=pytest.mark.row("D2")),
        pytest.param("partitions", marks=pytest.mark.row("D3")),
        pytest.param("keys", marks=pytest.mark.row("D4")),
        pytest.param("ranges", marks=pytest.mark.row("D5")),
        pytest.param("send", marks=pytest.mark.row("D6")),
        pytest.param("group", marks=[pytest.mark.row("D10"), pytest.mark.row("D11")]),
        pytest.param("two-groups", marks=pytest.mark.row("D12")),
        pytest.param("topics-and-groups", marks=pytest.mark.row("D13")),
        pytest.param("positions", marks=pytest.mark.row("D14")),
        pytest.param("timeline", marks=pytest.mark.row("D21")),
        pytest.param("order", marks=pytest.mark.row("D15")),
        pytest.param("sizing", marks=pytest.mark.row("D16")),
        pytest.param("program", marks=pytest.mark.row("D17")),
        pytest.param("topics", marks=pytest.mark.row("D18")),
        pytest.param("acks", marks=pytest.mark.row("D7")),
        pytest.param("failover", marks=[pytest.mark.row("D8"), pytest.mark.row("D9")]),
        pytest.param("zookeeper", marks=pytest.mark.row("D19")),
        "cores",
        pytest.param("listeners", marks=pytest.mark.row("D20")),
        pytest.param("pipelines", marks=pytest.mark.row("D22")),
    ],
)
def test_a_scene_keeps_its_promises_and_is_in_the_tour(shown: Shown, scene: str) -> None:
    for line in shown.stdout.splitlines():
        if line.startswith(f"Left out: {scene}."):
            leave_out("scenes of the demo", line)
    section = shown.sections.get(scene, "")
    assert section.count("✓ ") >= 1, shown.stdout + shown.stderr
    assert "✗" not in section
    varies = next(each.varies for each in SCENES if each.name == scene)
    written = sections_of(TOUR.read_text()).get(scene, "")
    assert stable(section, varies) == stable(written, varies), "docs/tour.md is out of date: make tour"


def test_the_whole_reads_well_in_a_pipe(shown: Shown) -> None:
    assert shown.code == 0, shown.stdout + shown.stderr
    assert "\x1b" not in shown.stdout, "no colours in a pipe"
    assert "rdkafka#" not in shown.stderr, "clients keep their own logs to themselves"
    assert "Exception" not in shown.stderr + shown.stdout
    assert "Traceback" not in shown.stderr
    left_out = "Left out: " in shown.stdout
    assert shown.last_line.startswith("What was played held" if left_out else "All as promised")
    assert float(shown.last_line.split(" promises, ")[1].split(" s")[0]) < LONGEST_S


def test_the_list_names_every_scene() -> None:
    command = [*COMMAND, "--list", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert [each["name"] for each in json.loads(done.stdout)] == [scene.name for scene in SCENES]


def test_one_scene_is_played_alone_and_reported_as_json() -> None:
    command = [*COMMAND, "--scene", "ranges", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    report = json.loads(done.stdout)
    assert report["all_held"]
    assert [scene["name"] for scene in report["scenes"]] == ["ranges"]


def test_an_unknown_scene_is_refused_with_the_next_command() -> None:
    done = subprocess.run(
        [*COMMAND, "--scene", "opera"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == "headrace: there is no scene 'opera'; see: headrace demo --list\n"
