"""Partition order against processing order, side by side, for the parallel consumer's three orders (D15).

Three groups read the same partition, each with two workers; the first record takes long. Starts a node of its
own in a folder that is removed afterwards, or uses --bootstrap HOST:PORT. What was shown is checked.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.client.admin import Admin
from headrace.client.parallel import Order, ParallelConsumer, Record
from headrace.client.producer import OutgoingRecord, RecordProducer
from headrace.cluster.engines.headrace import HeadraceEngine

KEYS = "abacbacbca"
"""The key of each record."""
SLOW_S, QUICK_S = 0.9, 0.2
WORKERS = 2
ORDERS: tuple[Order, ...] = ("partition", "key", "none")
COLOURS = {"a": "green", "b": "magenta", "c": "yellow"}
TIME_LIMIT_S = 15

console = Console(highlight=False)


@dataclass
class Scene:
    """One group: the records in the order in which they were finished."""

    order: Order
    finished: list[tuple[int, int]] = field(default_factory=list)
    """Offset, and the worker that handled it."""

    def handle(self, record: Record) -> None:
        time.sleep(SLOW_S if record.offset == 0 else QUICK_S)
        worker = int(threading.current_thread().name.rpartition("-")[2]) + 1
        self.finished.append((record.offset, worker))

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _ in list(self.finished)]

    def safe(self, count: int) -> int:
        """What may be committed after so many records: all before it are finished."""
        done = set(self.offsets[:count])
        return next(offset for offset in range(len(KEYS) + 1) if offset not in done)

    def keeps_keys_in_order(self) -> bool:
        return all(
            (of_key := [offset for offset in self.offsets if KEYS[offset] == key]) == sorted(of_key)
            for key in COLOURS
        )


def picture(scenes: Sequence[Scene]) -> Table:
    """A row for each record: where it stands in the partition, and who came in at that place."""
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("partition\norder")
    for scene in scenes:
        table.add_column(f"order={scene.order}\ndone worker commit", min_width=18)
    for place in range(len(KEYS)):
        table.add_row(_name(place), *(_cell(scene, place) for scene in scenes))
    return table


def _cell(scene: Scene, place: int) -> Text:
    finished = list(scene.finished)
    if place >= len(finished):
        return Text("·", style="dim")
    offset, worker = finished[place]
    early = " ◀" if offset > place else "  "
    return Text.assemble(_name(offset), early, f"   {worker}     ", (str(scene.safe(place + 1)), "cyan"))


def _name(offset: int) -> Text:
    return Text(f"{offset + 1:>2} {KEYS[offset]}", style=COLOURS[KEYS[offset]])


def run(bootstrap: str) -> list[Scene]:
    topic = f"parallel-demo-{time.time_ns()}"
    Admin(bootstrap).create_topic(topic, partitions=1)
    producer = RecordProducer(bootstrap, topic, partitions=1)
    for number, key in enumerate(KEYS, start=1):
        producer.send(OutgoingRecord(key=key.encode(), value=str(number).encode()))
    producer.close()
    scenes = [Scene(order) for order in ORDERS]
    with contextlib.ExitStack() as running:
        for scene in scenes:
            group = f"{topic}-{scene.order}"
            running.enter_context(
                ParallelConsumer(bootstrap, group, topic, scene.handle, workers=WORKERS, order=scene.order)
            )
        show_until_done(scenes)
    return scenes


def show_until_done(scenes: Sequence[Scene]) -> None:
    deadline = time.monotonic() + TIME_LIMIT_S
    with Live(console=console, transient=True) if console.is_terminal else contextlib.nullcontext() as live:
        while time.monotonic() < deadline and any(len(scene.finished) < len(KEYS) for scene in scenes):
            time.sleep(0.05)
            if live is not None:
                live.update(picture(scenes))
    console.print(picture(scenes))


def check(scenes: Sequence[Scene]) -> bool:
    by_order = {scene.order: scene for scene in scenes}
    everything = list(range(len(KEYS)))
    promises = {
        "every group has handled every record": all(sorted(s.offsets) == everything for s in scenes),
        "order=partition: as in the partition": by_order["partition"].offsets == everything,
        "order=key: each key in its order, other keys overtake": by_order["key"].keeps_keys_in_order()
        and by_order["key"].offsets != everything,
        "order=none: a record may overtake its own key": not by_order["none"].keeps_keys_in_order(),
    }
    for promise, held in promises.items():
        mark = Text("✓ ", style="bold green") if held else Text("✗ ", style="bold red")
        console.print(Text.assemble(mark, promise))
    return all(promises.values())


@contextlib.contextmanager
def node(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with tempfile.TemporaryDirectory(prefix="headrace-parallel-demo-") as folder:
        settings = {"group.initial.rebalance.delay.ms": "0"}
        with HeadraceEngine().start(Path(folder), settings) as own:
            yield own.bootstrap


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="a running cluster instead of a node of its own"
    )
    started = time.monotonic()
    with node(parser.parse_args().bootstrap) as bootstrap:
        console.print(
            f"One partition, {WORKERS} workers a group; record 1 takes long. ◀: it has overtaken.\n"
            "commit: the offset that is safe to commit then, as all before it are done."
        )
        scenes = run(bootstrap)
    as_promised = check(scenes)
    console.print(
        f"{'All as promised' if as_promised else 'Not as promised'}, {time.monotonic() - started:.1f} s."
    )
    return 0 if as_promised else 1


if __name__ == "__main__":
    sys.exit(main())
