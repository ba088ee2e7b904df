# SPDX-License-Identifier: Apache-2.0
"""A plain Spark session with nothing of ours set, shared by all files here: one JVM for the whole folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from headrace.client.errors import ClientError
from headrace.cluster.engines.engine import free_ports
from headrace.java import find_java
from tests.harness.left_out import leave_out
from tests.harness.live.node import NodeProcess
from tests.spark.spark_lab import Broker


@pytest.fixture(scope="session")
def java_home() -> Path:
    try:
        return find_java()
    except ClientError as error:
        leave_out("Spark", str(error))


@pytest.fixture(scope="session")
def spark(java_home: Path) -> Iterator[Any]:
    """As in an activated environment: its Python is the first on the path."""
    from pyspark.sql import SparkSession

    before = os.environ["PATH"]
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before}"
    session = SparkSession.builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    os.environ["PATH"] = before


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node that tells how many connections it took."""
    (metrics_port,) = free_ports(1)
    settings = {"headrace.metrics.port": str(metrics_port)}
    with NodeProcess(tmp_path_factory.mktemp("spark"), settings=settings) as node:
        yield Broker(node, metrics_port)


@pytest.fixture
def new_topic(broker: Broker, topic: str) -> Callable[..., str]:
    """Makes the test's own topic; further ones by suffix."""

    def create(partitions: int = 1, suffix: str = "") -> str:
        name = topic + suffix
        broker.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)
        return name

    return create
