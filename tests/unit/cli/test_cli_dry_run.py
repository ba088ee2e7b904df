# SPDX-License-Identifier: Apache-2.0
"""The same words on all commands: `--dry-run` changes nothing, `--from` means the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from headrace.cli import main
from headrace.cli.groups.reset import strategy_of
from headrace.cli.groups.reset_options import ResetTarget
from headrace.client.tools.reset import Strategy
from headrace.testing import Broker

Run = Callable[..., Any]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        yield broker


@pytest.fixture
def run(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> Any:
        """The JSON document of a command that succeeds."""
        assert main.run([*arguments, "--json", "--bootstrap", broker.bootstrap]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_topics_are_previewed(run: Run) -> None:
    assert run("topics", "create", "new", "--dry-run") == {"topic": "new", "valid": True}
    assert run("topics", "alter", "orders", "--partitions", "3", "--dry-run")["valid"]
    assert run("topics", "delete", "orders", "--dry-run") == {"dry_run": True, "would_delete": ["orders"]}
    (topic,) = run("topics", "list")
    assert (topic["name"], topic["partitions"]) == ("orders", 2)


def test_settings_are_checked_and_not_changed(
    run: Run, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("configs", "set", "--topic", "orders", "retention.ms=1000", "--dry-run")["dry_run"] is True
    assert run("configs", "get", "--topic", "orders")["configs"] == []
    for command in (["configs", "set", "--topic", "orders"], ["topics", "alter", "orders", "--config"]):
        arguments = [*command, "retention.ms=x", "--dry-run", "--bootstrap", broker.bootstrap]
        assert main.run(arguments) == 1
        assert "retention.ms" in capsys.readouterr().err


def test_groups_are_previewed(run: Run, broker: Broker) -> None:
    producer: Any = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce("orders", value=f"v{number}", partition=0)
    assert producer.flush(10) == 0
    member: Any = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    member.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, 2)], asynchronous=False)
    member.close()
    assert run("groups", "delete", "billing", "--dry-run")["would_delete"] == ["billing"]
    reset = run("groups", "reset", "billing", "--from", "-3", "--dry-run")
    assert reset["executed"] is False
    assert [(each["old"], each["new"]) for each in reset["offsets"]] == [(2, 7)]
    assert run("groups", "reset", "billing", "--from", "end", "--execute")["executed"] is True
    assert run("groups", "reset", "billing", "--from", "beginning")["offsets"][0]["old"] == 10


@pytest.mark.parametrize(
    ("start", "strategy"),
    [
        ("beginning", Strategy(kind="earliest")),
        ("end", Strategy(kind="latest")),
        ("7", Strategy(kind="offset", value=7)),
        ("-7", Strategy(kind="last", value=7)),
        ("10s", Strategy(kind="time", value=90_000)),
        ("@7", Strategy(kind="time", value=7)),
    ],
)
def test_a_group_is_reset_to_where_consume_would_start(start: str, strategy: Strategy) -> None:
    assert strategy_of(ResetTarget(start=start), "g", now_ms=100_000) == strategy
