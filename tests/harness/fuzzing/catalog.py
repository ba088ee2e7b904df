# SPDX-License-Identifier: Apache-2.0
"""All fuzz targets by name. `python -m tests.harness.fuzzing` lists and runs them."""

from __future__ import annotations

from tests.harness.fuzzing.login_targets import LOGIN_TARGETS
from tests.harness.fuzzing.network_targets import NETWORK_TARGETS
from tests.harness.fuzzing.record_targets import RECORD_TARGETS
from tests.harness.fuzzing.request_targets import REQUEST_TARGETS
from tests.harness.fuzzing.state_targets import STATE_TARGETS
from tests.harness.fuzzing.target import Target
from tests.harness.fuzzing.transaction_targets import TRANSACTION_TARGETS

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *REQUEST_TARGETS,
        *RECORD_TARGETS,
        *LOGIN_TARGETS,
        *STATE_TARGETS,
        *TRANSACTION_TARGETS,
        *NETWORK_TARGETS,
    )
}
