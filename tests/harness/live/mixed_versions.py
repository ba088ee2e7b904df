# SPDX-License-Identifier: Apache-2.0
"""A cluster whose nodes are of an earlier commit and of this tree, in turn: upgraded, downgraded, killed.

Between the faults topics are created, used and deleted, and transactions are made while all nodes serve them.
Read next: earlier_release.py, kill_loop.py, families.py.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace import types
from headrace.client.connection import Connection
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.earlier_release import MixedReleases
from tests.harness.live.load import read_all
from tests.harness.waiting import wait_until

PAID, TRANSACTIONAL_ID = "paid", "mixed"
MOST_EARLIER = 2
_TIMEOUT_S = 60
_KEPT_TOPICS = 2
_RECORDS = 20


def restart(cluster: LiveCluster, node_id: int) -> None:
    """As the release that the node is of now."""
    cluster.stop(node_id)
    prepare(cluster, node_id)
    cluster.start(node_id)


def prepare(cluster: LiveCluster, node_id: int) -> None:
    """Its next start is as the release that the node is of now."""
    plan = cluster.folder.read()
    cluster.supervisor.prepare(plan, [plan.member(node_id)])


def transaction_version(cluster: LiveCluster, node_id: int) -> int:
    async def features() -> int:
        member = cluster.folder.read().member(node_id)
        connection = await Connection.open(member.host, member.port)
        try:
            return connection.features.get("transaction.version", 0)
        finally:
            await connection.close()

    return asyncio.run(features())


def wait_for_level(cluster: LiveCluster, level: int, node_ids: Iterable[int]) -> None:
    wait_until(
        lambda: {transaction_version(cluster, node_id) for node_id in node_ids} == {level},
        f"nodes are at transaction.version {level}",
    )


class MixedVersions:
    """A fault for kill_loop; `faults` counts its kinds, `done` what was done between them."""

    def __init__(self, releases: MixedReleases, seed: int, *, earlier_level: int) -> None:
        """`earlier_level`: the transaction.version while a node of the earlier commit is there."""
        self.faults: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.committed: list[bytes] = []
        self._releases = releases
        self._random = random.Random(seed)
        self._earlier_level = earlier_level
        self._topics: list[str] = []

    def strike(self, cluster: LiveCluster, node_id: int) -> None:
        fault = self._random.choice(("kill", "restart", "release", "release"))
        if fault == "kill":
            cluster.kill(node_id)
            cluster.start(node_id)
        elif fault == "restart":
            restart(cluster, node_id)
        else:
            fault = self._change_release(cluster, node_id)
        self.faults[fault] += 1
        cluster.wait_in_sync()
        self._use_a_topic(cluster)
        self._use_transactions(cluster)

    def _change_release(self, cluster: LiveCluster, node_id: int) -> str:
        upgraded = self._releases.upgraded
        earlier = set(cluster.node_ids) - upgraded
        if node_id in upgraded and len(earlier) >= MOST_EARLIER:
            node_id = self._random.choice(sorted(earlier))
        change = "downgrade" if node_id in upgraded else "upgrade"
        upgraded.symmetric_difference_update({node_id})
        restart(cluster, node_id)
        return change

    def _use_a_topic(self, cluster: LiveCluster) -> None:
        """A new one is written and read, and the oldest deleted."""
        name = f"passing-{self.done['topics']}"
        cluster.create_topic(name, [cluster.node_ids], min_insync_replicas="2")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        values = [b"%d" % number for number in range(_RECORDS)]
        for value in values:
            producer.produce(name, value, partition=0)
        assert producer.flush(_TIMEOUT_S) == 0, f"{name} could not be written"
        found = [value for _, value in read_all(cluster.bootstrap, types.TopicPartition(name, 0)).records]
        assert found == values, name
        self.done["topics"] += 1
        self._topics.append(name)
        if len(self._topics) > _KEPT_TOPICS:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            gone = self._topics.pop(0)
            admin.delete_topics([gone], operation_timeout=_TIMEOUT_S)[gone].result(_TIMEOUT_S)

    def _use_transactions(self, cluster: LiveCluster) -> None:
        """One that commits and one that aborts; the level is what the nodes have in common."""
        all_upgraded = self._releases.upgraded >= set(cluster.node_ids)
        level = 2 if all_upgraded else self._earlier_level
        wait_for_level(cluster, level, cluster.node_ids)
        self.done[f"times at transaction.version {level}"] += 1
        if level == 0:
            return
        number = self.done["transactions"]
        settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": TRANSACTIONAL_ID}
        producer = Producer(settings)
        producer.init_transactions(_TIMEOUT_S)
        for ends in ("commits", "aborts"):
            value = f"{number} {ends}".encode()
            producer.begin_transaction()
            producer.produce(PAID, value, partition=0)
            assert producer.flush(_TIMEOUT_S) == 0
            if ends == "commits":
                producer.commit_transaction(_TIMEOUT_S)
                self.committed.append(value)
            else:
                producer.abort_transaction(_TIMEOUT_S)
        self.done["transactions"] += 2


def read_committed(bootstrap: str, topic: str) -> list[bytes]:
    """Everything in partition 0 that a reader of committed records sees."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "final", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    with suppress(EOFError):
        while True:
            _take(consumer, values)
    consumer.close()
    return values


def _take(consumer: Consumer, values: list[bytes]) -> None:
    message = consumer.poll(_TIMEOUT_S)
    assert message is not None, f"no record and no end within {_TIMEOUT_S} s"
    error = message.error()
    if error is None:
        values.append(message.value() or b"")
    elif error.code() == KafkaError._PARTITION_EOF:
        raise EOFError
    else:
        raise KafkaException(error)
