# SPDX-License-Identifier: Apache-2.0
"""The documentation site builds without warnings, needs no network, and its generated pages are complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

import headrace
from headrace.cli.commands import app
from headrace.wire.api_table import APIS
from tests.harness.site import cli_reference
from tests.harness.site.docstrings import with_lists
from tests.harness.site.outside_links import rewrite
from tests.harness.site.python_reference import public_names

ROOT = Path(__file__).resolve().parents[2]
BUILD_S = 120


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


class _Loaded(HTMLParser):
    """Addresses that a browser loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.addresses.append(values.get("src") or "")
        elif tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(values.get("href") or "")


def test_no_page_loads_anything_from_a_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        loaded = _Loaded()
        loaded.feed(page.read_text())
        assert [address for address in loaded.addresses if re.match(r"(https?:)?//", address)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", sheet.read_text()), sheet


def test_the_search_index_can_be_loaded_from_a_file(site: Path) -> None:
    """A browser refuses to fetch from file://; the offline plugin has the index as a script."""
    assert "troubleshooting" in (site / "search/search_index.js").read_text()
    assert (site / "index.html").exists()


def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    text = (site / "reference/cli.html").read_text()
    named = [path for path, _ in cli_reference.commands()]
    assert len(named) > 40
    for path, command in cli_reference.commands():
        assert f'<h2 id="{path.replace(" ", "-")}">' in text
        for parameter in command.params:
            if not getattr(parameter, "hidden", False) and parameter.param_type_name == "option":
                assert parameter.opts[-1] in text
    top = get_command(app)
    assert isinstance(top, TyperGroup)
    assert set(top.commands) == {path.split()[1] for path in named}


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    text = (site / "reference/python.html").read_text()
    assert {"read", "write", "stream", "transform", "Security"} <= set(public_names())
    for name in [*(f"headrace.{each}" for each in public_names()), "headrace.testing.Broker"]:
        assert f'id="{name}"' in text
    assert set(public_names()) <= set(dir(headrace))


def test_every_api_is_in_the_reference(site: Path) -> None:
    text = (site / "reference/apis.html").read_text()
    assert text.count("<tr>") == len(APIS) + 1


def test_links_out_of_the_documents_lead_into_the_site() -> None:
    text = "[a](../deploy/headrace.service) [b](../ROADMAP.md#done) [c](concepts.md#log) [d](../deploy)"
    expected = "[a](files/deploy/headrace.service) [b](project/roadmap.md#done) [c](concepts.md#log) d"
    assert rewrite(text, "operations.md", ROOT) == expected
    assert rewrite("[x](https://a.b/c)", "operations.md", ROOT) == "[x](https://a.b/c)"
    assert rewrite("[x](docs/decisions)", "project/roadmap.md", ROOT) == "[x](../decisions/index.md)"


def test_options_in_docstrings_become_a_list() -> None:
    text = "Reads.\n\nstart, end: an offset,\n    or a datetime.\nlast: so long ago.\n\nClientError: never."
    listed = "\n- `start`, `end`: an offset,\n    or a datetime.\n- `last`: so long ago."
    assert with_lists(text) == f"Reads.\n\n{listed}\n\nClientError: never."
