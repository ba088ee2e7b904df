# SPDX-License-Identifier: Apache-2.0
"""The parts of the test broker's benchmark that need no installation: its programs, and sizes of packages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.installed import package_sizes, run_or_explain
from bench.measures import testing
from headrace.cluster.engines.engine import EngineError


def test_the_program_of_a_cold_import_measures_all_its_figures() -> None:
    figures = json.loads(run_or_explain(sys.executable, "-c", testing._COLD, timeout_s=60))
    assert figures.keys() == {"broker_s", "pyarrow_s", "cold_s", "cpu_s"}
    assert 0 < figures["broker_s"] + figures["pyarrow_s"] < figures["cold_s"]


def test_sizes_leave_out_what_every_environment_has() -> None:
    sizes = package_sizes(Path(sys.executable))
    assert "pip" not in sizes
    assert sizes["confluent-kafka"] > 1 << 20
    assert set(testing.PACKAGES) - {"headrace"} <= sizes.keys()


def test_a_program_that_fails_is_explained() -> None:
    with pytest.raises(EngineError, match="no such thing"):
        run_or_explain(sys.executable, "-c", "raise SystemExit('no such thing')")
