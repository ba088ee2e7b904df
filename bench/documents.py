# SPDX-License-Identifier: Apache-2.0
"""Writes the results of a run: the JSON of every round, the Markdown table, the pictures.

Only a whole run touches docs/benchmarks; anything less is written beside the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.curves import curves_of
from bench.judge import LineResult
from bench.model import Suite
from bench.plots import draw_curves, draw_growth, draw_ratios
from bench.report import curves_table, markdown
from bench.runner import MeasureRecord

RESULTS = Path("build/bench")
DOCS = Path("docs/benchmarks")


def write_json(path: Path, run: Mapping[str, Any], records: Sequence[MeasureRecord]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {**run, "measures": [record.as_json() for record in records]}
    path.write_text(json.dumps(document, indent=1))


def write_documents(
    suite: Suite, results: Sequence[LineResult], records: Sequence[MeasureRecord], run: Mapping[str, Any]
) -> None:
    folder = DOCS if run["whole"] else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {}
    has_curves = any(record.measure.curves for record in records)
    if not has_curves and draw_ratios(suite.title, results, folder / f"{suite.name}.png"):
        pictures["ratios to Apache Kafka"] = f"{suite.name}.png"
    for record in records:
        if record.measure.name == "fresh_node":
            pictures["growth"] = f"{suite.name}-growth.png"
            draw_growth(record.rounds(), folder / pictures["growth"])
    text = markdown(suite.title, results, run, pictures=pictures)
    if curves := curves_of(records):
        draw_curves(suite.title, curves, folder / f"{suite.name}.png")
        text += f"\n## Curves\n\n{curves_table(curves)}\n![curves]({suite.name}.png)\n"
    (folder / f"{suite.name}.md").write_text(text)
