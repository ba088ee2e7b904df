# SPDX-License-Identifier: Apache-2.0
"""T12 by five clients, on three nodes of Headrace with each of its stores, and on three of Apache Kafka.

What fails on Apache Kafka, too, is wrong in a client or in this test. With confluent-kafka in `make check`:
tests/integration/test_transactional_copy.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.cluster.engines.zookeeper import ZooKeeperEnsemble
from headrace.cluster.plan import EngineName
from tests.harness import soak
from tests.harness.copies.copier import CopierKind, go_copier, java_copier, python_copier
from tests.harness.copies.copy_loop import CopyPlan, copy_under_faults, faults
from tests.harness.copies.settings import COPIES_ON_HEADRACE, COPIES_ON_KAFKA
from tests.harness.live.cluster import LiveCluster

FAULTS = 7
CLIENTS = ["java", "confluent", "aiokafka", "franz", "transform"]


@pytest.fixture(params=CLIENTS)
def kind(request: pytest.FixtureRequest) -> CopierKind:
    if request.param == "java":
        return java_copier(request.getfixturevalue("kafka_engine"))
    if request.param == "franz":
        return go_copier(request.getfixturevalue("go_program")("franz"))
    return python_copier(request.param)


@pytest.fixture(params=["kafka", "sqlite", "zookeeper"])
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, zookeeper_servers: Callable[..., ZooKeeperEnsemble]
) -> Iterator[LiveCluster]:
    folder = tmp_path / "cluster"
    if request.param == "zookeeper":
        with zookeeper_servers() as ensemble:
            place = f"zk://{ensemble.hosts}/headrace"
            with LiveCluster(folder, coordination=place, settings=COPIES_ON_HEADRACE) as cluster:
                yield cluster
        return
    engine: EngineName = "headrace"
    settings = COPIES_ON_HEADRACE
    if request.param == "kafka":
        request.getfixturevalue("kafka_engine")
        engine, settings = "kafka", COPIES_ON_KAFKA
    with LiveCluster(folder, engine=engine, settings=settings) as cluster:
        yield cluster


@pytest.mark.compat_jvm
@pytest.mark.timeout(900)
def test_t12_output_is_input_in_order(cluster: LiveCluster, kind: CopierKind, tmp_path: Path) -> None:
    plan = CopyPlan(seed=soak.first_seed(), faults=faults(FAULTS))
    copy_under_faults(cluster, kind, plan, tmp_path / "copiers").check()
