# SPDX-License-Identifier: Apache-2.0
"""Nodes of an earlier commit beside those of this tree, for as long as one likes, with all kinds of clients.

`make soak PART=mixed_versions`; HEADRACE_SOAK_MINUTES says for how long in all (30). The short form, one
upgrade of each node: test_rolling_upgrade.py.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness import soak
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.earlier_release import (
    LAST_WITHOUT_STORE_HISTORY,
    LAST_WITHOUT_TRANSACTIONS,
    MixedReleases,
    earlier_sources,
)
from tests.harness.live.families import AllFamilies
from tests.harness.live.kill_loop import strike_under_load
from tests.harness.live.mixed_versions import PAID, MixedVersions, read_committed, restart

SETTINGS = {"broker.session.timeout.ms": "2000", "group.initial.rebalance.delay.ms": "0"}
EARLIER = {LAST_WITHOUT_TRANSACTIONS: 0, LAST_WITHOUT_STORE_HISTORY: 2}
"""The commits, and the transaction.version that their nodes serve."""


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("commit", EARLIER)
def test_soak_mixed_versions(commit: str, tmp_path: Path) -> None:
    started, minutes = time.monotonic(), soak.minutes(30) / len(EARLIER)
    releases = MixedReleases(earlier_sources(commit, tmp_path))
    mixed = MixedVersions(releases, soak.first_seed(), earlier_level=EARLIER[commit])
    with LiveCluster(tmp_path / "cluster", settings=SETTINGS, dress=releases) as cluster:
        releases.upgraded.update(cluster.node_ids[1:])
        for node_id in cluster.node_ids[1:]:
            restart(cluster, node_id)
        cluster.create_topic(PAID, [cluster.node_ids], min_insync_replicas="2")
        load = AllFamilies(cluster)
        report = strike_under_load(
            cluster,
            at_most_s=60 * minutes,
            seed=soak.first_seed(),
            fault=mixed.strike,
            order="nodes",
            load=load,
        )
        committed = read_committed(cluster.bootstrap, PAID)
    done = {"earlier": commit, "by_kind": dict(mixed.faults), "done": dict(mixed.done)}
    figures = {**report.figures(), **done, "families": load.figures()}
    soak.write_report(f"mixed_versions-{commit}", started, figures)
    report.check()
    assert committed == mixed.committed
