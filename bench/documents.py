"""What a run leaves behind: the JSON of every round, the Markdown table, the pictures, the README's table.

Only a whole run touches docs/benchmarks and the README; anything less is written beside the JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.judge import LineResult
from bench.model import Suite
from bench.plots import draw_growth, draw_ratios
from bench.report import markdown, markdown_table
from bench.runner import MeasureRecord

RESULTS = Path("build/bench")
DOCS = Path("docs/benchmarks")
README = Path("README.md")


def write_json(path: Path, run: Mapping[str, Any], records: Sequence[MeasureRecord]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {**run, "measures": [record.as_json() for record in records]}
    path.write_text(json.dumps(document, indent=1))


def write_documents(
    suite: Suite, results: Sequence[LineResult], records: Sequence[MeasureRecord], run: Mapping[str, Any]
) -> None:
    folder = DOCS if run["whole"] else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {"ratios to Apache Kafka": f"{suite.name}.png"}
    draw_ratios(suite.title, results, folder / f"{suite.name}.png")
    for record in records:
        if record.measure.name == "fresh_node":
            pictures["growth"] = f"{suite.name}-growth.png"
            draw_growth(record.rounds(), folder / pictures["growth"])
    (folder / f"{suite.name}.md").write_text(markdown(suite.title, results, run, pictures=pictures))
    if run["whole"] and README.exists():
        README.write_text(with_table(README.read_text(), suite.name, markdown_table(results)))


def with_table(text: str, suite: str, table: str) -> str:
    """The text with everything between its marks for this suite replaced; without marks, as it was."""
    begin, end = f"<!-- bench:{suite} -->", f"<!-- /bench:{suite} -->"
    marked = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return marked.sub(lambda _: f"{begin}\n{table}{end}", text)
