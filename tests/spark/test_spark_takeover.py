# SPDX-License-Identifier: Apache-2.0
"""A restarted driver ends its predecessor's open transaction before its own tasks have run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.client.arrow.write.transaction import Transaction
from headrace.client.arrow.write.transaction_session import TransactionFenced
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.replays import BatchIdentity
from pyspark_headrace.writing.internal_topics import SINKS
from pyspark_headrace.writing.ledger import Published, SinkLedger, transactional_id
from tests.compat.sink_driver import settings_for, task
from tests.harness.live.committed import wait_for_markers
from tests.harness.waiting import wait_until
from tests.spark.spark_lab import TIMEOUT_S, Broker

PROGRAM = """
import sys
import time
from pathlib import Path

from headrace.spark import spark_session

bootstrap, source, copy, folder = sys.argv[1:]


def gate(batches):
    Path(folder, "task").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.05)  # between two looks
    yield from batches


spark = spark_session("local[1]")
query = (
    spark.readStream.format("headrace")
    .options(bootstrap=bootstrap, subscribe=source, startingOffsets="earliest")
    .load()
    .selectExpr("CAST(value AS STRING) AS value")
    .mapInArrow(gate, "value STRING")
    .writeStream.format("headrace")
    .options(bootstrap=bootstrap, topic=copy, sinkId=copy, checkpointLocation=folder + "/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
"""


def test_the_open_transaction_of_a_dead_driver_is_aborted_before_tasks_end(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path, java_home: Path
) -> None:
    source, copy = new_topic(1), new_topic(1, suffix="-copy")
    values = broker.fill(source, 0, 50)
    settings = settings_for(broker.bootstrap, copy, sink_id=copy)
    ledger = SinkLedger(copy, pooled_client(broker.bootstrap), timeout_ms=20_000)
    with closing(
        Transaction(transactional_id(copy), bootstrap=broker.bootstrap, transaction_timeout_ms=300_000)
    ) as dead:
        dead.begin()
        for run in task(settings, ["of the dead driver"]).runs:
            dead.append_batches(copy, run.partition, [run.batches])  # type: ignore[union-attr]
        entry = ledger.entry(Published(query="q", batch=BatchIdentity(number=0)))
        dead.append_batches(SINKS.name, ledger.partition, [entry])

        script = tmp_path / "program.py"
        script.write_text(PROGRAM)
        environment = {"PATH": os.defpath, "JAVA_HOME": str(java_home), "HOME": str(tmp_path)}
        began = time.monotonic()
        with subprocess.Popen(
            [sys.executable, str(script), broker.bootstrap, source, copy, str(tmp_path)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        ) as program:
            try:
                wait_until(
                    lambda: (tmp_path / "task").exists() or program.poll() is not None, timeout_s=TIMEOUT_S
                )
                in_task = time.monotonic()
                wait_for_markers(broker.bootstrap, copy)
                print(f"task after {in_task - began:.2f} s, aborted {time.monotonic() - in_task:.2f} s later")
                (tmp_path / "go").touch()
                _, said = program.communicate(timeout=TIMEOUT_S)
            finally:
                program.kill()
        assert program.returncode == 0, said[-3000:]
        with pytest.raises(TransactionFenced):
            dead.commit()
    wait_for_markers(broker.bootstrap, copy)
    assert sorted(rows_of(broker, copy)) == sorted(values)
    assert "of the dead driver" in rows_of(broker, copy, committed_only=False), "it had been written"


def rows_of(broker: Broker, topic: str, **options: Any) -> list[str]:
    found = headrace.read(topic, bootstrap=broker.bootstrap, value="string", **options).read_all()
    return [str(value) for value in found["value"].to_pylist()]
