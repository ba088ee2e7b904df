# SPDX-License-Identifier: Apache-2.0
"""What a demo has shown as one HTML file that needs nothing else: scenes, pictures, promises, totals.

The file loads nothing and runs nothing; its policy forbids both. Every text of the demo is escaped; pictures
are the SVG documents of chart.py, which escapes their texts.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from pathlib import Path

from headrace.demo.playing import Outcome, Played
from headrace.demo.screen import Part
from headrace.version import __version__

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --text: #1c2733; --faint: #51606f; --back: #fff; --box: #f3f5f7;
  --line: #d3dae0; --good: #14692f; --bad: #a3161e; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e9ee; --faint: #a9b6c2; --back: #14191f;
  --box: #1d242c; --line: #36414c; --good: #6fd08c; --bad: #ff9a93; } }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; font: 1rem/1.55 system-ui, sans-serif;
  color: var(--text); background: var(--back); }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .3rem; }
.faint { color: var(--faint); margin: 0 0 1rem; }
pre { background: var(--box); border: 1px solid var(--line); border-radius: 6px; padding: .8rem;
  overflow-x: auto; font: .82rem/1.45 ui-monospace, monospace; }
figure { margin: 1rem 0; } figure svg { display: block; width: 100%; max-width: 47.5rem; height: auto;
  border: 1px solid var(--line); border-radius: 6px; } figcaption { color: var(--faint); font-size: .9rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .4rem;  border-bottom: 1px solid var(--line); }
td.number, th.number { text-align: right; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
ul.promises { list-style: none; padding: 0; } a { color: inherit; }
"""


def html(outcome: Outcome, *, pictures: Path, engine: str, made_at: datetime | None = None) -> str:
    """The whole document. `pictures`: the directory with the files that scenes have drawn."""
    made = (made_at or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC")
    about = f"Headrace {__version__}, nodes of {engine}, Python {platform.python_version()}, {made}"
    sections = [_section(each, pictures) for each in outcome.played]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Report of headrace demo</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>",
            f'<h1>Report of <code>headrace demo</code></h1>\n<p class="faint">{escape(about)}</p>',
            *_verdict(outcome),
            *_totals(outcome),
            *sections,
            "</main>\n</body>\n</html>\n",
        ]
    )


def _verdict(outcome: Outcome) -> Iterator[str]:
    kind = "good" if outcome.all_held else "bad"
    for line in outcome.verdict():
        yield f'<p class="{kind}">{escape(line)}</p>'


def _totals(outcome: Outcome) -> Iterator[str]:
    yield '<table>\n<thead><tr><th scope="col">Scene</th><th scope="col" class="number">Promises</th>'
    yield '<th scope="col" class="number">Held</th><th scope="col">Result</th></tr></thead>\n<tbody>'
    for each in outcome.played:
        yield _total_row(each)
    promises = [promise for each in outcome.played for promise in each.recording.promises]
    held = sum(promise.held for promise in promises)
    yield f'</tbody>\n<tfoot><tr><th scope="row">All</th><td class="number">{len(promises)}</td>'
    yield f'<td class="number">{held}</td><td>{outcome.took_s:.1f} s</td></tr></tfoot>\n</table>'


def _total_row(each: Played) -> str:
    promises = each.recording.promises
    held = sum(promise.held for promise in promises)
    if each.left_out is not None:
        result = "left out"
    elif each.broken:
        result = '<span class="bad">✗ broken</span>'
    else:
        result = '<span class="good">✓ held</span>'
    link = f'<a href="#{escape(each.scene.name)}">{escape(each.scene.title)}</a>'
    numbers = f'<td class="number">{len(promises)}</td><td class="number">{held}</td>'
    return f"<tr><td>{link}</td>{numbers}<td>{result}</td></tr>"


def _section(each: Played, pictures: Path) -> str:
    name = escape(each.scene.name)
    lines = [f'<section id="{name}">\n<h2>{escape(each.scene.title)}</h2>']
    lines.append(f'<p class="faint"><code>headrace demo --scene {name}</code></p>')
    if each.left_out is not None:
        lines.append(f"<p>Left out: {escape(each.left_out)}.</p>")
    for kind, group in groupby(each.recording.parts, key=lambda part: part.kind):
        lines += _parts(kind, list(group), pictures)
    lines += _promises(each)
    return "\n".join([*lines, "</section>"])


def _parts(kind: str, parts: Sequence[Part], pictures: Path) -> list[str]:
    if kind == "output":
        return [f"<pre>{escape(chr(10).join(part.text for part in parts))}</pre>"]
    if kind == "picture":
        return [_picture(part, pictures) for part in parts]
    return [f"<p>{escape(part.text)}</p>" for part in parts]


def _picture(part: Part, pictures: Path) -> str:
    drawing = (pictures / part.file).read_text(encoding="utf-8")
    return f"<figure>\n{drawing}<figcaption>{escape(part.text)}</figcaption>\n</figure>"


def _promises(each: Played) -> Iterator[str]:
    if not each.recording.promises:
        return
    yield '<ul class="promises">'
    for promise in each.recording.promises:
        mark, kind = ("✓", "good") if promise.held else ("✗", "bad")
        yield f'<li><span class="{kind}">{mark}</span> {escape(promise.text)}</li>'
    yield "</ul>"
