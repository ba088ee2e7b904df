# SPDX-License-Identifier: Apache-2.0
"""Marks tests of live nodes as `quick` or `serial`, as tests/gate.toml lists them.

`make test` and `make check` select by these marks. Its lanes: lanes.py.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
_LIVE = ("compat", "docs", "integration", "spark")


@cache
def read_gate() -> dict[str, set[str]]:
    """The entries of tests/gate.toml by mark."""
    return {mark: _all_entries(section) for mark, section in _read().items() if mark != "lanes"}


def read_lanes() -> dict[str, str]:
    """The lane of each entry that has one."""
    return {entry: lane for lane, entries in _read()["lanes"].items() for entry in entries}


@cache
def _read() -> Mapping[str, Mapping[str, Sequence[str]]]:
    with (TESTS / "gate.toml").open("rb") as file:
        return tomllib.load(file)


def _all_entries(section: Mapping[str, Iterable[str]]) -> set[str]:
    return {entry for entries in section.values() for entry in entries}


def mark_test(item: pytest.Item) -> None:
    file = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
    if not file.startswith(_LIVE):
        return
    test = f"{file}::{getattr(item, 'originalname', item.name)}"
    for mark, entries in read_gate().items():
        if file in entries or test in entries:
            item.add_marker(mark)
