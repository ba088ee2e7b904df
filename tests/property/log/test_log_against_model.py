# SPDX-License-Identifier: Apache-2.0
"""The log and a list of records do the same things and stay equal, whatever comes in which order."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.log.log_model import LogMachine

_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def test_log_equals_the_list_model() -> None:
    short = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=_CHECKS)
    run_state_machine_as_test(LogMachine, settings=short)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_log_equals_the_list_model_for_long() -> None:
    long = settings(max_examples=3000, stateful_step_count=80, deadline=None, suppress_health_check=_CHECKS)
    run_state_machine_as_test(LogMachine, settings=long)
