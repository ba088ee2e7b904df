# SPDX-License-Identifier: Apache-2.0
"""A cluster of an earlier release is upgraded node by node under load, and serves every client library.

Nodes ask each other for logins (S3), and transaction.version rises, once the last one is upgraded.
For longer: test_mixed_versions.py; Java's clients: tests/compat/test_jvm_rolling_upgrade.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from headrace.client.connection import Connection
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness import soak
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.earlier_release import (
    LAST_WITHOUT_LOGINS,
    LAST_WITHOUT_TRANSACTIONS,
    MixedReleases,
    earlier_sources,
)
from tests.harness.live.families import AllFamilies
from tests.harness.live.kill_loop import strike_under_load
from tests.harness.live.mixed_versions import restart, transaction_version, wait_for_level
from tests.harness.waiting import wait_until

SETTINGS = {"broker.session.timeout.ms": "2000", "group.initial.rebalance.delay.ms": "0"}


def test_nodes_of_the_earlier_release_are_replaced_without_a_lost_record(tmp_path: Path) -> None:
    releases = MixedReleases(earlier_sources(LAST_WITHOUT_LOGINS, tmp_path))
    with LiveCluster(tmp_path / "cluster", settings=SETTINGS, dress=releases) as cluster:
        assert [serves_logins(cluster, node_id) for node_id in cluster.node_ids] == [False] * 3

        def upgrade(cluster: LiveCluster, node_id: int) -> None:
            releases.upgraded.add(node_id)
            restart(cluster, node_id)

        load = AllFamilies(cluster)
        report = strike_under_load(
            cluster, faults=3, seed=soak.first_seed(), fault=upgrade, order="nodes", load=load
        )
        report.check()
        assert all(each["sent"] > 0 for each in load.figures().values()), load.figures()
        assert all(serves_logins(cluster, node_id) for node_id in cluster.node_ids)
        wait_until(
            lambda: all(refuses_strangers(cluster, node_id) for node_id in cluster.node_ids),
            "every node asks for a login",
        )


def test_transactions_are_served_while_no_node_of_an_earlier_release_is_there(tmp_path: Path) -> None:
    releases = MixedReleases(earlier_sources(LAST_WITHOUT_TRANSACTIONS, tmp_path))
    with LiveCluster(tmp_path / "cluster", settings=SETTINGS, dress=releases) as cluster:
        first, second, last = cluster.node_ids
        cluster.create_topic("t", [list(cluster.node_ids)])
        for node_id in (first, second):
            releases.upgraded.add(node_id)
            restart(cluster, node_id)
            assert transaction_version(cluster, node_id) == 0
        cluster.stop(last)  # as it may return as the release that it was
        cluster.wait_until(lambda metadata: last not in metadata.addresses)
        assert transaction_version(cluster, first) == 0
        releases.upgraded.add(last)
        restart(cluster, last)
        wait_for_level(cluster, 2, cluster.node_ids)
        releases.upgraded.remove(last)
        restart(cluster, last)
        wait_for_level(cluster, 0, (first, second))
        assert transaction_version(cluster, last) == 0
        releases.upgraded.add(last)
        restart(cluster, last)
        wait_for_level(cluster, 2, cluster.node_ids)


def serves_logins(cluster: LiveCluster, node_id: int) -> bool:
    async def versions() -> bool:
        member = cluster.folder.read().member(node_id)
        connection = await Connection.open(member.host, member.port)
        try:
            return ApiKey.ENVELOPE in connection.versions
        finally:
            await connection.close()

    return asyncio.run(versions())


def refuses_strangers(cluster: LiveCluster, node_id: int) -> bool:
    """Whether a request of nodes without a login is refused."""

    async def altered() -> ErrorCode:
        member = cluster.folder.read().member(node_id)
        connection = await Connection.open(member.host, member.port)
        try:
            fields = {"broker_id": node_id, "broker_epoch": 1, "topics": []}
            return ErrorCode((await connection.call(ApiKey.ALTER_PARTITION, fields)).error_code)
        finally:
            await connection.close()

    return asyncio.run(altered()) is ErrorCode.cluster_authorization_failed
