"""The demo's part on failover: five nodes, two partitions with a replica on each, and the leader that dies.

Node 0 leads partition 0 and node 1 leads partition 1. Node 0 is killed while a producer and a consumer go on;
it returns, catches up, and leads again when it is asked for. Run by demo.py, and alone.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, ElectionType, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterPlan, EngineName
from headrace.cluster.status import Picture, read_picture
from headrace.cluster.supervisor import Supervisor, plan_cluster

TOPIC = "trades"
NODES = 5
REPLICAS = {"headrace": [[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]], "kafka": [[0, 2, 3, 4, 1], [1, 2, 3, 4, 0]]}
"""As drawn. Apache Kafka takes the next replica in order, whatever it leads; there node 1 is last."""
PRODUCER_PAUSE_S = 0.01
LOOK_S = 1.0
PATIENCE_S = 60
QUIET = {"log_level": 0}

Check = Callable[[str, str, bool], None]


class Traffic:
    """A producer that waits for all in-sync replicas and a consumer; both go on whatever happens."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, list[bytes]] = {0: [], 1: []}
        self.failed = 0
        self.read: dict[int, list[bytes]] = {0: [], 1: []}
        self.longest_pause_s = 0.0
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
        producer.flush(PATIENCE_S)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed += 1
            return
        partition, now = message.partition() or 0, time.monotonic()
        self.longest_pause_s = max(self.longest_pause_s, now - self._last_at.get(partition, now))
        self._last_at[partition] = now
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
                deadline = time.monotonic() + PATIENCE_S
        consumer.close()

    def _caught_up(self) -> bool:
        return all(len(self.read[index]) >= len(self.acknowledged[index]) for index in range(2))


class ClusterScene:
    """Plays it, draws it, and has it checked."""

    def __init__(self, directory: Path, console: Console, check: Check, engine: EngineName) -> None:
        self._console = console
        self._check = check
        self._engine: EngineName = engine
        folder = ClusterFolder(directory / "cluster")
        self._plan: ClusterPlan = plan_cluster(
            engine=engine, nodes=NODES, coordination=None, settings={}, folder=folder, first_port=None
        )
        folder.create(self._plan)
        self._supervisor = Supervisor(folder)
        self._traffic = Traffic(self._plan.bootstrap)
        self._redraw: Callable[[], None] = lambda: None
        self._title = ""

    def play(self) -> None:
        self._console.print(Rule("6  Five nodes, and the leader of a partition dies"))
        started = time.monotonic()
        try:
            self._supervisor.start(range(NODES))
            self._console.print(f"Five nodes serve after {time.monotonic() - started:.1f} s.")
            self._create_topic()
            with self._traffic, self._drawn():
                self._play_scene()
            self._judge()
        finally:
            self._supervisor.stop_all()

    def _create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._plan.bootstrap, **QUIET})
        new = NewTopic(TOPIC, 2, replica_assignment=REPLICAS[self._engine])
        admin.create_topics([new])[TOPIC].result(PATIENCE_S)
        self._wait("five replicas of each partition are in sync", lambda: self._in_sync() == [5, 5])

    def _play_scene(self) -> None:
        self._wait("both partitions are written to", lambda: all(self._traffic.acknowledged.values()))
        self._check("D8", "nodes 0 and 1 lead the partitions", self._leaders() == [0, 1])
        self._show("before", LOOK_S)
        killed_at = time.monotonic()
        self._supervisor.kill(0)
        self._wait("partition 0 has another leader", lambda: self._leaders()[0] not in (0, -1))
        moved_s = time.monotonic() - killed_at
        self._show(f"node 0 was killed; partition 0 has a leader again after {moved_s:.2f} s", 2 * LOOK_S)
        self._check("D9", "node 2 leads partition 0, and partition 1 stayed", self._leaders() == [2, 1])
        self._supervisor.start([0])
        self._wait("node 0 has caught up", lambda: self._in_sync() == [5, 5])
        self._show("node 0 is back and has caught up", LOOK_S)
        admin = AdminClient({"bootstrap.servers": self._plan.bootstrap, **QUIET})
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(PATIENCE_S)
        self._wait("node 0 leads again, since it was asked for", lambda: self._leaders() == [0, 1])
        self._show("node 0 was asked to lead again", LOOK_S)

    def _judge(self) -> None:
        traffic = self._traffic
        sent = sum(map(len, traffic.acknowledged.values()))
        self._console.print(
            f"{sent} records were acknowledged by all in-sync replicas; "
            f"the longest wait was {traffic.longest_pause_s:.2f} s."
        )
        self._check("D9", "no send failed", traffic.failed == 0 and sent > 0)
        read_once = all(traffic.read[index] == traffic.acknowledged[index] for index in range(2))
        self._check("D9", "all that was acknowledged was read, once and in order", read_once)

    # -- looks ---------------------------------------------------------------------------------------------

    def _picture(self) -> Picture:
        alive = [each for each in self._plan.members if self._supervisor.process(each.node_id) is not None]
        return read_picture([each.address for each in alive]) or Picture()

    def _partitions(self) -> list[tuple[int, tuple[int, ...]]]:
        found = [each for each in self._picture().partitions if each.topic == TOPIC]
        return [(each.leader, each.isr) for each in found]

    def _leaders(self) -> list[int]:
        return [leader for leader, _ in self._partitions()] or [-1, -1]

    def _in_sync(self) -> list[int]:
        return [len(isr) for _, isr in self._partitions()]

    def _wait(self, promise: str, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (held := true()) and time.monotonic() < deadline:
            time.sleep(0.02)
        self._check("D9", promise, held)

    def _show(self, title: str, for_s: float) -> None:
        self._title = title
        self._redraw()
        time.sleep(for_s)

    @contextmanager
    def _drawn(self) -> Iterator[None]:
        """Live on a terminal; in a pipe one drawing for each step."""
        if not self._console.is_terminal:
            self._redraw = lambda: self._console.print(self._drawing())
            yield
            return
        with Live(get_renderable=self._drawing, console=self._console, refresh_per_second=4):
            yield

    def _drawing(self) -> Group:
        table = Table("", *(f"node {node}" for node in range(NODES)), box=None, header_style="bold")
        alive = [self._supervisor.process(node) is not None for node in range(NODES)]
        for index, (leader, isr) in enumerate(self._partitions()):
            cells = [_cell(node == leader, node in isr, alive[node]) for node in range(NODES)]
            table.add_row(f"partition {index}", *cells)
        sent = sum(map(len, self._traffic.acknowledged.values()))
        read = sum(map(len, self._traffic.read.values()))
        return Group(Text(self._title, "bold"), table, Text(f"acknowledged {sent}, read {read}", "dim"))


def _cell(leads: bool, in_sync: bool, alive: bool) -> Text:
    if not alive:
        return Text("○ dead", "red")
    if leads:
        return Text("★ leads", "bold green")
    return Text("● in sync", "cyan") if in_sync else Text("○ behind", "yellow")


def main() -> int:
    console = Console(highlight=False)
    results: list[bool] = []

    def check(row: str, promise: str, held: bool) -> None:
        results.append(held)
        console.print(f"{'✓' if held else '✗'} {row} {promise}")

    engine: EngineName = "kafka" if "kafka" in sys.argv[1:] else "headrace"
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as directory:
        ClusterScene(Path(directory), console, check, engine).play()
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
