# SPDX-License-Identifier: Apache-2.0
"""Frames of a terminal as one animated SVG: no scripts, no fonts of its own, so that it plays inside <img>.

The frames lie below each other and CSS moves them past a window. Without animation the last frame is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tests.harness.recording.terminal import COLUMNS, ROWS, Frame, Row, Run

WIDTH, HEIGHT, FONT = 8.4, 17, 14
"""Of a letter; rows touch, so that boxes are closed."""
MARGIN, BAR = 16, 34
BACKGROUND, FOREGROUND, BORDER = "#0d1117", "#e6edf3", "#3d444d"
COLOURS = {
    "red": "#ff7b72",
    "green": "#56d364",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#56d4dd",
}
"""By pyte's names; what is not here has the colour of the text."""
_BUTTONS = ("#ff5f57", "#febc2e", "#28c840")


def draw(frames: Sequence[Frame], title: str) -> str:
    rows = {row: number for number, row in enumerate(dict.fromkeys(r for f in frames for r in f.rows if r))}
    width, height = COLUMNS * WIDTH + 2 * MARGIN, ROWS * HEIGHT + BAR + MARGIN
    size = f'width="{width:g}" height="{height:g}"'
    shape = f'width="{width - 1:g}" height="{height - 1:g}" fill="{BACKGROUND}" stroke="{BORDER}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" {size}>',
        f"<title>{escape(title)}</title>",
        f"<style>{_style(frames)}</style>",
        "<defs>",
        *(f'<g id="r{number}">{_drawn_row(row)}</g>' for row, number in rows.items()),
        "</defs>",
        f'<rect x="0.5" y="0.5" rx="8" {shape}/>',
        *(
            f'<circle cx="{MARGIN + 6 + 20 * place}" cy="{BAR / 2:g}" r="6" fill="{colour}"/>'
            for place, colour in enumerate(_BUTTONS)
        ),
        f'<svg x="{MARGIN}" y="{BAR}" width="{COLUMNS * WIDTH:g}" height="{ROWS * HEIGHT}">',
        f'<g class="film" transform="translate(0 {-_top(len(frames) - 1)})">',
        *(_drawn_frame(place, frame, rows) for place, frame in enumerate(frames)),
        "</g></svg></svg>",
    ]
    return "\n".join(lines) + "\n"


def _style(frames: Sequence[Frame]) -> str:
    total = sum(frame.seconds for frame in frames)
    steps, passed = [], 0.0
    for place, frame in enumerate(frames):
        steps.append(f"{100 * passed / total:.3f}%{{transform:translate(0,{-_top(place)}px)}}")
        passed += frame.seconds
    return (
        f"text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        f"fill:{FOREGROUND};white-space:pre}}.b{{font-weight:bold}}"
        + "".join(f".{name}{{fill:{colour}}}" for name, colour in COLOURS.items())
        + f".film{{animation:film {total:.2f}s step-end infinite}}"
        + f"@keyframes film{{{''.join(steps)}100%{{transform:translate(0,{-_top(len(frames) - 1)}px)}}}}"
        + "@media(prefers-reduced-motion:reduce){.film{animation:none}}"
    )


def _top(place: int) -> int:
    return place * ROWS * HEIGHT


def _drawn_row(row: Row) -> str:
    return "".join(
        f'<text x="{run.column * WIDTH:.1f}" textLength="{len(run.text) * WIDTH:.1f}"'
        f' lengthAdjust="spacingAndGlyphs"{_classes(run)}>{escape(run.text, quote=False)}</text>'
        for run in row
    )


def _classes(run: Run) -> str:
    names = [run.colour] * (run.colour in COLOURS) + ["b"] * run.bold
    return f' class="{" ".join(names)}"' if names else ""


def _drawn_frame(place: int, frame: Frame, rows: dict[Row, int]) -> str:
    top = _top(place) + FONT
    return "".join(
        f'<use href="#r{rows[row]}" y="{top + y * HEIGHT}"/>' for y, row in enumerate(frame.rows) if row
    )
