# SPDX-License-Identifier: Apache-2.0
"""The suites of `python -m bench [SUITE]`: which measures, which lines, which targets."""

from __future__ import annotations

from bench.model import Suite
from bench.suites.arrow import ARROW_SUITE
from bench.suites.cluster import CLUSTER_SUITE
from bench.suites.console import CONSOLE_SUITE
from bench.suites.gray import GRAY_SUITE
from bench.suites.groups import GROUPS_SUITE
from bench.suites.growth import GROWTH_SUITE
from bench.suites.healing import HEALING_SUITE
from bench.suites.node import NODE_SUITE
from bench.suites.security import SECURITY_SUITE
from bench.suites.spark import SPARK_SUITE
from bench.suites.testing import TESTING_SUITE
from bench.suites.transactions import TRANSACTIONS_SUITE

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        NODE_SUITE,
        GROUPS_SUITE,
        TRANSACTIONS_SUITE,
        ARROW_SUITE,
        SPARK_SUITE,
        CLUSTER_SUITE,
        GRAY_SUITE,
        SECURITY_SUITE,
        TESTING_SUITE,
        CONSOLE_SUITE,
        HEALING_SUITE,
        GROWTH_SUITE,
    )
}
