# SPDX-License-Identifier: Apache-2.0
"""Scene: five nodes, two partitions with a replica on each, and the leader of one is killed.

Node 0 leads partition 0 and node 1 leads partition 1. Node 0 is killed while a producer and a consumer run;
it restarts, catches up, and becomes leader again by a preferred election.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, ElectionType, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.cluster.status import ClusterMetadata, read_metadata
from headrace.demo.chart import Chart, Kind, Mark, Point, Series
from headrace.demo.nodes import DemoCluster, running_cluster
from headrace.demo.requirements import SIGNALS
from headrace.demo.scene import Scene, Stage

TOPIC = "trades"
NODES = 5
REPLICAS = {"headrace": [[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]], "kafka": [[0, 2, 3, 4, 1], [1, 2, 3, 4, 0]]}
"""Apache Kafka elects the next replica in order, whatever it leads already; there node 1 is last."""
PRODUCER_PAUSE_S = 0.01
BEFORE_THE_KILL = 40
"""Records acknowledged in each partition."""
LOOK_S = 1.0
TIMEOUT_S = 60
QUIET = {"log_level": 0}


class Traffic:
    """A producer with acks=all and a consumer that run during the whole scene."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, list[bytes]] = {0: [], 1: []}
        self.failed = 0
        self.read: dict[int, list[bytes]] = {0: [], 1: []}
        self.longest_pause_s = 0.0
        self.latencies: list[Point] = []
        """When a write was acknowledged, and how many ms after it was sent."""
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._last_at: dict[int, float] = {}
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 1, **QUIET}
        producer = Producer(settings)
        number = 0
        while not self._stopping.is_set():
            producer.produce(TOPIC, b"trade %d" % number, partition=number % 2, on_delivery=self._delivered)
            producer.poll(PRODUCER_PAUSE_S)
            number += 1
        producer.flush(TIMEOUT_S)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed += 1
            return
        partition, now = message.partition() or 0, time.monotonic()
        self.longest_pause_s = max(self.longest_pause_s, now - self._last_at.get(partition, now))
        self._last_at[partition] = now
        self.latencies.append((now, (message.latency() or 0.0) * 1000))
        self.acknowledged[partition].append(message.value() or b"")

    def _consume(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "watchers", **QUIET})
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(2)])
        deadline = None
        while deadline is None or (not self._caught_up() and time.monotonic() < deadline):
            for message in consumer.consume(100, 0.1):
                if message.error() is None:
                    self.read[message.partition() or 0].append(message.value() or b"")
            if self._stopping.is_set() and deadline is None:
                self._threads[0].join()
                deadline = time.monotonic() + TIMEOUT_S
        consumer.close()

    def is_under_way(self) -> bool:
        """Enough was written to see what is normal."""
        return all(len(values) >= BEFORE_THE_KILL for values in self.acknowledged.values())

    def _caught_up(self) -> bool:
        return all(len(self.read[index]) >= len(self.acknowledged[index]) for index in range(2))


class _Failover:
    """The steps of the scene and its picture."""

    def __init__(self, stage: Stage, cluster: DemoCluster) -> None:
        self._stage = stage
        self._screen = stage.screen
        self._cluster = cluster
        self._traffic = Traffic(cluster.bootstrap)
        self._events: list[Mark] = []

    def play(self) -> None:
        self._create_topic()
        with self._traffic:
            self._play_steps()
        self._check_result()
        self._stage.draw("failover", self._latency())

    def _create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, **QUIET})
        new = NewTopic(TOPIC, 2, replica_assignment=REPLICAS[self._stage.engine])
        admin.create_topics([new])[TOPIC].result(TIMEOUT_S)
        self._wait("five replicas of each partition are in sync", lambda: self._in_sync() == [5, 5])

    def _play_steps(self) -> None:
        self._screen.say("Each partition has one leader and a replica on each of the four other nodes:")
        self._wait("both partitions are written to", self._traffic.is_under_way)
        self._show()
        self._screen.check("nodes 0 and 1 lead the partitions", self._leaders() == [0, 1])
        if self._stage.engine == "kafka":
            self._screen.say(
                "Apache Kafka elects the next in-sync replica of the list, whatever that node leads already. "
                "So that node 2 takes over here, too, node 1 is the last in the list of partition 0."
            )
        self._screen.say("Node 0 is killed (SIGKILL). Another in-sync replica becomes leader:")
        killed_at = self._event("node 0 killed")
        self._cluster.supervisor.kill(0)
        self._wait("partition 0 has another leader", lambda: self._leaders()[0] not in (0, -1))
        moved_s = self._event("new leader") - killed_at
        self._show()
        self._screen.show(Text(f"partition 0 had a leader again after {moved_s:.2f} s", "dim"))
        self._screen.check("node 2 leads partition 0, and partition 1 stayed", self._leaders() == [2, 1])
        self._screen.say("Node 0 comes back, catches up, and leads again when it is asked to:")
        self._cluster.supervisor.start([0])
        self._wait("node 0 has caught up", lambda: self._in_sync() == [5, 5])
        self._event("node 0 in sync again")
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, **QUIET})
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(TIMEOUT_S)
        self._wait("node 0 leads again", lambda: self._leaders() == [0, 1])
        self._show()
        self._screen.check("node 0 leads again, since it was asked to", self._leaders() == [0, 1])

    def _check_result(self) -> None:
        traffic = self._traffic
        sent = sum(map(len, traffic.acknowledged.values()))
        longest = f"the longest wait was {traffic.longest_pause_s:.2f} s"
        self._screen.show(Text(f"{sent} records were acknowledged meanwhile; {longest}", "dim"))
        self._screen.check("no send failed", traffic.failed == 0 and sent > 0)
        read_once = all(traffic.read[index] == traffic.acknowledged[index] for index in range(2))
        self._screen.check("all that was acknowledged was read, once and in order", read_once)

    def _event(self, label: str) -> float:
        now = time.monotonic()
        self._events.append(Mark(now, label))
        return now

    def _latency(self) -> Chart:
        """Of each write during the whole scene."""
        written = self._traffic.latencies
        begin = min(at for at, _ in written)
        return Chart(
            title="Latency of writes with acks=all while a leader dies",
            x_label="seconds",
            y_label="milliseconds from send to ack",
            series=[Series(name="a write", points=[(at - begin, ms) for at, ms in written], kind=Kind.DOTS)],
            marks=[Mark(at - begin, label) for at, label in self._events],
            log=True,
        )

    # -- cluster metadata ------------------------------------------------------------------------------------

    def _metadata(self) -> ClusterMetadata:
        supervisor, members = self._cluster.supervisor, self._cluster.plan.members
        alive = [each for each in members if supervisor.process(each.node_id) is not None]
        return read_metadata([each.address for each in alive]) or ClusterMetadata()

    def _partitions(self) -> list[tuple[int, tuple[int, ...]]]:
        found = [each for each in self._metadata().partitions if each.topic == TOPIC]
        return [(each.leader, each.isr) for each in found]

    def _leaders(self) -> list[int]:
        return [leader for leader, _ in self._partitions()] or [-1, -1]

    def _in_sync(self) -> list[int]:
        return [len(isr) for _, isr in self._partitions()]

    def _wait(self, what: str, true: Callable[[], bool]) -> None:
        self._stage.wait(what, true, timeout_s=TIMEOUT_S)

    def _show(self) -> None:
        alive = [self._cluster.supervisor.process(node) is not None for node in range(NODES)]
        self._screen.show(_drawing(alive, self._partitions()))
        time.sleep(LOOK_S if self._screen.is_terminal else 0)


def _drawing(alive: list[bool], partitions: list[tuple[int, tuple[int, ...]]]) -> Group:
    table = Table("", *(f"node {node}" for node in range(NODES)), box=None, header_style="bold")
    for index, (leader, isr) in enumerate(partitions):
        cells = [_cell(node == leader, node in isr, alive[node]) for node in range(NODES)]
        table.add_row(f"partition {index}", *cells)
    return Group(table)


def _cell(leads: bool, in_sync: bool, alive: bool) -> Text:
    if not alive:
        return Text("○ dead", "red")
    if leads:
        return Text("★ leader", "bold green")
    return Text("● in sync", "cyan") if in_sync else Text("○ behind", "yellow")


def play(stage: Stage) -> None:
    with running_cluster(stage, nodes=NODES) as cluster:
        _Failover(stage, cluster).play()


SCENE = Scene(
    name="failover",
    title="Five nodes, and the leader of a partition dies",
    play=play,
    needs=(SIGNALS,),
    own_nodes=True,
    varies=(r"\d+ records were acknowledged",),
)
