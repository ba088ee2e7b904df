# SPDX-License-Identifier: Apache-2.0
"""Several nodes answer as one: what one node acknowledged, every other node knows, on SQLite and ZooKeeper.

A topic is created, or a setting altered, through one node, and used at once through the others, without a
retry. Raw connections: a client would hide a refusal behind its retries.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.cluster.engines.zookeeper import ZooKeeperEnsemble
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.raw_client import RawClient
from tests.harness.waiting import wait_until

ROUNDS = 100
ACKS = (0, 1, -1)
"""One partition for each."""
TIMEOUT_MS = 30_000
WAIT_LIMIT_S = 5.0
"""How long an answer waits for a node that does not respond."""
LATEST = -1
TOPIC_RESOURCE, NODE_RESOURCE = 2, 4
SET, PREFERRED = 0, 0
BATCH = bytes(build_batch([Record(0, int(time.time() * 1000), None, b"value")]))


class Trio:
    """A connection to each node of a cluster of three."""

    def __init__(self, cluster: LiveCluster, stack: contextlib.ExitStack) -> None:
        self.cluster = cluster
        plan = cluster.folder.read()
        self.nodes = {
            node_id: stack.enter_context(RawClient(plan.member(node_id).address, timeout_s=60))
            for node_id in cluster.node_ids
        }

    def turns(self, rounds: int) -> Iterator[tuple[int, int, list[int]]]:
        """(number, the node that is asked for a change, the others)."""
        for number, node_id in zip(range(rounds), itertools.cycle(self.nodes)):
            yield number, node_id, [each for each in self.nodes if each != node_id]

    def create(self, node_id: int, name: str, replicas: Sequence[Sequence[int]] = ()) -> None:
        given = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(replicas)]
        topic = {
            "name": name,
            "num_partitions": -1 if given else len(ACKS),
            "replication_factor": -1 if given else 3,
            "assignments": given,
            "configs": [],
        }
        fields = {"topics": [topic], "timeout": TIMEOUT_MS, "validate_only": False}
        (answer,) = self.nodes[node_id].call(ApiKey.CREATE_TOPICS, 7, fields).topics
        assert answer.error_code is ErrorCode.none, answer

    def leaders(self, node_id: int, name: str) -> list[int]:
        """By partition, as this node names them."""
        fields = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": False}
        (topic,) = self.nodes[node_id].call(ApiKey.METADATA, 12, fields).topics
        assert topic.error_code is ErrorCode.none, f"node {node_id}: {topic}"
        found = sorted(topic.partitions, key=lambda each: each.partition_index)
        assert all(each.error_code is ErrorCode.none for each in found), f"node {node_id}: {found}"
        return [each.leader_id for each in found]

    def write(self, leader: int, name: str, partition: int, acks: int) -> None:
        client = self.nodes[leader]
        if acks == 0:
            client.send(client.produce_frame(name, BATCH, partition=partition, acks=acks))
            return
        code, _ = client.produce(name, BATCH, partition=partition, acks=acks)
        assert code is ErrorCode.none, f"node {leader}, {name}-{partition}, acks={acks}: {code.name}"

    def end_offset(self, leader: int, name: str, partition: int) -> int:
        asked = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": LATEST}
        fields = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": name, "partitions": [asked]}],
        }
        reply = self.nodes[leader].call(ApiKey.LIST_OFFSETS, 5, fields)
        return int(reply.topics[0].partitions[0].offset)

    def alter(self, node_id: int, resource: int, name: str, key: str, value: str) -> None:
        config = {"name": key, "config_operation": SET, "value": value}
        altered = {"resource_type": resource, "resource_name": name, "configs": [config]}
        fields = {"resources": [altered], "validate_only": False}
        (answer,) = self.nodes[node_id].call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields).responses
        assert answer.error_code is ErrorCode.none, answer

    def described(self, node_id: int, resource: int, name: str, key: str) -> str:
        asked = {"resource_type": resource, "resource_name": name, "configuration_keys": [key]}
        fields = {"resources": [asked], "include_synonyms": False, "include_documentation": False}
        (answer,) = self.nodes[node_id].call(ApiKey.DESCRIBE_CONFIGS, 4, fields).results
        assert answer.error_code is ErrorCode.none, f"node {node_id}: {answer}"
        return str(answer.configs[0].value)


@pytest.fixture(params=["sqlite", "zookeeper"])
def trio(
    request: pytest.FixtureRequest, tmp_path: Path, zookeeper_servers: Callable[..., ZooKeeperEnsemble]
) -> Iterator[Trio]:
    with contextlib.ExitStack() as stack:
        coordination = None
        if request.param == "zookeeper":
            coordination = f"zk://{stack.enter_context(zookeeper_servers(servers=1)).hosts}/headrace"
        yield stack.enter_context(_three_nodes(tmp_path, coordination))


@contextlib.contextmanager
def _three_nodes(directory: Path, coordination: str | None = None, **settings: str) -> Iterator[Trio]:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(
            LiveCluster(directory / "cluster", coordination=coordination, settings=given)
        )
        yield Trio(cluster, stack)


@pytest.mark.timeout(300)
def test_a_created_topic_is_written_to_through_every_other_node(trio: Trio) -> None:
    for number, creator, others in trio.turns(ROUNDS):
        name = f"created-{number}"
        trio.create(creator, name)
        for node_id in others:
            leaders = trio.leaders(node_id, name)
            for partition, acks in enumerate(ACKS):
                trio.write(leaders[partition], name, partition, acks)

    def missing() -> list[str]:
        return [
            f"{name}-{partition}"
            for name in (f"created-{number}" for number in range(ROUNDS))
            for partition, leader in enumerate(trio.leaders(trio.cluster.node_ids[0], name))
            if trio.end_offset(leader, name, partition) != len(trio.nodes) - 1
        ]

    wait_until(lambda: not missing(), lambda: f"records are missing in {missing()}", poll_s=0.2)


@pytest.mark.timeout(300)
def test_an_altered_setting_is_described_by_every_other_node(trio: Trio) -> None:
    trio.create(trio.cluster.node_ids[0], "altered")
    for number, asked, others in trio.turns(ROUNDS):
        value = str(1_000_000 + number)
        trio.alter(asked, TOPIC_RESOURCE, "altered", "retention.ms", value)
        trio.alter(asked, NODE_RESOURCE, "", "log.retention.bytes", value)
        for node_id in others:
            assert trio.described(node_id, TOPIC_RESOURCE, "altered", "retention.ms") == value
            assert trio.described(node_id, NODE_RESOURCE, "", "log.retention.bytes") == value


@pytest.mark.timeout(300)
def test_partitions_leaders_and_deletions_are_known_to_every_other_node(trio: Trio) -> None:
    for number, asked, others in trio.turns(12):
        name = f"changed-{number}"
        trio.create(asked, name, [[0, 1, 2]])
        more = {"name": name, "count": 2, "assignments": [{"broker_ids": [1, 2, 0]}]}
        fields = {"topics": [more], "timeout": TIMEOUT_MS, "validate_only": False}
        trio.nodes[asked].call(ApiKey.CREATE_PARTITIONS, 3, fields)
        for node_id in others:
            assert trio.leaders(node_id, name) == [0, 1]
            trio.write(1, name, 1, -1)
        fields = {"topics": [{"name": name, "topic_id": None}], "timeout": TIMEOUT_MS}
        trio.nodes[asked].call(ApiKey.DELETE_TOPICS, 6, fields)
        for node_id in others:
            with pytest.raises(AssertionError, match="unknown_topic_or_partition"):
                trio.leaders(node_id, name)


@pytest.mark.timeout(300)
def test_an_elected_leader_takes_writes_at_once(trio: Trio) -> None:
    name, preferred = "elected", 0
    trio.create(1, name, [[preferred, 1, 2]])
    trio.cluster.wait_in_sync()
    for number in range(3):
        trio.cluster.stop(preferred)
        trio.cluster.wait_until(lambda seen: all(each.leader != preferred for each in seen.partitions))
        trio.cluster.start(preferred)
        trio.cluster.wait_in_sync()
        trio.nodes[preferred] = RawClient(trio.cluster.folder.read().member(preferred).address, timeout_s=60)
        with trio.nodes[preferred]:
            asked = [{"topic": name, "partitions": [0]}]
            fields = {"election_type": PREFERRED, "topic_partitions": asked, "timeout": TIMEOUT_MS}
            trio.nodes[1].call(ApiKey.ELECT_LEADERS, 2, fields)
            for node_id in trio.nodes:
                assert trio.leaders(node_id, name) == [preferred], number
            trio.write(preferred, name, 0, -1)


@pytest.mark.timeout(300)
def test_a_hung_node_delays_one_answer_by_the_limit_and_no_other(tmp_path: Path) -> None:
    """Its session lasts longer than the test: it counts as live all the time."""
    with _three_nodes(tmp_path, broker_session_timeout_ms="40000") as trio:
        seen = trio.cluster.metadata()
        assert seen is not None
        hung = next(node_id for node_id in trio.nodes if node_id != seen.controller)
        asked, other = (node_id for node_id in trio.nodes if node_id != hung)
        trio.create(asked, "before", [[asked, other]])
        trio.cluster.pause(hung)
        try:
            durations = [_duration(trio.create, asked, f"beside-{n}", [[asked, other]]) for n in range(5)]
        finally:
            trio.cluster.resume(hung)
        assert durations[0] < WAIT_LIMIT_S + 3
        assert max(durations[1:]) < WAIT_LIMIT_S / 2, durations
        assert trio.leaders(other, "beside-4") == [asked]
        wait_until(lambda: _knows(trio, hung, "beside-4"), "the hung node has not caught up")
        for number, node_id, others in trio.turns(12):
            trio.create(node_id, f"after-{number}")
            for each in others:
                trio.leaders(each, f"after-{number}")


@pytest.mark.timeout(300)
def test_a_killed_node_delays_no_answer_beyond_the_limit(tmp_path: Path) -> None:
    with _three_nodes(tmp_path) as trio:
        asked, other, killed = trio.nodes
        trio.create(asked, "before", [[asked, other]])
        trio.cluster.kill(killed)
        durations = [_duration(trio.create, asked, f"beside-{n}", [[other, asked]]) for n in range(10)]
        assert max(durations) < WAIT_LIMIT_S + 3, durations
        for number in range(10):
            assert trio.leaders(other, f"beside-{number}") == [other]


def _knows(trio: Trio, node_id: int, name: str) -> bool:
    try:
        return bool(trio.leaders(node_id, name))
    except AssertionError:
        return False


def _duration(call: Callable[..., Any], *arguments: Any) -> float:
    started = time.monotonic()
    call(*arguments)
    return time.monotonic() - started
