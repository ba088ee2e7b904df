# SPDX-License-Identifier: Apache-2.0
"""The same words on all commands: `--dry-run` changes nothing, `--from` means the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cli import main
from headrace.cli.groups.reset import strategy_of
from headrace.cli.groups.reset_options import ResetTarget
from headrace.client.tools.reset import Strategy
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterPlan, Member
from headrace.testing import Broker
from tests.harness.waiting import wait_until

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


@pytest.fixture
def three() -> Iterator[Broker]:
    with Broker(nodes=3) as broker:
        broker.create_topic("orders")
        yield broker


def test_elections_of_preferred_leaders_are_previewed(
    three: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    preferred, *_ = replicas(three)
    three.crash(preferred)
    wait_until(lambda: leader(three) not in (preferred, -1))
    three.restart(preferred)
    wait_until(lambda: preferred in _partition(three, "orders").isrs)
    other = leader(three)
    elect = ["cluster", "elect", "--bootstrap", three.bootstrap]

    def said(*words: str) -> str:
        assert main.run([*elect, *words]) == 0
        return capsys.readouterr().out

    expected = {"dry_run": True, "would_elect": [{"partition": "orders-0", "leader": preferred}]}
    assert json.loads(said("orders", "--dry-run", "--json")) == expected
    assert f"orders-0: node {preferred} would be leader again.\n" in said("--dry-run")
    assert leader(three) == other, "nothing was changed"
    assert json.loads(said("orders", "--json")) == {"changed": ["orders-0"]}
    assert said("orders", "--dry-run") == "Every preferred leader that is in sync is leader already.\n"
    assert json.loads(said("--unclean", "--dry-run", "--json")) == {"dry_run": True, "would_elect": []}
    assert main.run([*elect, "nowhere", "--dry-run"]) == 1
    assert "'nowhere' does not exist" in capsys.readouterr().err


def test_the_removal_of_a_node_is_previewed(
    three: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin: Any = AdminClient({"bootstrap.servers": three.bootstrap})
    admin.create_topics([NewTopic("pairs", 1, 2)])["pairs"].result(10)
    folder = ClusterFolder(tmp_path)
    ports = [int(address.rpartition(":")[2]) for address in three.bootstrap.split(",")]
    members = tuple(Member(node_id=number, port=port) for number, port in enumerate(ports, 1))
    folder.create(ClusterPlan(engine="headrace", coordination="x", cluster_id="x", members=members))
    leaving, staying = replicas(three, "pairs")
    (newcomer,) = {1, 2, 3} - {leaving, staying}
    remove = ["cluster", "remove", str(leaving), "--dry-run", "--dir", str(tmp_path)]
    assert main.run(remove) == 1, "orders needs three nodes"
    assert "topic 'orders' has 3 replicas" in capsys.readouterr().err
    admin.delete_topics(["orders"])["orders"].result(10)

    before = folder.read()
    assert main.run([*remove, "--json"]) == 0
    moves = json.loads(capsys.readouterr().out)
    assert (moves["dry_run"], moves["would_remove"]) == (True, leaving)
    assert moves["would_move"]["pairs-0"] == [newcomer, staying]
    assert main.run(remove) == 0
    out = capsys.readouterr().out
    assert f"pairs-0: its replicas would be on nodes {newcomer}, {staying}.\n" in out
    assert out.endswith(f"then stop node {leaving} and remove it.\n")
    assert folder.read() == before
    assert replicas(three, "pairs") == [leaving, staying]


def replicas(broker: Broker, topic: str = "orders") -> list[int]:
    return list(_partition(broker, topic).replicas)


def leader(broker: Broker) -> int:
    return int(_partition(broker, "orders").leader)


def _partition(broker: Broker, topic: str) -> Any:
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap})
    return admin.list_topics(topic, timeout=10).topics[topic].partitions[0]


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
