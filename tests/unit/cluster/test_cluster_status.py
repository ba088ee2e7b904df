# SPDX-License-Identifier: Apache-2.0
"""The state of a cluster as its Metadata tells, around the death of a node."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from headrace.cli.cluster.view import show_status
from headrace.cli.output import Output
from headrace.client.cluster import Cluster
from headrace.client.tools.disk_events import DiskEvents, _take
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


def shown(events: DiskEvents) -> tuple[str, dict[str, Any]]:
    stdout = io.StringIO()
    metadata = ClusterMetadata(partitions=(PARTITION,), disks=events)
    status = ClusterStatus(engine="", nodes=(), metadata=metadata)
    show_status(status, Output(stdout=stdout))
    return stdout.getvalue(), status.document()


def told(*events: tuple[str, dict[str, Any]]) -> DiskEvents:
    found = DiskEvents({}, {})
    for kind, details in events:
        document = {
            "version": 2,
            "at": 1,
            "kind": kind,
            "topic": "orders",
            "partition": 0,
            "details": details,
        }
        _take(found, json.dumps(document).encode())
    return found


OFFLINE = ("offline", {"node": 1, "reason": "a batch does not match its CRC"})
REPAIRING = ("repairing", {"node": 1, "reason": "offsets 10 to 19 are fetched again"})
ONLINE = ("online", {"node": 1})
RANGES = (
    "damaged_ranges",
    {"node": 2, "log_start": 0, "log_end": 100, "ranges": [[40, 59, "a batch does not match its CRC"]]},
)


@pytest.mark.parametrize("events", [(OFFLINE, REPAIRING), (REPAIRING, OFFLINE)])
def test_a_replica_under_repair_is_shown_with_the_range_that_is_fetched(
    events: tuple[tuple[str, dict[str, Any]], ...],
) -> None:
    text, document = shown(told(*events))
    assert "replica under repair: orders-0 on node 1 (node 2 leads): offsets 10 to 19 are fetched" in text
    assert document["damaged_logs"] == [
        {"partition": "orders-0", "node": 1, "state": "repairing", "reason": REPAIRING[1]["reason"]}
    ]


def test_a_log_that_is_damaged_again_is_not_under_repair_yet() -> None:
    text, _ = shown(told(OFFLINE, REPAIRING, ONLINE, OFFLINE))
    assert "damaged replica: orders-0 on node 1 (node 2 leads): a batch does not match its CRC" in text


def test_the_damaged_range_of_a_leader_is_shown_with_what_can_be_read_around_it() -> None:
    text, document = shown(told(RANGES))
    assert "orders-0 on node 2, offsets 40 to 59" in text
    assert "readable: 0 to 39 and 60 to 99" in text
    (damaged,) = document["damaged_ranges"]
    assert (damaged["offsets"], damaged["readable"]) == ([40, 59], [[0, 39], [60, 99]])


@pytest.mark.parametrize("after", [("damaged_ranges", {**RANGES[1], "ranges": []}), ("node_up", {"node": 2})])
def test_a_damaged_range_is_shown_until_it_is_gone_or_the_node_starts_anew(
    after: tuple[str, dict[str, Any]],
) -> None:
    assert shown(told(RANGES, after))[1]["damaged_ranges"] == []
    assert shown(told(RANGES, after, RANGES))[1]["damaged_ranges"]
