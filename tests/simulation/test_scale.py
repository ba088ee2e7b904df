# SPDX-License-Identifier: Apache-2.0
"""What a failover writes and reads grows with the partitions that lost their leader, and stays within limits.

`make soak PART=scale` measures clusters of up to 50 nodes and 50,000 partitions and prints the tables of
docs/evidence/scale.md; HEADRACE_SIZES=nodes:partitions:partitions-of-a-topic,… chooses others.
"""

from __future__ import annotations

import dataclasses
import os
import time

import pytest

from headrace.coordination.store import MAX_COMMIT_BYTES
from tests.harness import soak
from tests.harness.scale.failovers import Failover, Measured, Size, measure
from tests.harness.scale.report import table

SIZES = "10:10000:1000,25:25000:1000,50:50000:1000"
_NODES = 6


@pytest.fixture(scope="module")
def small() -> Measured:
    return measure(Size(nodes=_NODES, partitions=60, per_topic=30))


@pytest.fixture(scope="module")
def large() -> Measured:
    return measure(Size(nodes=_NODES, partitions=240, per_topic=30))


def failovers(measured: Measured) -> list[Failover]:
    return [measured.node, measured.rack, measured.controller]


def test_a_failover_rewrites_its_topics_a_few_times_at_most(small: Measured, large: Measured) -> None:
    for measured, topics in ((small, 2), (large, 8)):
        for failover in failovers(measured):
            assert failover.partitions > 0
            assert failover.commit_bytes < 4 * topics * measured.largest_entry + 1_000, failover


def test_what_is_written_and_read_grows_with_the_partitions(small: Measured, large: Measured) -> None:
    for before, after in zip(failovers(small), failovers(large), strict=True):
        assert after.commit_bytes < 5 * before.commit_bytes, "four times the partitions"
        assert after.view_bytes < 5 * before.view_bytes


def test_an_idle_cluster_sends_hardly_more_for_more_partitions(small: Measured, large: Measured) -> None:
    assert large.idle_bytes_per_s < 2 * small.idle_bytes_per_s


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_soak_scale() -> None:
    started = time.monotonic()
    sizes = [each.split(":") for each in os.environ.get("HEADRACE_SIZES", SIZES).split(",")]
    measured = [
        measure(Size(nodes=int(nodes), partitions=int(partitions), per_topic=int(per_topic)))
        for nodes, partitions, per_topic in sizes
    ]
    print("\n" + table(measured))
    assert all(
        failover.largest_commit <= MAX_COMMIT_BYTES for each in measured for failover in failovers(each)
    )
    soak.write_report("scale", started, {"sizes": [dataclasses.asdict(each) for each in measured]})
