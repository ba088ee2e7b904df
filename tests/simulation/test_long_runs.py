# SPDX-License-Identifier: Apache-2.0
"""How long runs of simulations are divided over machines, and the table of mutations (T3)."""

from __future__ import annotations

import pytest

from tests.harness import mutation_coverage, soak
from tests.harness.mutation_coverage import Noticed, patches, rules, table
from tests.harness.simulation.seeds import Tally


def test_a_range_of_seeds_is_a_part_of_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SEED", "7")
    for name in ("HEADRACE_SEEDS", "HEADRACE_SOAK_SEEDS", "HEADRACE_SOAK_HOURS"):
        monkeypatch.delenv(name, raising=False)
    assert soak.long_seeds(5) == range(307, 312)
    monkeypatch.setenv("HEADRACE_SOAK_SEEDS", "3")
    assert soak.long_seeds(5) == range(307, 310)
    monkeypatch.setenv("HEADRACE_SOAK_SEEDS", "5000-6000")
    assert soak.long_seeds(5) == range(5000, 6000)
    monkeypatch.setenv("HEADRACE_SOAK_HOURS", "0.5")
    assert soak.hours_per_seed(2.0) == 0.5


def test_a_report_has_virtual_hours_for_each_hour_of_a_processor() -> None:
    tally = Tally()
    tally.figures.update({"logical_s": 7200, "cpu_s": 36, "commits": 3})
    report = tally.as_report()
    assert (report["logical_hours"], report["logical_hours_per_cpu_hour"]) == (2.0, 200.0)
    assert report["commits"] == 3


def test_the_table_names_every_rule_and_every_patch() -> None:
    found = Noticed(
        patch="duplicates_appended", rule="R28", simulation="one_node", commit="c", seeds=40, by_seeds=9,
        by_schedules=("a_schedule",),
    )  # fmt: skip
    text = "\n".join(table({"duplicates_appended": found}))
    assert "`duplicates_appended` 9 of 40, 1 schedules" in text
    assert all(f"\n| {rule} |" in text for rule in rules())
    assert all(f"`{patch}`" in text for patch in patches())
    assert "| R1 | no patch |" in text


def test_all_seeds_are_counted() -> None:
    found = mutation_coverage.measure("duplicates_appended", 2)
    assert (found.rule, found.seeds) == ("R28", 2)
    assert 0 <= found.by_seeds <= 2
