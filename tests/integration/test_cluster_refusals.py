# SPDX-License-Identifier: Apache-2.0
"""What cannot be a cluster is refused in one line that says what to do, and nothing is damaged by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.live.node import NodeProcess


def _node(directory: Path, node_id: int, coordination: str) -> NodeProcess:
    place = ("--node-id", str(node_id), "--coordination", coordination)
    return NodeProcess(directory / f"node-{node_id}", arguments=place)


def _refusal(node: NodeProcess) -> str:
    done = node.run_to_end(timeout_ms=60_000)
    assert done.returncode == 1
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert lines[-1].startswith("headrace: ")
    assert "Traceback" not in done.stderr
    return lines[-1]


def test_a_number_that_a_live_node_has_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    with _node(tmp_path / "first", 4, store) as first:
        line = _refusal(_node(tmp_path / "second", 4, store))
        assert "node 4 is already registered" in line
        assert "another node.id" in line
        admin = AdminClient({"bootstrap.servers": first.bootstrap})
        assert list(admin.list_topics(timeout=10).brokers) == [4]
        first.kill()
        first.start()  # at once, without waiting for a session: its directory proves who it is


def test_a_directory_of_another_cluster_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    node = _node(tmp_path, 1, f"sqlite:{tmp_path / 'one'}")
    with node:
        pass
    before = (node.data / "meta.properties").read_text()
    line = _refusal(_node(tmp_path, 1, f"sqlite:{tmp_path / 'other'}"))
    assert "cluster.id" in line
    assert "name the coordination store of that cluster" in line
    assert (node.data / "meta.properties").read_text() == before
    with node:
        pass


def test_two_nodes_on_one_directory_are_refused_though_they_share_a_store(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    with _node(tmp_path, 1, store):
        place = ("--node-id", "2", "--coordination", store)
        assert "in use by another node" in _refusal(NodeProcess(tmp_path / "node-1", arguments=place))


def test_more_replicas_than_nodes_are_refused(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    with _node(tmp_path, 1, store) as node, _node(tmp_path, 2, store):
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR") as caught:
            admin.create_topics([NewTopic("t", 1, replication_factor=3)])["t"].result(20)
        assert "3" in str(caught.value)
        assert "t" not in admin.list_topics(timeout=10).topics


@pytest.mark.soak
def test_soak_an_unreachable_zookeeper_is_named(tmp_path: Path) -> None:
    """It waits thirty seconds for somebody. The short form, of the store alone, is in tests/contract."""
    pytest.importorskip("kazoo")
    line = _refusal(_node(tmp_path, 1, "zk://127.0.0.1:1/headrace"))
    assert "cannot reach ZooKeeper at 127.0.0.1:1" in line
