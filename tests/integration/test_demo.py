"""`make demo`: what it shows is true, it says so, and it is over soon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.row("D1")
@pytest.mark.row("D11")
def test_the_demo_keeps_its_promises_and_reads_well_in_a_pipe() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All as promised" in done.stdout
    assert "✗" not in done.stdout
    assert "\x1b" not in done.stdout, "no colours in a pipe"
    assert "rdkafka#" not in done.stderr, "clients keep their own logs to themselves"
    for part in (*SINGLE_CONSUMERS, *GROUP):
        assert part in done.stdout
    assert float(done.stdout.rsplit("in ", 1)[1].split()[0]) < 40
