# SPDX-License-Identifier: Apache-2.0
"""A sink while a cluster begins to serve transactions, and when it does not any more."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.errors import ClientError
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.writing.columns import SinkColumns
from pyspark_headrace.writing.commit_messages import Encoded, Written
from pyspark_headrace.writing.delivery import Delivery
from pyspark_headrace.writing.publish import publish_batch
from pyspark_headrace.writing.task import write_task
from tests.harness.live.committed import wait_for_markers
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import wait_until

VALUES = SinkColumns(names=frozenset({"value"}))
QUERY = "query"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """As of a release that serves no transactions."""
    with NodeProcess(tmp_path, settings={"headrace.transaction.version": "0"}) as node:
        yield node


def set_transaction_version(node: NodeProcess, version: int) -> None:
    setting = f"headrace.transaction.version={version}"
    command = [sys.executable, "-m", "headrace.cli.main", "configs", "set", "--node", "1", setting]
    subprocess.run([*command, "--bootstrap", node.bootstrap], check=True, capture_output=True)


def is_exactly_once(settings: WriteSettings) -> bool:
    """What the tasks of a batch that is planned now are told."""
    planned = pickle.dumps(Delivery(settings, awaits_broker=True))
    return bool(pickle.loads(planned).is_exactly_once())


def write_batch(settings: WriteSettings, batch: int) -> list[Any]:
    """As Spark does: one decision, two tasks, one commit."""
    exactly_once = is_exactly_once(settings)
    messages = []
    for part in range(2):
        rows = pa.record_batch({"value": [f"batch {batch} part {part} row {row}" for row in range(10)]})
        message = write_task(iter([rows]), settings, VALUES, exactly_once=exactly_once, awaits_broker=True)
        messages.append(replace(message, query=QUERY) if isinstance(message, Encoded) else message)
    publish_batch(messages, settings, batch)
    return messages


def test_a_sink_goes_over_to_exactly_once_and_is_not_taken_back_unnoticed(
    node: NodeProcess, topic: str
) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    settings = WriteSettings(bootstrap=node.bootstrap, topic=topic, compression="none", timeout_ms=20_000)
    assert write_batch(settings, 0) == [Written(10), Written(10)]

    set_transaction_version(node, 2)
    wait_until(lambda: is_exactly_once(settings))
    for batch in (1, 1, 2):
        assert all(isinstance(message, Encoded) for message in write_batch(settings, batch))
    wait_for_markers(node.bootstrap, topic)
    found = headrace.read(topic, bootstrap=node.bootstrap, value="string", columns=["value"]).read_all()
    assert len(set(found["value"].to_pylist())) == found.num_rows == 60

    set_transaction_version(node, 0)
    node.restart()
    with pytest.raises(ClientError, match=r"serves no transactions now; .*set exactlyOnce=off"):
        is_exactly_once(replace(settings, timeout_ms=500))
    assert not is_exactly_once(replace(settings, exactly_once="off"))
