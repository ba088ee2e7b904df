"""`make demo`: what it shows is true, it says so, and it is over soon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def test_the_demo_keeps_its_promises_and_reads_well_in_a_pipe() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All as promised" in done.stdout
    assert "✗" not in done.stdout
    assert "\x1b" not in done.stdout, "no colours in a pipe"
    for part in ("│ 0  │ 1  │", "▲ consumer A", "▲ consumer B", "◀ producer appends", "partition 1  │ YOLO"):
        assert part in done.stdout
    assert float(done.stdout.rsplit("in ", 1)[1].split()[0]) < 20
