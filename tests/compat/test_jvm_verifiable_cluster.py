"""Kill loops judged by Apache Kafka's own VerifiableProducer and VerifiableConsumer: both sides agree."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.engines.kafka_jars import why_kafka_is_missing
from headrace.testing import soak
from headrace.testing.kill_loop import Report, stop_and_start, strike_under_load
from headrace.testing.live_cluster import LiveCluster
from headrace.testing.verifiable import VerifiableLoad

QUICK = {"broker.session.timeout.ms": "2000", "group.initial.rebalance.delay.ms": "0"}


def _judged(folder: Path, **options: object) -> Report:
    if reason := why_kafka_is_missing():
        pytest.skip(reason)
    with LiveCluster(folder / "cluster", settings=QUICK) as cluster:
        load = VerifiableLoad(KafkaEngine(), cluster.bootstrap, folder / "judges")
        report = strike_under_load(cluster, load=load, **options)  # type: ignore[arg-type]
    assert report.anomalies == [], report.figures()
    # VerifiableProducer sends every record once: what a failover refuses is an error, and stays unknown.
    assert report.sends["ok"] > 20 * report.sends.get("info", 0), report.figures()
    assert report.read >= report.sends["ok"], report.figures()
    assert report.commits > 0
    return report


@pytest.mark.compat_jvm
def test_kafkas_judges_agree_through_kills(tmp_path: Path) -> None:
    _judged(tmp_path, faults=4, seed=soak.first_seed())


@pytest.mark.compat_jvm
def test_kafkas_judges_agree_through_a_rolling_restart(tmp_path: Path) -> None:
    _judged(tmp_path, faults=3, seed=soak.first_seed(), fault=stop_and_start, order="nodes")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t4_kafkas_judges_agree_through_a_hundred_kills(tmp_path: Path) -> None:
    started = time.monotonic()
    report = _judged(tmp_path, faults=100, seed=soak.first_seed())
    soak.write_report("T4-verifiable", started, report.figures())
