# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/transactions.md run, one after the other, against a live node; its metrics exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from tests.harness.live.committed import wait_for_markers

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "transactions.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
ORDERS = ["12.50", "3.00", "7.00", "9.00"]


def values(bootstrap: str, topic: str) -> list[str]:
    found = headrace.read(topic, bootstrap=bootstrap, value="string", columns=["value"]).read_all()
    return sorted(found["value"].to_pylist())


def test_the_examples_run(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Under names that no other test of this node has."""
    text = "\n".join(EXAMPLES)
    for name in ("orders", "audit", "invoices", "copies", "billing", "copiers"):
        text = re.sub(rf'"{name}(-\d)?"', rf'"doc-{name}\1"', text)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [f"doc-{name}" for name in ("orders", "audit", "invoices", "copies")]
    for future in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        future.result(20)
    exec(compile(text, "docs/transactions.md", "exec"), {"BOOTSTRAP": bootstrap})
    wait_for_markers(bootstrap, *topics)
    assert values(bootstrap, "doc-orders") == values(bootstrap, "doc-copies") == ORDERS
    assert values(bootstrap, "doc-audit") == ["an order of ann", "an order of dee"]
    (invoice,) = values(bootstrap, "doc-invoices")
    assert invoice.removeprefix("invoice: ") in ORDERS
    assert capsys.readouterr().out == "4 4\n"


def test_every_metric_and_setting_is_documented() -> None:
    metrics = (DOCS / "metrics.md").read_text()
    named = {name.removesuffix("_total") for name in re.findall(r"`(headrace_\w+)", TEXT)}
    assert len(named) >= 9
    assert {name for name in named if name not in metrics} == set()
    settings = (DOCS / "configuration.md").read_text()
    wanted = set(re.findall(r"`((?:transaction|transactional|headrace\.transaction)\.[a-z.]+)`", TEXT))
    ours = wanted - {"transaction.timeout.ms", "transactional.id", "transaction.version"}
    assert {name for name in ours if f"`{name}`" not in settings} == set()
