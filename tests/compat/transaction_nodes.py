# SPDX-License-Identifier: Apache-2.0
"""Nodes that tests of transactions run on: Apache Kafka and Headrace, with either of the two protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headrace.cluster.engines.engine import RunningNode
from headrace.cluster.engines.headrace import HeadraceEngine
from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.java_tool import JavaTool

ENGINES = ["kafka", "headrace"]
PROTOCOLS = [f"{engine}-version-{version}" for engine in ENGINES for version in (2, 1)]
"""`transaction.version` 2 is KIP-890; 1 is what clients and brokers spoke before."""
QUICK_TIMEOUTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


@contextmanager
def transactional_node(
    protocol: str, kafka: KafkaEngine, folder: Path, settings: Mapping[str, str]
) -> Iterator[RunningNode]:
    """`protocol`: one of PROTOCOLS or ENGINES; a test may kill the node, and launch it again."""
    engine, _, version = protocol.partition("-version-")
    if engine == "headrace":
        held = {"headrace.transaction.version": version} if version else {}
        with HeadraceEngine().start(folder, {**settings, **held}) as node:
            yield node
        return
    with kafka.start(folder, settings) as node:
        if version == "1":
            arguments = ("downgrade", "--feature", "transaction.version=1")
            JavaTool(kafka, node.bootstrap)("org.apache.kafka.tools.FeatureCommand", *arguments)
        yield node
