# SPDX-License-Identifier: Apache-2.0
"""`make recording`: plays scenes of `headrace demo` and writes them as an animated picture.

Usage: python -m tests.harness.recording FILE.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.harness.recording.picture import draw
from tests.harness.recording.terminal import record

ARGUMENTS = ("demo", "--scene", "log", "--scene", "failover")
TIMEOUT_S = 120


def main(path: Path) -> None:
    shown = " ".join(("headrace", *ARGUMENTS))
    frames = record((sys.executable, "-m", "headrace", *ARGUMENTS), shown, TIMEOUT_S)
    path.write_text(draw(frames, f"Recording of `{shown}`"), encoding="utf-8")
    length_s = sum(frame.seconds for frame in frames)
    print(f"{path}: {len(frames)} frames, {length_s:.0f} s, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
