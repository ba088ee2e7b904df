# SPDX-License-Identifier: Apache-2.0
"""Drivers killed at random moments, again and again: topics and tables have each record exactly once.

On a Spark cluster of two hosts, with a shuffle whose slices adaptive execution merges, and with speculation:
in every third run tasks straggle until Spark runs them twice. `make soak PART=spark_random_kills`;
HEADRACE_KILLS says how many (100). Read next: kill_harness.py; chosen moments: test_spark_kills.py.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.harness import soak
from tests.harness.live.node import NodeProcess
from tests.spark.kill_cells import setup
from tests.spark.kill_harness import Job, Table, Topic, create_topic, program
from tests.spark.spark_cluster import MASTER_HOST, standalone_cluster
from tests.spark.test_spark_kills import KilledNode

KILLS = int(os.environ.get("HEADRACE_KILLS", "100"))
_ROWS_PER_RUN = 1_200
"""Three micro-batches for each job, so that most kills meet work."""
_WORKING_S = 6.0
"""About as long as a driver needs for them."""
_STRAGGLES_EVERY = 3
_PARTITIONS = 3
_SETTINGS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.streaming.stateless.enabled": "true",
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
}

_SLICES_STAY = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}
"""Merged into one task, none would be slower than others, and Spark would run none a second time."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KilledNode]:
    with NodeProcess(tmp_path / "node") as node:
        yield KilledNode(node)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_soak_spark_random_kills_lose_and_duplicate_nothing(
    java_home: Path, node: KilledNode, topic: str, tmp_path: Path
) -> None:
    started, seed = time.monotonic(), soak.first_seed()
    draw = random.Random(seed)
    output = Topic(name=f"{topic}-copy", bootstrap=node.bootstrap)
    create_topic(node, output.name, partitions=_PARTITIONS)
    jobs = [
        Job(node, output, f"{topic}-1", tmp_path / "topic"),
        Job(node, Table(path=tmp_path / "table"), f"{topic}-2", tmp_path / "delta"),
    ]
    hosts = (MASTER_HOST, "127.0.0.2")
    with standalone_cluster(tmp_path, java_home, hosts=hosts, environment=os.environ) as master:
        steady = setup(master, shuffle=_PARTITIONS, settings=_SETTINGS)
        straggling = setup(
            master, shuffle=_PARTITIONS, settings=_SETTINGS | _SLICES_STAY, hindrance="straggles"
        )
        for run in range(1, KILLS + 1):
            for job in jobs:
                job.more(_ROWS_PER_RUN)
            draw.shuffle(jobs)
            spark = straggling if run % _STRAGGLES_EVERY == 0 else steady
            with program(tmp_path / f"run-{run}.json", spark, [("", job) for job in jobs], run=run) as driver:
                driver.wait_until(partial(_has_begun, jobs, run))
                time.sleep(draw.uniform(0, _WORKING_S))  # the kill comes at a random moment
                driver.kill_driver()
            assert not any(job.ahead() for job in jobs), f"run {run} of seed {seed}"
        last = KILLS + 1
        with program(tmp_path / "last.json", steady, [("", job) for job in jobs], run=last) as driver:
            assert driver.ended() == 0, driver.output()
    for job in jobs:
        job.check_complete()
    aborted = _records_with_aborted(output) - len(output.visible())
    twice = sum(each.number > 0 for job in jobs for each in job.attempts())
    rows = {job.output.format: len(job.output.visible()) for job in jobs}
    soak.write_report(
        "spark-random-kills",
        started,
        {"seed": seed, "kills": KILLS, "rows": rows, "aborted_rows": aborted, "second_attempts": twice},
    )
    assert aborted > 0, "no kill met an open transaction"
    assert twice > 0, "no task was run a second time"


def _has_begun(jobs: Sequence[Job], run: int) -> bool:
    return any(job.begun(run) for job in jobs)


def _records_with_aborted(output: Topic) -> int:
    """As a consumer that reads uncommitted records counts them."""
    consumer = Consumer(
        {
            "bootstrap.servers": output.bootstrap,
            "group.id": "uncommitted",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(output.name, number, 0) for number in range(_PARTITIONS)])
    records, ends = 0, 0
    while ends < _PARTITIONS:
        message = consumer.poll(30)
        assert message is not None, "the topic was not read to its end"
        ends += message.error() is not None
        records += message.error() is None
    consumer.close()
    return records
