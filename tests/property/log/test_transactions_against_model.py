# SPDX-License-Identifier: Apache-2.0
"""Last stable offset and aborted batches equal a fold of all that was written, in whatever order it came."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.log.transaction_model import TransactionMachine

_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def test_transactions_equal_the_model() -> None:
    short = settings(max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=_CHECKS)
    run_state_machine_as_test(TransactionMachine, settings=short)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_transactions_equal_the_model_for_long() -> None:
    long = settings(max_examples=2000, stateful_step_count=80, deadline=None, suppress_health_check=_CHECKS)
    run_state_machine_as_test(TransactionMachine, settings=long)
