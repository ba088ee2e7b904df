"""The parallel consumer's demonstration: what it shows is true, it says so, and it is over soon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "parallel_demo.py"


@pytest.mark.row("D15")
def test_partition_order_and_processing_order_stand_side_by_side() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All as promised" in done.stdout
    assert "\x1b" not in done.stdout, "no colours in a pipe"
    for order in ("partition", "key", "none"):
        assert f"order={order}" in done.stdout
    assert " 2 b ◀" in done.stdout, "the second record overtakes the slow first one"
    assert max(map(len, done.stdout.splitlines())) <= 100
