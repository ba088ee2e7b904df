# SPDX-License-Identifier: Apache-2.0
"""Every measured figure that a document quotes is the one of the published table, rounded."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.harness.figures import COLUMNS, agrees, find_figures, normalized, read_cell

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks"
PAGES = [
    ROOT / "README.md",
    ROOT / "ROADMAP.md",
    BENCHMARKS / "README.md",
    *sorted(
        page
        for page in (ROOT / "docs").rglob("*.md")
        if page.relative_to(ROOT / "docs").parts[0] not in ("benchmarks", "decisions", "design", "evidence")
    ),
]
DOCUMENTS = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
REGISTRY = tomllib.loads((ROOT / "tests" / "docs" / "figures.toml").read_text())
NOT_PUBLISHED = "not in a table"
QUOTES = [
    (document, table, quote, cell)
    for document, tables in REGISTRY.items()
    for table, quotes in tables.items()
    for quote, cell in quotes.items()
]


@pytest.mark.parametrize(("document", "table", "quote", "cell"), QUOTES)
def test_a_quoted_figure_is_in_its_document_and_in_its_table(
    document: str, table: str, quote: str, cell: tuple[str, str]
) -> None:
    assert normalized(DOCUMENTS[document]).count(quote) == 1, f"{document} must contain once: {quote}"
    if table == NOT_PUBLISHED:
        return
    column, row = cell
    measured = read_cell(BENCHMARKS / table, row, column)
    assert agrees(quote, measured), f"{document} says {quote!r}, docs/benchmarks/{table}: {measured}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_figure_is_registered(document: str) -> None:
    text = normalized(DOCUMENTS[document])
    quotes = [quote for quotes in REGISTRY.get(document, {}).values() for quote in quotes]
    spans = [match.span() for quote in quotes for match in re.finditer(re.escape(quote), text)]
    unknown = [
        text[max(0, figure.begin - 50) : figure.end + 10]
        for figure in find_figures(DOCUMENTS[document])
        if not any(begin <= figure.begin and figure.end <= end for begin, end in spans)
    ]
    assert not unknown, f"say in tests/docs/figures.toml where {document} has these figures from: {unknown}"


# -- the scanner -------------------------------------------------------------------------------------------

PAGE = """# Title
It is 2.4× as fast (target ≥ 4×), reads 11.5 million records/s
and waits 10 s. `0.5× in code`

```text
3× in a block
```

## Measured
[table](benchmarks/x.md): 3 ms, 1,946
MB and 20 times more, but acks=1 s
"""


def test_ratios_and_rates_are_found_and_times_where_a_section_links_to_a_benchmark() -> None:
    figures = find_figures(PAGE)
    assert [each.text for each in figures] == [
        "2.4×",
        "11.5 million records/s",
        "3 ms",
        "1,946 MB",
        "20 times",
    ]
    assert [normalized(PAGE)[each.begin : each.end] for each in figures] == [each.text for each in figures]


@pytest.mark.parametrize(
    ("quote", "cell", "agreed"),
    [
        ("0.12 s", "119 ms", True),
        ("10.1 s", "10,060 ms", True),
        ("10.0 s", "10,060 ms", False),
        ("11.5 million records/s", "11,530,330 records/s", True),
        ("32 times", "32.3 × confluent-kafka", True),
        ("31 times", "32.3 × confluent-kafka", False),
        ("commits 0.66×", "0.66× (0.50 … 0.95)", True),
        ("1.5×", "1.94× (1.29 … 2.28)", False),
        ("15.5 k commits/s", "15,512 commits/s", True),
        ("15.5 k commits/s", "15.5 k commits/s", True),
        ("p99 0.83 and", "0.83 ms", True),
        ("p99 0.99 and", "0.83 ms", False),
    ],
)
def test_a_quote_agrees_when_it_is_the_cell_rounded(quote: str, cell: str, agreed: bool) -> None:
    assert agrees(quote, cell) is agreed


def test_a_cell_is_found_by_row_and_column(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    table.write_text(
        "| m | K | H | r | t |  | A | r |\n|---|\n| start | 2 s | 1 s | 0.5× | – | met | 3 s | 1.5× |\n"
    )
    assert [read_cell(table, "start", column) for column in COLUMNS] == [
        "2 s",
        "1 s",
        "0.5×",
        "–",
        "3 s",
        "1.5×",
    ]
    with pytest.raises(LookupError, match="0 rows named 'stop'"):
        read_cell(table, "stop", "os")
