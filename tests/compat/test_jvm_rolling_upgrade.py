# SPDX-License-Identifier: Apache-2.0
"""Java's producer and consumer while nodes of an earlier release are replaced one by one.

Python's clients: tests/integration/test_rolling_upgrade.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.engines.kafka_jars import why_kafka_is_missing
from tests.harness import soak
from tests.harness.left_out import leave_out
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.earlier_release import LAST_WITHOUT_LOGINS, MixedReleases, earlier_sources
from tests.harness.live.kill_loop import strike_under_load
from tests.harness.live.mixed_versions import restart
from tests.harness.live.verifiable import VerifiableLoad, check_verifiable

QUICK = {"broker.session.timeout.ms": "2000", "group.initial.rebalance.delay.ms": "0"}


@pytest.mark.compat_jvm
def test_javas_clients_lose_nothing_while_nodes_are_upgraded(tmp_path: Path) -> None:
    if reason := why_kafka_is_missing():
        leave_out("Apache Kafka", reason)
    releases = MixedReleases(earlier_sources(LAST_WITHOUT_LOGINS, tmp_path))

    def upgrade(cluster: LiveCluster, node_id: int) -> None:
        releases.upgraded.add(node_id)
        restart(cluster, node_id)

    with LiveCluster(tmp_path / "cluster", settings=QUICK, dress=releases) as cluster:
        report = strike_under_load(
            cluster,
            faults=3,
            seed=soak.first_seed(),
            fault=upgrade,
            order="nodes",
            load=VerifiableLoad(KafkaEngine(), cluster.bootstrap, tmp_path / "judges"),
        )
    check_verifiable(report)
