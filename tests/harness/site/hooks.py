# SPDX-License-Identifier: Apache-2.0
"""Hooks of MkDocs (mkdocs.yml): adds pages that are written at build time, and files outside docs/.

Read next: cli_reference.py, python_reference.py, api_reference.py, outside_links.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from tests.harness.site import api_reference, cli_reference, decisions, outside_links, python_reference

_WORKER_ELSEWHERE = "https://unpkg.com/iframe-worker/shim"
"""Material's way to search in pages opened from file://; docs/site/worker.js does the same."""
ROOT = Path(__file__).resolve().parents[3]
GENERATED: Mapping[str, Callable[[], str]] = {
    "reference/cli.md": cli_reference.page,
    "reference/python.md": python_reference.page,
    "reference/apis.md": api_reference.page,
    "decisions/index.md": decisions.page,
}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for path, write in GENERATED.items():
        files.append(File.generated(config, path, content=write()))
    for path, source in outside_links.pages_and_files(ROOT).items():
        files.append(File.generated(config, path, abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    return _pipes_in_code(outside_links.rewrite(markdown, page.file.src_uri, ROOT))


def on_post_template(output: str, *, template_name: str, config: MkDocsConfig) -> str:
    """Of 404.html, which lies at the top."""
    return output.replace(_WORKER_ELSEWHERE, "site/worker.js")


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    return output.replace(_WORKER_ELSEWHERE, get_relative_url("site/worker.js", page.url))


def _pipes_in_code(markdown: str) -> str:
    """GitHub wants pipes escaped in the code of a table; Python-Markdown would show the backslash."""
    lines = markdown.split("\n")
    for place, line in enumerate(lines):
        if line.startswith("|"):
            parts = line.split("`")
            parts[1::2] = [part.replace("\\|", "|") for part in parts[1::2]]
            lines[place] = "`".join(parts)
    return "\n".join(lines)
