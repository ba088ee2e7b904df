# SPDX-License-Identifier: Apache-2.0
"""A run records which tests of a row of the drawings passed; what it did not prove is named, not counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import drawings, row_record, row_summary
from tests.harness.drawings import DRAWINGS
from tests.harness.row_record import Entry, Outcome, read_record

DEMO = "tests/integration/test_demo.py"
PLUGIN = """
def pytest_configure(config):
    config.addinivalue_line("markers", "row(number): a row")
    from tests.harness.row_record import register
    register(config)
"""
TESTS = """
import pytest
from tests.harness.left_out import leave_out

pytestmark = pytest.mark.row("D1")

@pytest.mark.row("D2")
@pytest.mark.parametrize("number", range(2))
def test_of_two_rows(number):
    pass

@pytest.mark.row("D3")
def test_that_fails():
    assert False

@pytest.fixture
def broken_at_its_end():
    yield
    raise OSError("disk")

@pytest.mark.row("D4")
def test_that_cannot_clean_up(broken_at_its_end):
    pass

@pytest.mark.row("D22")
def test_on_spark():
    leave_out("Spark", "no Java")

@pytest.mark.row("D5")
def test_of_another_system():
    pytest.skip("not here")
"""


def run(folder: Path, *options: str, record: bool = True) -> list[Entry]:
    (folder / "conftest.py").write_text(PLUGIN)
    (folder / "test_some.py").write_text(TESTS)
    file = folder / "build" / "rows.txt"
    environment = {name: value for name, value in os.environ.items() if name != row_record.FILE_VARIABLE}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, "test_some.py"],
        cwd=folder, capture_output=True, check=False,
        env={**environment, **({row_record.FILE_VARIABLE: str(file)} if record else {})},
    )  # fmt: skip
    return read_record(file)


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "in workers"])
def test_a_run_records_the_outcome_of_each_test_of_a_row(tmp_path: Path, options: tuple[str, ...]) -> None:
    found = {(entry.row, entry.test.partition("::")[2]): entry for entry in run(tmp_path, *options)}
    assert {row for row, _ in found} == {"D1", "D2", "D3", "D4", "D5", "D22"}
    assert found["D2", "test_of_two_rows[1]"].outcome == "passed"
    assert found["D1", "test_of_two_rows[0]"].outcome == "passed"
    assert found["D3", "test_that_fails"].outcome == "failed"
    assert found["D4", "test_that_cannot_clean_up"].outcome == "failed"
    assert found["D5", "test_of_another_system"].outcome == "skipped"
    assert found["D22", "test_on_spark"].outcome == "left out"
    assert found["D22", "test_on_spark"].reason == "Spark: no Java"


def test_collecting_records_what_there_is_and_nothing_as_passed(tmp_path: Path) -> None:
    assert {entry.outcome for entry in run(tmp_path, "--collect-only")} == {"collected"}


def test_nothing_is_recorded_unless_asked_for(tmp_path: Path) -> None:
    assert run(tmp_path, record=False) == []
    assert not (tmp_path / "build").exists()


def test_runs_add_to_a_record_and_the_last_outcome_counts(tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    lines = [_entry("D1", "failed"), _entry("D2", "passed"), _entry("D1", "passed")]
    file.write_text("".join(f"{entry.as_line()}\n" for entry in lines))
    assert [(entry.row, entry.outcome) for entry in read_record(file)] == [("D1", "passed"), ("D2", "passed")]


def _entry(row: str, outcome: Outcome, test: str = f"{DEMO}::test", reason: str = "") -> Entry:
    return Entry(row=row, test=test, outcome=outcome, reason=reason)


def _full_record() -> list[Entry]:
    return [_entry(row, "passed") for row in DRAWINGS]


def _told(tmp_path: Path, record: list[Entry], *options: str) -> tuple[int, list[str]]:
    file = tmp_path / "rows.txt"
    file.write_text("".join(f"{entry.as_line()}\n" for entry in record))
    command = [sys.executable, "-m", "tests.harness.row_summary", str(file), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_a_full_run_is_told_in_one_line(tmp_path: Path) -> None:
    line = "Drawings proved by tests that passed in this run: 22 of 22"
    assert _told(tmp_path, _full_record(), "--all") == (0, [line])


def test_a_row_that_is_left_out_is_named_and_not_counted(tmp_path: Path) -> None:
    record = [*_full_record()[:-1], _entry("D22", "left out", reason="Spark: no Java")]
    code, told = _told(tmp_path, record, "--all")
    assert code == 0
    assert told[0].endswith("21 of 22")
    assert told[1] == "D22 (the data pipeline): left out: Spark: no Java"


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ([], "No test ran of: D22 (the data pipeline)"),
        ([_entry("D22", "skipped")], "No test ran of: D22 (the data pipeline)"),
        ([_entry("D22", "failed")], "D22 (the data pipeline): a test of it failed"),
        ([_entry("D22", "passed"), _entry("D22", "failed", "tests/unit/test_x.py::test")], "D22 (the data"),
    ],
    ids=["no test", "skipped", "failed", "one passed and one failed"],
)
def test_a_row_without_proof_fails_a_full_run(tmp_path: Path, last: list[Entry], said: str) -> None:
    record = [*_full_record()[:-1], *last]
    code, told = _told(tmp_path, record, "--all")
    assert code == 1
    assert told[0].endswith("21 of 22")
    assert told[1].startswith(said)
    assert _told(tmp_path, record)[0] == 0, "a part of the tests need not prove all"


def test_a_row_proved_without_its_scene_fails_a_full_run() -> None:
    record = [*_full_record()[:-1], _entry("D22", "passed", "tests/unit/test_x.py::test")]
    summary = row_summary.summarize(record)
    assert (summary.no_scene, summary.complete) == (("D22",), False)


def test_the_list_has_the_files_whose_tests_passed() -> None:
    record = [*_full_record(), _entry("D1", "passed", "tests/unit/test_x.py::test[1]")]
    written = drawings.list_of_drawings([*record, _entry("D1", "failed", "tests/unit/test_y.py::test")])
    listed = drawings.listed_files(drawings.with_list("# Tour\n\ntext\n", written))
    assert listed == {row: [DEMO] for row in DRAWINGS} | {"D1": [DEMO, "tests/unit/test_x.py"]}


def test_the_list_is_not_written_from_a_part_of_the_tests() -> None:
    collected = [_entry("D1", "collected"), _entry("D2", "collected"), _entry("D22", "collected")]
    record = [_entry("D1", "passed"), _entry("D22", "left out", reason="Spark: no Java")]
    assert drawings.missing_tests(record, collected) == [
        f"{DEMO}::test: did not run",
        f"{DEMO}::test: left out Spark: no Java",
    ]
