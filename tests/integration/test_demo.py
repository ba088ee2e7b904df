"""`make demo`: what it shows is true, it says so, and it is over soon."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from headrace.pipelines.java import find_java

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


SINGLE_CONSUMERS = (
    "│ 0  │ 1  │",
    "▲ consumer A",
    "▲ consumer B",
    "◀ producer appends",
    "partition 1  │ YOLO",
)
GROUP = (
    "consumer A#0",
    "A partition is added",
    "()=(clicks#4(@=() ◀ new",
    "A consumer joins",
    "consumer A#3",
    "leaves: what it had is shared out",
)
PIPELINES = (
    "both pipelines read all 20,000 records",
    "group 'analyze' is at the end of the topic",
    "group 'store' is at the end of the topic",
    "store holds each of the 20,000 records once",
    "sums by shop and minute are exact",
)


CLUSTER = (
    "node 2 leads partition 0, and partition 1 stayed",
    "node 0 leads again, since it was asked for",
    "all that was acknowledged was read, once and in order",
)


@pytest.mark.row("D1")
@pytest.mark.row("D9")
@pytest.mark.row("D11")
def test_the_demo_keeps_its_promises_and_reads_well_in_a_pipe() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All as promised" in done.stdout
    assert "✗" not in done.stdout
    assert "\x1b" not in done.stdout, "no colours in a pipe"
    assert "rdkafka#" not in done.stderr, "clients keep their own logs to themselves"
    for part in (*SINGLE_CONSUMERS, *GROUP, *CLUSTER):
        assert part in done.stdout
    assert "Exception" not in done.stderr + done.stdout
    took_s = float(done.stdout.rsplit("in ", 1)[1].split()[0])
    if "Left out: Spark needs Java" in done.stdout:
        assert took_s < 70
        return
    for part in PIPELINES:
        assert part in done.stdout
    picture = DEMO.parents[1] / "artifacts/demo-pipelines.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert time.time() - picture.stat().st_mtime < took_s + 60
    assert took_s < 120


def test_without_java_the_demo_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(DEMO.parent))
    scene = importlib.import_module("demo_pipelines")

    def none() -> Path:
        return find_java({"PATH": ""}, installed=tmp_path / "none")

    monkeypatch.setattr(scene, "find_java", none)
    start = scene.SparkStart(tmp_path)
    promises: list[object] = []
    scene.PipelineScene("127.0.0.1:1", tmp_path, Console(width=200), promises.append).play(start)
    start.stop()
    assert (
        "Left out: Spark needs Java 17 or later, and none was found; install it (Debian:"
        in capsys.readouterr().out
    )
    assert promises == []
