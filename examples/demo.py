"""The demo (`make demo`): a node, producers, consumers at their offsets, a group that shares out partitions,
pipelines on Spark, a cluster whose leader dies.

Drawn while it happens; the group is demo_groups.py's, the pipelines are demo_pipelines.py's, the cluster is
demo_cluster.py's. Everything goes through the Kafka protocol to nodes of its own (`--engine kafka`: Apache
Kafka's), in a folder that is removed afterwards. What was shown is checked at the end; the exit code is 1
when anything was not as promised.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from demo_cluster import ClusterScene
from demo_groups import NODE_SETTINGS, GroupScene
from demo_pipelines import PipelineScene, SparkStart
from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from headrace.client.admin import Admin
from headrace.client.partitioner_store import PartitionerStore
from headrace.client.partitioners import hash_partition
from headrace.client.producer import Acks, Delivery, OutgoingRecord, RecordProducer
from headrace.client.ranges import parse_ranges
from headrace.client.reader import RecordReader
from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.plan import EngineName

RECORDS = 12
THERE_BEFORE = 5
PRODUCER_PAUSE_S = 0.22
CONSUMERS = {"A": (0, 0.33, "cyan"), "B": (3, 0.25, "magenta")}
"""Where each begins, how long it takes over a record, its colour."""
RANGES = "AAAA..MZZZ,NAAA..ZZZZ"
ACKS_RECORDS = 100
SCENE_S = 15
"""After this long the first scene is over, whether it came to its end or not."""

console = Console(highlight=False)


class Checks:
    """What the demo promised and whether it held."""

    def __init__(self) -> None:
        self._results: list[tuple[str, str, bool]] = []

    def __call__(self, row: str, promise: str, held: bool) -> None:
        self._results.append((row, promise, held))

    def show(self) -> bool:
        console.print(Rule("What was shown, checked"))
        for row, promise, held in self._results:
            mark = Text("✓ ", style="bold green") if held else Text("✗ ", style="bold red")
            console.print(Text.assemble(mark, (f"{row:<4}", "dim"), promise))
        return all(held for _, _, held in self._results)


check = Checks()


@contextmanager
def running_kafka(directory: Path) -> Iterator[str]:
    """One node of Apache Kafka, through the code that `headrace cluster up --engine kafka` uses."""
    with KafkaEngine().start(directory / "kafka", NODE_SETTINGS) as node:
        console.print(f"Apache Kafka is ready at {node.bootstrap} after {node.ready_after_ms:.0f} ms.")
        yield node.bootstrap


@contextmanager
def running_node(directory: Path) -> Iterator[str]:
    """`headrace serve` on a free port, as a process of its own."""
    command = [sys.executable, "-m", "headrace.cli.main", "serve", "--json"]
    command += ["--data", str(directory / "data"), "--listener", "main=127.0.0.1:0"]
    for key, value in NODE_SETTINGS.items():
        command += ["--set", f"{key}={value}"]
    started = time.monotonic()
    with (directory / "node.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"the node did not start:\n{(directory / 'node.log').read_text()}")
    ready = json.loads(line)
    bootstrap = next(iter(ready["listeners"].values()))
    console.print(f"A node is ready at {bootstrap} after {(time.monotonic() - started) * 1000:.0f} ms.")
    try:
        yield bootstrap
    finally:
        process.terminate()
        code = process.wait(20)
        process.stdout.close()
        check("", "the node stopped cleanly", code == 0)


# -- 1: a topic is a log -----------------------------------------------------------------------------------


@dataclass
class LogPicture:
    """The drawing of D1: cells of the log, where the consumers stand, where the producer appends."""

    end: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    history: set[tuple[int, ...]] = field(default_factory=set)

    def __rich__(self) -> Group:
        self.history.add(tuple(self.positions.values()))
        cells = "".join(f"│{offset:^4}" for offset in range(self.end))
        producer = Text(" ◀ producer appends", style="green")
        lines = [
            Text("┌" + "────┬" * (self.end - 1) + "────┐" if self.end else ""),
            Text.assemble(cells + "│" if self.end else "(empty)", producer),
            Text("└" + "────┴" * (self.end - 1) + "────┘" if self.end else ""),
        ]
        for name, (_, _, colour) in CONSUMERS.items():
            position = self.positions[name]
            lines.append(Text(" " * (5 * position + 2) + f"▲ consumer {name} at {position}", style=colour))
        return Group(*lines)


def a_topic_is_a_log(bootstrap: str) -> None:
    console.print(Rule("1  A topic is a log: producers append, consumers stand where they like"))
    Admin(bootstrap).create_topic("orders", partitions=1)
    picture = LogPicture(positions={name: start for name, (start, _, _) in CONSUMERS.items()})
    read: dict[str, list[int]] = {name: [] for name in CONSUMERS}
    offsets: list[int] = []
    rest = range(THERE_BEFORE, RECORDS)
    with _drawn(picture) as redraw:
        _produce(bootstrap, range(THERE_BEFORE), picture, offsets)
        threads = [_thread(_consume, bootstrap, name, picture, read) for name in CONSUMERS]
        threads.append(_thread(_produce, bootstrap, rest, picture, offsets))
        deadline = time.monotonic() + SCENE_S
        while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
            time.sleep(0.05)
            redraw()
    check("D1", f"the producer appended at offsets 0 to {RECORDS - 1}", offsets == list(range(RECORDS)))
    for name, (start, _, _) in CONSUMERS.items():
        promise = f"consumer {name} read offsets {start} to {RECORDS - 1} in order"
        check("D1", promise, read[name] == list(range(start, RECORDS)))
    apart = any(a != b for a, b in picture.history)
    check("D1", "the two consumers stood at different offsets", apart)


def _thread(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


def _produce(bootstrap: str, numbers: range, picture: LogPicture, offsets: list[int]) -> None:
    def appended(delivery: Delivery) -> None:
        assert delivery.offset is not None
        offsets.append(delivery.offset)
        picture.end = delivery.offset + 1

    producer = RecordProducer(bootstrap, "orders", partitions=1, linger_ms=0, on_delivery=appended)
    for number in numbers:
        producer.send(OutgoingRecord(key=b"order", value=b"order %d" % number))
        time.sleep(PRODUCER_PAUSE_S)
    producer.close()


def _consume(bootstrap: str, name: str, picture: LogPicture, read: dict[str, list[int]]) -> None:
    start, pause_s, _ = CONSUMERS[name]
    reader = RecordReader(bootstrap, "orders", {0: start})
    for record in islice(reader, RECORDS - start):
        read[name].append(record.offset)
        picture.positions[name] = record.offset + 1
        time.sleep(pause_s)
    reader.close()


@contextmanager
def _drawn(picture: LogPicture) -> Iterator[Callable[[], None]]:
    """Live on a terminal; in a pipe a drawing now and then."""
    if console.is_terminal:
        with Live(picture, console=console, refresh_per_second=15):
            yield lambda: None
        return
    shown = [-1]

    def redraw() -> None:
        if picture.end // 4 > shown[0]:
            shown[0] = picture.end // 4
            console.print(picture)

    yield redraw
    console.print(picture)


# -- 2: keys and partitions --------------------------------------------------------------------------------


def keys_choose_partitions(bootstrap: str) -> None:
    console.print(Rule("2  A key decides: same key, same partition"))
    admin = Admin(bootstrap)
    admin.create_topic("visits", partitions=3)
    keys = [name.encode() for name in ("ann", "bob", "gus", "dan", "ann", "joe", "bob", "ann", "gus")]
    places = _send_keys(bootstrap, "visits", keys)
    _show_partitions(keys, places, 3)
    check("D4", "each key went to the partition of its hash", places == [hash_partition(k, 3) for k in keys])

    console.print(f"\nBy key range instead, kept with the topic: {RANGES}")
    admin.create_topic("people", partitions=2)
    store = PartitionerStore(bootstrap, admin)
    store.save("people", admin.describe_topic("people").topic_id, parse_ranges(RANGES), "error")
    keys = [name.encode() for name in ("YOLO", "HELLO", "MZZZ-1", "NAAA")]
    places = _send_keys(bootstrap, "people", keys, by_range=True)
    _show_partitions(keys, places, 2)
    check("D5", "YOLO went to partition 1, HELLO and MZZZ-1 to partition 0", places == [1, 0, 0, 1])


def _send_keys(bootstrap: str, topic: str, keys: list[bytes], *, by_range: bool = False) -> list[int]:
    """The partition that each send returned (D6)."""
    admin = Admin(bootstrap)
    description = admin.describe_topic(topic)
    stored = PartitionerStore(bootstrap, admin).load(topic, description.topic_id) if by_range else None
    reports: list[Delivery] = []
    producer = RecordProducer(
        bootstrap,
        topic,
        partitions=len(description.partitions),
        partitioner=stored.partitioner() if stored else None,
        on_delivery=reports.append,
    )
    for key in keys:
        producer.send(OutgoingRecord(key=key, value=b"hello"))
    producer.close()
    returned = {report.number: report for report in reports if report.error is None}
    told = len(returned) == len(keys) and all(report.offset is not None for report in returned.values())
    check("D6", f"each send to '{topic}' returned partition and offset", told)
    return [returned[number].partition or 0 for number in range(len(keys))]


def _show_partitions(keys: list[bytes], places: list[int], partitions: int) -> None:
    for partition in range(partitions):
        held = [key.decode() for key, place in zip(keys, places, strict=True) if place == partition]
        cells = "".join(f"│ {name} " for name in held) + ("│" if held else "(empty)")
        console.print(Text.assemble((f"partition {partition}  ", "bold"), cells))


# -- 3: acknowledgements -----------------------------------------------------------------------------------

WAITS_FOR: dict[Acks, str] = {
    "0": "nobody: sent is sent",
    "1": "the leader's log",
    "all": "every in-sync replica, and the disk",
}


def acknowledgements(bootstrap: str) -> None:
    console.print(Rule("3  Acknowledgements: what a send waits for"))
    admin = Admin(bootstrap)
    admin.create_topic("payments", partitions=1)
    table = Table("acks", "waits for", "a send takes", "offset told", box=None, header_style="bold")
    for acks, waits_for in WAITS_FOR.items():
        took_ms, offset = _send_one_by_one(bootstrap, acks)
        known = "unknown" if offset is None else str(offset)
        table.add_row(acks, waits_for, f"{took_ms:.2f} ms", known)
        told = "not told" if acks == "0" else "told"
        check("D7", f"acks={acks}: the offset is {told}", (offset is None) == (acks == "0"))
    console.print(table)
    end = _await_end(admin, "payments", ACKS_RECORDS * len(WAITS_FOR))
    check("D7", "all records of the three are in the log", end == ACKS_RECORDS * len(WAITS_FOR))


def _send_one_by_one(bootstrap: str, acks: Acks) -> tuple[float, int | None]:
    """The median time from send to report, and the offset that the last report told."""
    reported = threading.Event()
    reports: list[Delivery] = []

    def report(delivery: Delivery) -> None:
        reports.append(delivery)
        reported.set()

    producer = RecordProducer(bootstrap, "payments", partitions=1, acks=acks, linger_ms=0, on_delivery=report)
    times: list[float] = []
    for number in range(ACKS_RECORDS):
        reported.clear()
        before = time.perf_counter()
        producer.send(OutgoingRecord(value=b"payment %d" % number))
        reported.wait(5)
        times.append((time.perf_counter() - before) * 1000)
    producer.close()
    return sorted(times)[len(times) // 2], reports[-1].offset


def _await_end(admin: Admin, topic: str, wanted: int) -> int:
    """With acks=0 the last record may still be on its way."""
    for _ in range(50):
        end = admin.offsets(topic, [0], "latest")[0]
        if end >= wanted:
            break
        time.sleep(0.05)
    return end


def main(engine: EngineName) -> int:
    started = time.monotonic()
    running = running_kafka if engine == "kafka" else running_node
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as directory:
        start = SparkStart(Path(directory))
        with running(Path(directory)) as bootstrap:
            a_topic_is_a_log(bootstrap)
            keys_choose_partitions(bootstrap)
            acknowledgements(bootstrap)
            GroupScene(bootstrap, console, check).play()
            PipelineScene(bootstrap, Path(directory), console, check).play(start)
        start.stop()
        ClusterScene(Path(directory), console, check, engine).play()
        sound = check.show()
    verdict = "All as promised" if sound else "NOT as promised"
    console.print(f"{verdict}, in {time.monotonic() - started:.1f} s.")
    return 0 if sound else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("headrace", "kafka"), default="headrace", help="whose nodes")
    try:
        sys.exit(main(parser.parse_args().engine))
    except EngineError as error:
        sys.exit(str(error))
