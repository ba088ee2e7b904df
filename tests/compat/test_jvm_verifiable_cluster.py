# SPDX-License-Identifier: Apache-2.0
"""Kill loops judged by Apache Kafka's own VerifiableProducer and VerifiableConsumer: both sides agree."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.engines.kafka_jars import why_kafka_is_missing
from tests.compat.java_tool import JavaTool
from tests.harness import soak
from tests.harness.left_out import leave_out
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.kill_loop import (
    Fault,
    Report,
    in_turn,
    kill_and_start,
    moves_away_from,
    stop_and_start,
    strike_under_load,
)
from tests.harness.live.verifiable import VerifiableLoad, check_verifiable

QUICK = {"broker.session.timeout.ms": "2000", "group.initial.rebalance.delay.ms": "0"}


def _judged(folder: Path, *, nodes: int = 3, **options: object) -> Report:
    if reason := why_kafka_is_missing():
        leave_out("Apache Kafka", reason)
    with LiveCluster(folder / "cluster", nodes=nodes, settings=QUICK) as cluster:
        load = VerifiableLoad(KafkaEngine(), cluster.bootstrap, folder / "judges")
        report = strike_under_load(cluster, load=load, **options)  # type: ignore[arg-type]
    check_verifiable(report)
    return report


@pytest.mark.compat_jvm
def test_kafkas_judges_agree_through_kills(tmp_path: Path) -> None:
    _judged(tmp_path, faults=4, seed=soak.first_seed())


@pytest.mark.compat_jvm
def test_kafkas_judges_agree_through_a_rolling_restart(tmp_path: Path) -> None:
    _judged(tmp_path, faults=3, seed=soak.first_seed(), fault=stop_and_start, order="nodes")


def _moved_by_kafkas_tool(folder: Path) -> Fault:
    """kafka-reassign-partitions.sh, from the plan to its own word that all is done."""

    def move(cluster: LiveCluster, node_id: int) -> None:
        java, plan = JavaTool(KafkaEngine(), cluster.bootstrap), folder / "plan.json"
        moves = [
            {"topic": topic, "partition": index, "replicas": replicas}
            for (topic, index), replicas in moves_away_from(cluster, node_id).items()
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        asked = ("reassign-partitions", "--reassignment-json-file", str(plan))
        assert "Successfully started" in java(*asked, "--execute")
        deadline = time.monotonic() + 120
        while (verified := java(*asked, "--verify")).count("is completed") < len(moves):
            assert time.monotonic() < deadline, verified

    return move


@pytest.mark.compat_jvm
@pytest.mark.timeout(600)
def test_javas_clients_ride_through_a_kill_a_move_and_a_restart(tmp_path: Path) -> None:
    fault = in_turn(kill_and_start, _moved_by_kafkas_tool(tmp_path), stop_and_start)
    roles = ("leader", "coordinator")
    _judged(tmp_path, nodes=4, faults=6, seed=soak.first_seed(), fault=fault, roles=roles)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t4_kafkas_judges_agree_through_a_hundred_kills(tmp_path: Path) -> None:
    started = time.monotonic()
    report = _judged(tmp_path, faults=100, seed=soak.first_seed())
    soak.write_report("T4-verifiable", started, report.figures())
