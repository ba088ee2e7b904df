# SPDX-License-Identifier: Apache-2.0
"""Scene: acknowledgements on three nodes. What each setting waits for, how long, and what it survives.

Both followers are stopped (SIGSTOP), records are sent to the leader in each way, the leader is killed,
and the followers go on.
"""

from __future__ import annotations

import signal
import time
from typing import Any, get_args

from confluent_kafka import Message, Producer
from rich.table import Table

from headrace.client.tools.producer import Acks
from headrace.cluster.status import read_metadata
from headrace.demo.nodes import DemoCluster, running_cluster
from headrace.demo.records import read_topic
from headrace.demo.requirements import SIGNALS
from headrace.demo.scene import Scene, Stage

NODES = 3
TIMED = 100
"""Records that are sent one by one to measure the time of a send."""
RECORDS = 50
"""Records that are sent while no follower copies."""
SEND_S, FINISH_S = 1.0, 60
FETCH_PAUSE_S = 0.3
WAITS_FOR: dict[Acks, str] = {
    "0": "nothing",
    "1": "the leader",
    "all": "all in-sync replicas",
}
DRAWING = """\
acks=0    producer ──record──▶ leader ──▶ followers
acks=1    producer ──record──▶ leader ──▶ followers
                   ◀───ok─────
acks=all  producer ──record──▶ leader ──▶ followers
                   ◀───ok───────────────── (all in sync)"""


class Sender:
    """A producer with one setting of acks and a topic of its own."""

    def __init__(self, bootstrap: str, acks: Acks, topic: str) -> None:
        self.topic = topic
        self.acknowledged: set[bytes] = set()
        self.last_offset: int | None = None
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0}
        self._producer = Producer({**settings, "message.timeout.ms": FINISH_S * 1000, "log_level": 0})

    def median_ms(self) -> float:
        """The median time from send to report."""
        times = []
        for number in range(TIMED):
            started = time.perf_counter()
            self._send(b"timed %d" % number)
            self._producer.flush(FINISH_S)
            times.append((time.perf_counter() - started) * 1000)
        return sorted(times)[TIMED // 2]

    def send_some(self) -> int:
        """Send records to a leader that is alone; how many were acknowledged within a second."""
        self.acknowledged.clear()
        for number in range(RECORDS):
            self._send(b"%d" % number)
        deadline = time.monotonic() + SEND_S
        while len(self.acknowledged) < RECORDS and time.monotonic() < deadline:
            self._producer.poll(0.05)
        return len(self.acknowledged)

    def finish(self) -> None:
        self._producer.flush(FINISH_S)

    def _send(self, value: bytes) -> None:
        self._producer.produce(self.topic, value, partition=0, on_delivery=self._report)

    def _report(self, error: object, message: Message) -> None:
        if error is None:
            self.acknowledged.add(message.value() or b"")
            offset = message.offset()
            self.last_offset = None if offset is None or offset < 0 else offset


def play(stage: Stage) -> None:
    stage.screen.say("A producer chooses how long a send waits:")
    stage.screen.show(DRAWING)
    with running_cluster(stage, nodes=NODES) as cluster:
        senders = {acks: Sender(cluster.bootstrap, acks, f"acks-{acks}") for acks in get_args(Acks)}
        drain = Sender(cluster.bootstrap, "1", "drain")
        for topic in (drain.topic, *(sender.topic for sender in senders.values())):
            _create(stage, cluster, topic)
        _measure(stage, senders)
        _survive(stage, cluster, senders, drain)


def _create(stage: Stage, cluster: DemoCluster, topic: str) -> None:
    """Node 0 leads it, and nodes 1 and 2 follow."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(topic, 1, replica_assignment=[[0, 1, 2]], config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(FINISH_S)
    stage.wait(f"the replicas of '{topic}' are in sync", lambda: _in_sync(cluster, topic) == NODES)


def _in_sync(cluster: DemoCluster, topic: str) -> int:
    metadata = read_metadata([member.address for member in cluster.plan.members])
    found = [each for each in metadata.partitions if each.topic == topic] if metadata else []
    return len(found[0].isr) if found else 0


def _measure(stage: Stage, senders: dict[Acks, Sender]) -> None:
    table = Table("acks", "waits for", "a send takes", "returns", box=None, header_style="bold")
    for acks, sender in senders.items():
        took_ms = sender.median_ms()
        returned = "nothing" if sender.last_offset is None else "partition and offset"
        table.add_row(acks, WAITS_FOR[acks], f"{took_ms:.2f} ms", returned)
        known = (sender.last_offset is None) == (acks == "0")
        if not known:
            stage.screen.check(f"acks={acks} returns {returned}", False)
    stage.screen.show(table)
    offsets = {acks: sender.last_offset for acks, sender in senders.items()}
    last = TIMED - 1
    promise = "acks=0 returns no offset, acks=1 and acks=all do"
    stage.screen.check(promise, offsets == {"0": None, "1": last, "all": last})


def _survive(stage: Stage, cluster: DemoCluster, senders: dict[Acks, Sender], drain: Sender) -> None:
    stage.screen.say(
        f"What each survives: the two followers are stopped for a moment, {RECORDS} records are sent with "
        "each setting, and the leader is killed before a follower has a copy. A follower becomes leader."
    )
    time.sleep(FETCH_PAUSE_S)  # every follower has a fetch that waits at the leader
    _signal_followers(cluster, signal.SIGSTOP)
    drain.send_some()  # answers the fetches that wait at the leader
    before = {acks: sender.send_some() for acks, sender in senders.items()}
    cluster.supervisor.kill(0)
    _signal_followers(cluster, signal.SIGCONT)
    for sender in senders.values():
        sender.finish()
    table = Table("acks", "acknowledged", "lost of these", "", box=None, header_style="bold")
    stored = {acks: _stored(cluster, sender.topic) for acks, sender in senders.items()}
    lost = {acks: len(sender.acknowledged - stored[acks]) for acks, sender in senders.items()}
    for acks, sender in senders.items():
        waited = f"{len(sender.acknowledged)} by the new leader" if not before[acks] else ""
        table.add_row(acks, str(before[acks]), str(lost[acks]) if before[acks] else "0", waited)
    stage.screen.show(table)
    stage.screen.check("acks=all: every acknowledged record survived the leader", lost["all"] == 0)
    arrived = len(senders["all"].acknowledged) == RECORDS
    stage.screen.check("acks=all: the producer sent them again, to the new leader", arrived)
    stage.screen.check("acks=0 and acks=1: records may be lost with their leader", lost["0"] + lost["1"] > 0)


def _signal_followers(cluster: DemoCluster, number: signal.Signals) -> None:
    for node_id in range(1, NODES):
        process = cluster.supervisor.process(node_id)
        if process is not None:
            process.signal(number)


def _stored(cluster: DemoCluster, topic: str) -> set[bytes]:
    alive = ",".join(member.address for member in cluster.plan.members[1:])
    return {record.value or b"" for record in read_topic(alive, topic)}


SCENE = Scene(
    name="acks",
    title="Acknowledgements, and what each survives",
    play=play,
    needs=(SIGNALS,),
    own_nodes=True,
)
