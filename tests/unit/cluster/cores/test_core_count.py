# SPDX-License-Identifier: Apache-2.0
"""`--cores auto` and what is no number of cores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.cluster.cores.count import parse_cores, usable_processors
from headrace.errors import ArgumentError


def test_a_number_is_taken_as_it_is() -> None:
    assert parse_cores("3") == 3


def test_auto_is_one_for_each_processor_that_may_be_used() -> None:
    assert 1 <= parse_cores("auto") <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "1.5", "100", "²"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="give a number from 1 to 99, or auto"):
        parse_cores(text)


@pytest.mark.parametrize(
    ("quota", "expected"), [("100000 100000", 1), ("150000 100000", 2), ("10 100000", 1)]
)
def test_the_time_of_a_container_bounds_it(
    quota: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    file = tmp_path / "cpu.max"
    file.write_text(quota + "\n")
    assert usable_processors(file) == expected


@pytest.mark.parametrize("quota", ["max 100000", "", None])
def test_without_a_quota_it_is_what_the_process_may_run_on(
    quota: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(quota)
    assert usable_processors(file) == 64
