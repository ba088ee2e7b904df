# SPDX-License-Identifier: Apache-2.0
"""Schedules that replicated logs are known to fail on, on the real broker code, by name (T2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.simulation.cluster_proof import SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Callable[[], None]) -> None:
    scenario()
