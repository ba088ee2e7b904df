# SPDX-License-Identifier: Apache-2.0
"""The demo's report: one file that loads nothing, with every scene, escaped, and totals that add up."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from headrace.demo.chart import Chart, Series, as_svg
from headrace.demo.playing import Outcome, Played
from headrace.demo.report import html
from headrace.demo.scene import Scene
from headrace.demo.screen import Part, Promise, Recording

HOSTILE = '<script>alert(1)</script><img src="http://elsewhere/x.png" onerror="alert(2)">'
MADE_AT = datetime(2026, 1, 31, 14, 5, tzinfo=UTC)


class Page(HTMLParser):
    """Tags with their attributes, and the text of table cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._in_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data


def page_of(document: str) -> Page:
    page = Page()
    page.feed(document)
    page.close()
    return page


def played(name: str, *held: bool, left_out: str | None = None, parts: tuple[Part, ...] = ()) -> Played:
    promises = [Promise(text=f"promise {number} {HOSTILE}", held=each) for number, each in enumerate(held)]
    scene = Scene(name=name, title=f"Scene {name} {HOSTILE}", play=lambda stage: None)
    return Played(scene=scene, recording=Recording(parts=list(parts), promises=promises), left_out=left_out)


@pytest.fixture
def document(tmp_path: Path) -> str:
    chart = Chart(
        title=f"Lag {HOSTILE}",
        x_label="seconds",
        y_label="records",
        series=[Series(name=HOSTILE, points=[(0, 1), (1, 2)])],
    )
    (tmp_path / "lag.svg").write_text(as_svg(chart))
    parts = (
        Part(kind="prose", text=f"Prose {HOSTILE}"),
        Part(kind="output", text=f"$ echo '{HOSTILE}'"),
        Part(kind="output", text="second line"),
        Part(kind="picture", text=HOSTILE, file="lag.svg"),
    )
    outcome = Outcome(
        played=[
            played("one", True, True, parts=parts),
            played("two", True, False),
            played("three", left_out=f"no Java {HOSTILE}"),
        ],
        took_s=12.34,
    )
    return html(outcome, pictures=tmp_path, engine="Headrace", made_at=MADE_AT)


def test_it_loads_and_runs_nothing(document: str) -> None:
    page = page_of(document)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "form", "base", "image", "use"}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") or name in ("src", "style") for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    policy = [attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_every_scene_is_there_with_its_picture_drawn_in_the_file(document: str) -> None:
    page = page_of(document)
    assert [attributes["id"] for tag, attributes in page.tags if tag == "section"] == ["one", "two", "three"]
    assert sum(tag == "svg" for tag, _ in page.tags) == 1
    assert "echo &#x27;&lt;script&gt;" in document
    assert "second line</pre>" in document, "lines of output stay together"
    assert "Left out: no Java &lt;script&gt;" in document
    assert "2026-01-31 14:05 UTC" in document


def test_the_totals_add_up(document: str) -> None:
    head, *scenes, total = page_of(document).rows
    assert head == ["Scene", "Promises", "Held", "Result"]
    assert [row[1:] for row in scenes] == [
        ["2", "2", "✓ held"],
        ["2", "1", "✗ broken"],
        ["0", "0", "left out"],
    ]
    assert total == ["All", "4", "3", "12.3 s"]
    assert [sum(int(row[column]) for row in scenes) for column in (1, 2)] == [
        int(each) for each in total[1:3]
    ]
    assert "NOT as promised: 1 of 4 broken" in document
