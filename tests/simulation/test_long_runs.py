# SPDX-License-Identifier: Apache-2.0
"""How long runs of simulations are divided over machines, and the table of mutations (T3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import mutation_coverage, soak
from tests.harness.mutation_coverage import NOT_MEASURED, Noticed, Result, known, patches, rules, table
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


def test_the_table_has_what_was_measured_and_keeps_what_the_page_said() -> None:
    by = Noticed(proof="simulation.one_node", schedules=("a_schedule", "another"), seeds=40, by_seeds=9)
    result = Result(patch="duplicates_appended", digest="d", commit="c", noticed=(by,))
    text = "\n".join(table({"duplicates_appended": result}, ""))
    row = next(line for line in text.splitlines() if "`duplicates_appended`" in line)
    assert row.startswith("| R28 | ")
    assert row.endswith(" | schedule `a_schedule` and 1 more, 9 of 40 seeds |")
    assert all(f"\n| {rule} |" in text for rule in rules())
    assert all(f"`{patch}`" in text for patch in patches())
    assert text.count(NOT_MEASURED) == len(patches()) - 1
    assert row in "\n".join(table({}, text)).splitlines()


def test_what_notices_a_patch_is_told_in_words() -> None:
    nothing = Noticed(proof="simulation.one_node", seeds=40)
    model = Noticed(proof="replication.proof", seeds=800, by_seeds=1)
    test = Noticed(proof="tests/unit/test_x.py::test_y")
    told = [
        str(Result(patch="p", digest="d", commit="c", noticed=each))
        for each in ((nothing,), (nothing, model))
    ]
    assert told == ["nothing: none of 40 seeds", "1 of 800 seeds of the model"]
    assert str(test) == "test `test_y` (`tests/unit/test_x.py`)"


def test_all_seeds_are_counted_and_a_measured_patch_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(soak, "REPORTS", tmp_path)
    monkeypatch.setattr(mutation_coverage, "RESULTS", tmp_path / "results.jsonl")
    mutation_coverage.main("run", "2", "duplicates_appended")
    (found,) = known().values()
    (noticed,) = found.noticed
    assert noticed.seeds == 2
    assert 0 <= noticed.by_seeds <= 2
    monkeypatch.setattr(mutation_coverage, "measure", lambda *_: pytest.fail("it was measured before"))
    mutation_coverage.main("run", "2", "duplicates_appended")
