# SPDX-License-Identifier: Apache-2.0
"""Every metric is in docs/metrics.md with its type and labels, and nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.broker.reporting.cores_endpoint import OWN_FAMILIES
from headrace.broker.reporting.metric_family import Family
from headrace.broker.reporting.metrics_export import FAMILIES

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(headrace_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


def scraped_name(family: Family) -> str:
    return f"{family.name}_total" if family.kind == "counter" else family.name


def test_the_table_has_every_metric_in_the_order_of_a_scrape() -> None:
    documented = [name for name, *_ in ROW.findall(DOCUMENT.read_text())]
    of_cores = [family.name for family in OWN_FAMILIES]
    assert documented == [*of_cores, *(scraped_name(family) for family in FAMILIES)]


def test_types_and_labels_are_as_scraped() -> None:
    rows = {
        name: (kind, re.findall(r"`(\w+)`", labels))
        for name, kind, labels in ROW.findall(DOCUMENT.read_text())
    }
    of_nodes = {scraped_name(family): (family.kind, list(family.labels)) for family in FAMILIES}
    of_cores = {family.name: (family.kind, ["core", "node"]) for family in OWN_FAMILIES}
    assert rows == of_cores | of_nodes


def test_every_metric_that_the_other_documents_name_exists() -> None:
    known = {scraped_name(family) for family in FAMILIES} | {family.name for family in OWN_FAMILIES}
    known.add("headrace_delta")  # a format of Spark's
    suffixes = ("_bucket", "_sum", "_count")
    for document in [*DOCUMENT.parent.glob("*.md"), DOCUMENT.parents[1] / "README.md"]:
        for name in re.findall(r"\bheadrace_[a-z0-9_]+", document.read_text()):
            base = next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)
            assert base in known, f"{document.name} names {name}"
