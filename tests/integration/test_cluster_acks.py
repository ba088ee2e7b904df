# SPDX-License-Identifier: Apache-2.0
"""What acks 0, 1 and all survive: the leader dies before a follower has a copy (D7).

Both followers are halted, fifty records are sent in each way to the leader, the leader is killed, the
followers go on. docs/cluster.md shows what is counted here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from headrace.types import TopicPartition
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.load import read_all

RECORDS = 50


class Sender:
    """Fifty records with some acks, sent once the leader stands alone."""

    def __init__(self, bootstrap: str, acks: str) -> None:
        self.topic = f"acks-{acks}"
        self.acknowledged: list[bytes] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0, "message.timeout.ms": 30_000}
        )

    def warm_up(self) -> None:
        """Connected, and its first record on every replica."""
        self._producer.produce(self.topic, b"before", partition=0)
        assert self._producer.flush(20) == 0

    def send(self) -> None:
        for number in range(RECORDS):
            self._producer.produce(self.topic, b"%d" % number, partition=0, on_delivery=self._note)
        deadline = time.monotonic() + 1.0
        while len(self.acknowledged) < RECORDS and time.monotonic() < deadline:
            self._producer.poll(0.05)

    def finish(self) -> None:
        assert self._producer.flush(40) == 0

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(message.value() or b"")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.mark.row("D7")
def test_only_acks_all_survives_a_leader_that_dies_before_a_follower_has_a_copy(cluster: LiveCluster) -> None:
    senders = {acks: Sender(cluster.bootstrap, acks) for acks in ("0", "1", "all")}
    answered = Sender(cluster.bootstrap, "1")
    answered.topic = "answered"
    for sender in (*senders.values(), answered):
        cluster.create_topic(sender.topic, [[0, 1, 2]], min_insync_replicas="2")
        sender.warm_up()
    cluster.wait_in_sync()
    time.sleep(0.3)  # every follower has a fetch that waits at the leader

    for follower in (1, 2):
        cluster.pause(follower)
    answered.send()  # the fetches that wait at the leader; the next ones are not sent any more
    for sender in senders.values():
        sender.send()
    told_before = {acks: len(sender.acknowledged) for acks, sender in senders.items()}
    cluster.kill(0)
    for follower in (1, 2):
        cluster.resume(follower)
    cluster.wait_until(lambda picture: not picture.without_leader)
    for sender in senders.values():
        sender.finish()

    stored = {
        acks: [value for _, value in read_all(cluster.bootstrap, TopicPartition(sender.topic, 0)).records]
        for acks, sender in senders.items()
    }
    lost = {acks: len(set(sender.acknowledged) - set(stored[acks])) for acks, sender in senders.items()}
    print(f"acknowledged before the kill: {told_before}; acknowledged and lost: {lost}")
    assert told_before == {"0": RECORDS, "1": RECORDS, "all": 0}
    assert lost == {"0": RECORDS, "1": RECORDS, "all": 0}
    assert len(senders["all"].acknowledged) == RECORDS, "by retries, to the next leader"
    assert all(values[0] == b"before" for values in stored.values()), "what was copied is there"
    assert all(len(values) == len(set(values)) for acks, values in stored.items() if acks != "all")
