# SPDX-License-Identifier: Apache-2.0
"""The state of a cluster as its Metadata tells, around the death of a node."""

from __future__ import annotations

import io

from headrace.cli.cluster.view import show_status
from headrace.cli.output import Output
from headrace.client.cluster import Cluster
from headrace.cluster.status import ClusterMetadata, ClusterStatus, Partition, read_remote_status
from headrace.testing import Broker
from tests.harness.waiting import wait_until

PARTITION = Partition(topic="orders", index=0, leader=2, replicas=(1, 2), isr=(2,), damaged=(1,))


def test_replicas_of_a_node_that_has_just_died_are_not_damaged() -> None:
    with Broker(nodes=3) as broker:
        broker.create_topic("orders", partitions=3)
        cluster = Cluster(bootstrap=broker.bootstrap)

        def until_replicated(wanted: bool) -> ClusterStatus:
            def look() -> bool:
                found.append(read_remote_status(cluster))
                assert found[-1].metadata is not None
                return bool(found[-1].metadata.under_replicated) != wanted

            found: list[ClusterStatus] = []
            wait_until(look, lambda: str(found[-1]), timeout_s=10)
            return found[-1]

        until_replicated(True)
        broker.crash(2)
        status = until_replicated(False)
        assert status.metadata is not None
        assert status.metadata.damaged_logs == []
        assert [node.state for node in status.nodes] == ["registered", "not registered", "registered"]


def test_a_damaged_replica_is_named_with_the_node_that_leads() -> None:
    stdout = io.StringIO()
    status = ClusterStatus(engine="", nodes=(), metadata=ClusterMetadata(partitions=(PARTITION,)))
    show_status(status, Output(stdout=stdout))
    assert "damaged replica: orders-0 on node 1 (node 2 leads): see that node's log" in stdout.getvalue()
    assert "OFFLINE" not in stdout.getvalue()
