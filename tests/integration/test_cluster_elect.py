# SPDX-License-Identifier: Apache-2.0
"""`headrace cluster elect --unclean` on real nodes: names what would be lost, does it only when agreed to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.cli import main
from headrace.client.tools.unclean_election import leaderless
from headrace.cluster.status import ClusterMetadata
from headrace.types import TopicPartition
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.load import read_all

GONE, BEHIND = 0, 1
QUICK = {"broker.session.timeout.ms": "2000"}
ORDERS = TopicPartition("orders", 0)

Elect = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "cluster", nodes=2, settings=QUICK) as cluster:
        yield cluster


@pytest.fixture
def elect(cluster: LiveCluster, capsys: pytest.CaptureFixture[str]) -> Elect:
    """The command against the node that is left: its code, and what it said on stdout and stderr."""
    address = cluster.folder.read().member(BEHIND).address

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main.run(["cluster", "elect", *words, "--bootstrap", address])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def produce(bootstrap: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(ORDERS.topic, value, partition=ORDERS.partition)
    assert producer.flush(20) == 0


def led_by_nobody(metadata: ClusterMetadata) -> set[str]:
    return {str(each) for each in metadata.without_leader}


def test_an_unclean_election_names_what_it_gives_up_and_asks(cluster: LiveCluster, elect: Elect) -> None:
    cluster.create_topic("orders", [[GONE, BEHIND]], min_insync_replicas="1")
    cluster.create_topic("alone", [[GONE]])
    cluster.create_topic("led", [[BEHIND]])
    produce(cluster.bootstrap, b"kept")
    cluster.wait_in_sync()
    cluster.stop(BEHIND)
    produce(cluster.bootstrap, b"lost", b"lost too")
    cluster.kill(GONE)
    cluster.start(BEHIND)
    cluster.wait_until(lambda metadata: led_by_nobody(metadata) >= {"orders-0", "alone-0"})

    code, _, said = elect("orders", "--unclean")
    assert code == 1
    assert "orders-0 has no leader: node 0 had every acknowledged record; node 1 can lead" in said
    assert "confirmation needed: elect unclean leaders for orders-0 and lose" in said
    assert "add --yes" in said
    code, out, _ = elect("orders", "--unclean", "--dry-run", "--json")
    preview = {"partition": "orders-0", "had_all": [GONE], "may_lead": [BEHIND]}
    assert (code, json.loads(out)) == (0, {"dry_run": True, "would_elect": [preview]})
    assert "has no partition 7" in elect("orders", "--partition", "7", "--unclean", "--yes")[2]
    assert "needs TOPIC and --unclean" in elect("orders", "--partition", "0")[2]
    assert "nothing to elect" in elect("led", "--partition", "0", "--unclean")[1]
    assert [each.place for each in leaderless(cluster.bootstrap, "orders")] == [ORDERS], "nothing was done"

    code, out, _ = elect("orders", "--unclean", "--yes", "--json")
    assert code == 0
    chosen = {"partition": "orders-0", "leader": BEHIND, "from": 1, "had_all": [GONE]}
    assert json.loads(out) == {"elected": [chosen], "refused": {}}
    assert [value for _, value in read_all(cluster.bootstrap, ORDERS).records] == [b"kept"]

    code, out, said = elect("alone", "--unclean", "--yes")
    assert (code, "no replica is up" in said) == (1, True)
    assert "alone-0: still without a leader" in out
