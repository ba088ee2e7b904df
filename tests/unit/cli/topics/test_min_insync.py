# SPDX-License-Identifier: Apache-2.0
"""A min.insync.replicas above the number of replicas is reported wherever it begins to count."""

from __future__ import annotations

import json

import pytest

from headrace.cli import main
from headrace.testing import Broker

WARNING = (
    "min.insync.replicas=2 is more than 1 replica: Apache Kafka refuses every write with acks=all, Headrace "
    "waits for 1; lower it: headrace configs set --topic {} min.insync.replicas=1"
)


def test_a_default_of_the_nodes_that_a_new_topic_cannot_reach(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(settings={"min.insync.replicas": "2"}) as broker:
        at = ["--bootstrap", broker.bootstrap]
        assert main.run(["topics", "create", "orders", *at]) == 0
        assert capsys.readouterr().err == f"Warning: {WARNING.format('orders')}\n"
        assert main.run(["topics", "create", "fine", "--config", "min.insync.replicas=1", *at]) == 0
        assert capsys.readouterr().err == ""
        assert main.run(["topics", "describe", "orders", *at]) == 0
        assert WARNING.format("orders") in capsys.readouterr().out
        assert main.run(["topics", "describe", "fine", "--json", *at]) == 0
        assert json.loads(capsys.readouterr().out)["warning"] is None
    (line,) = [line for line in caplog.messages if "min.insync.replicas" in line]
    assert line == "topic orders: min.insync.replicas=2 is more than its 1 replica(s), so 1 is used"


def test_a_topic_that_is_altered(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with Broker() as broker:
        at = ["--bootstrap", broker.bootstrap]
        broker.create_topic("orders")
        broker.create_topic("more")
        assert main.run(["configs", "set", "--topic", "orders", "min.insync.replicas=2", *at]) == 0
        assert capsys.readouterr().err == f"Warning: {WARNING.format('orders')}\n"
        assert main.run(["topics", "alter", "more", "--config", "min.insync.replicas=2", *at]) == 0
        assert capsys.readouterr().err == f"Warning: {WARNING.format('more')}\n"
    assert [line.split(":")[0] for line in caplog.messages if "min.insync" in line] == [
        "topic orders",
        "topic more",
    ]
