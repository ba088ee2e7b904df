# SPDX-License-Identifier: Apache-2.0
"""How the demo is recorded: frames of a terminal, their time on the screen, and the animated picture."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.harness.recording.picture import draw
from tests.harness.recording.terminal import (
    ENTER_S,
    LAST_S,
    LONGEST_S,
    SHORTEST_S,
    Frame,
    Run,
    Terminal,
    record,
)

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "demo.svg"
SVG = "{http://www.w3.org/2000/svg}"


def _lines(frame: Frame) -> list[str]:
    return [" ".join(run.text for run in row) for row in frame.rows if row]


def test_lines_come_one_after_the_other() -> None:
    terminal = Terminal(columns=20, rows=3)
    terminal.write(b"one\r\ntwo\r\n")
    assert [_lines(frame) for frame in terminal.frames] == [["one"], ["one", "two"]]


def test_a_picture_that_is_drawn_again_is_one_frame() -> None:
    terminal = Terminal(columns=20, rows=3)
    terminal.write(b"a\r\nb\r\n")
    terminal.write(b"\x1b[2A\x1b[2Kc\r\n\x1b[2Kd\r\n")
    assert [_lines(frame) for frame in terminal.frames] == [["a"], ["a", "b"], ["c", "d"]]


def test_styles_and_places_are_kept() -> None:
    terminal = Terminal(columns=30, rows=1)
    terminal.write(b"  plain \x1b[1;32m  bold green\x1b[0m")
    assert terminal.frames[-1].rows[0] == (
        Run(2, "plain", "default", False),
        Run(10, "bold green", "green", True),
    )


def test_a_command_is_typed_letter_by_letter() -> None:
    terminal = Terminal()
    terminal.type("ls -l")
    terminal.write(b"total 0\r\n")
    assert [_lines(frame)[0] for frame in terminal.frames[:3]] == ["$ l", "$ ls", "$ ls -"]
    assert _lines(terminal.frames[-1]) == ["$ ls -l", "total 0"]
    assert terminal.frames[-2].seconds == ENTER_S


def test_a_frame_is_shown_for_as_long_as_its_new_lines_take_to_read() -> None:
    terminal = Terminal()
    terminal.write(b"x\r\n")
    terminal.write(b"y" * 60 + b"\r\n")
    terminal.write(b"\x1b[1A" + b"z" * 1000)
    short, middle, long = (frame.seconds for frame in terminal.frames)
    assert SHORTEST_S == short < middle < long == LONGEST_S


def test_a_program_is_recorded_in_a_terminal() -> None:
    program = "import sys, os; print(sys.stdout.isatty(), os.get_terminal_size().columns)"
    frames = record((sys.executable, "-c", program), "python", timeout_s=30)
    assert _lines(frames[-1]) == ["$ python", "True 80"]
    assert frames[-1].seconds == LAST_S


def test_a_failed_program_is_not_recorded() -> None:
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        record((sys.executable, "-c", "raise SystemExit(3)"), "python", timeout_s=30)


def test_the_picture_moves_from_frame_to_frame_and_rests_on_the_last() -> None:
    terminal = Terminal()
    terminal.write(b"a < b\r\n")
    terminal.write(b"\x1b[31mred\x1b[0m\r\n")
    picture = draw([Frame(each.rows, ENTER_S) for each in terminal.frames], "A & B")
    root = ET.fromstring(picture)
    assert root.findtext(f"{SVG}title") == "A & B"
    assert [text.text for text in root.iter(f"{SVG}text")] == ["a < b", "red"]
    assert len(list(root.iter(f"{SVG}use"))) == 3
    tops = re.findall(r"(0|50|100)\.?0*%\{transform:translate\(0,(-?\d+)px\)\}", picture)
    (film,) = [each for each in root.iter(f"{SVG}g") if each.get("class") == "film"]
    assert [place for place, _ in tops] == ["0", "50", "100"]
    assert tops[1][1] == tops[2][1] != tops[0][1]
    assert film.get("transform") == f"translate(0 {tops[1][1]})"
    assert f"{2 * ENTER_S:.2f}s step-end infinite" in picture


def test_the_published_recording_is_complete_small_and_needs_nothing_else() -> None:
    text = PICTURE.read_text()
    assert len(text.encode()) < 1_000_000
    assert "All as promised" in text, "make recording"
    length = re.search(r"animation:film ([\d.]+)s", text)
    assert length is not None
    assert 20 <= float(length[1]) <= 40
    assert not re.search(r"<script|@import|url\(|https?://(?!www\.w3\.org/2000/svg)", text)
