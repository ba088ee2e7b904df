# SPDX-License-Identifier: Apache-2.0
"""Every snippet of the documents is executed, here or by a test of its page, or says why not.

What a document shows as output is compared with what is printed. Conventions: CONTRIBUTING.md, "Snippets".
"""

from __future__ import annotations

import re
import socket
from contextlib import nullcontext
from pathlib import Path

import pytest

from headrace.cluster.engines.engine import free_ports
from headrace.testing import Broker
from tests.harness.snippets.blocks import Language, matches, read_snippets
from tests.harness.snippets.page_run import METRICS_PORT, NODE_PORT, PageRun

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WITHOUT_INSTRUCTIONS = ("benchmarks", "decisions", "design", "evidence")
PYTHON_TESTED_BY = {
    "arrow.md": "test_arrow_doc.py",
    "pipelines.md": "test_pipelines_doc.py",
    "test-broker.md": "test_test_broker_doc.py",
    "transactions.md": "test_transactions_doc.py",
}
"""Pages whose Python is executed by a test of its own."""
TUTORIAL = DOCS / "tutorial.md"
"""test_walk.py follows it, in an environment that has the built wheel."""


def _name(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


def _languages(path: Path) -> tuple[Language, ...]:
    return ("sh",) if _name(path) in PYTHON_TESTED_BY else ("sh", "python")


def _runs_something(path: Path) -> bool:
    languages = _languages(path)
    return any(each.not_executed is None and each.language in languages for each in read_snippets(path))


PAGES = [
    path for path in sorted(DOCS.rglob("*.md")) if path.relative_to(DOCS).parts[0] not in WITHOUT_INSTRUCTIONS
]
EXECUTED = [path for path in PAGES if _runs_something(path) and path != TUTORIAL]


def _three_ports() -> int:
    """The first of three free ports in a row, for the nodes of a cluster."""
    while True:
        (first,) = free_ports(1)
        try:
            for port in (first + 1, first + 2):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first


def _run(path: Path, folder: Path) -> None:
    first, metrics = _three_ports(), free_ports(1)[0]
    run = PageRun(
        document=path,
        folder=folder / "reader",
        ports={NODE_PORT: first, NODE_PORT + 1: first + 1, NODE_PORT + 2: first + 2, METRICS_PORT: metrics},
        languages=_languages(path),
    )
    executed = [each for each in read_snippets(path) if each.not_executed is None]
    starts_nodes = any(each.background or "headrace cluster up" in each.code for each in executed)
    with nullcontext() if starts_nodes else Broker(port=first):
        assert run.run() > 0


@pytest.mark.parametrize("path", EXECUTED, ids=_name)
def test_a_page_prints_what_it_shows(path: Path, tmp_path: Path) -> None:
    _run(path, tmp_path)


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_what_is_not_executed_says_why(path: Path) -> None:
    text = path.read_text()
    reasons = [each.not_executed for each in read_snippets(path) if each.not_executed is not None]
    assert all(reasons), "a reason is missing"
    named = [name for reason in reasons for name in re.findall(r"(?:tests|docs|examples)/[\w./-]*\w", reason)]
    assert [name for name in named if not (ROOT / name).exists()] == []
    unexplained = re.findall(r"(?<!-->\n)^```(?:py|bash|shell|python3)$", text, re.MULTILINE)
    assert unexplained == [], "blocks in another notation need a reason, too"


def test_tests_of_single_pages_exist_and_run_them() -> None:
    for page, test in PYTHON_TESTED_BY.items():
        text = (Path(__file__).parent / test).read_text()
        assert page in text
        assert "EXAMPLES" in text


def test_other_output_is_noticed() -> None:
    assert matches("a … c\n…\nlast\n", "a bb c\none\ntwo\nlast\n")
    assert matches("…\nlast\n", "last\n")
    assert not matches("a … c\nlast\n", "a bb c\none\nlast\n")
    assert not matches("one\n", "one\ntwo\n")
    assert matches("one\n", "one\ntwo\n", prefix=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```sh\necho two\n```\n\n```text\none\n```\n", "but this is printed:\ntwo"),
        ("```sh\nfalse\ntrue\n```\n", "ended with 1"),
        ("<!-- fails -->\n```sh\ntrue\n```\n", "ended with 0"),
        ("```python\nraise ValueError('why')\n```\n", "ValueError: why"),
    ],
)
def test_a_wrong_page_fails(text: str, message: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError, match=message):
        PageRun(document=page, folder=tmp_path / "reader", ports={NODE_PORT: 1}).run()


def test_state_is_kept_between_blocks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nexport A=1; cd /\n```\n```sh\necho $A $PWD\n```\n```text\n1 /\n```\n"
        "```python\nb = 2\n```\n```python\nprint(b)\n```\n```text\n2\n```\n"
    )
    assert PageRun(document=page, folder=tmp_path / "reader", ports={NODE_PORT: 1}).run() == 4
