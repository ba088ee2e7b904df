# SPDX-License-Identifier: Apache-2.0
"""Scene: partition order against processing order, for the parallel consumer's three orders.

Three groups read the same partition, each with two workers; the first record takes long.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from headrace.client.parallel import Order, ParallelConsumer, Record
from headrace.client.tools.producer import OutgoingRecord
from headrace.demo.records import send_records
from headrace.demo.scene import Scene, Stage

TOPIC = "jobs"
KEYS = "abacbacbca"
"""The key of each record."""
SLOW_S, QUICK_S = 0.9, 0.2
WORKERS = 2
ORDERS: tuple[Order, ...] = ("partition", "key", "none")
COLOURS = {"a": "green", "b": "magenta", "c": "yellow"}
TIME_LIMIT_S = 30


@dataclass
class Run:
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


@dataclass(frozen=True)
class OrderPicture:
    """A row for each record: its place in the partition, and what was finished at that place."""

    runs: Sequence[Run]

    def __rich__(self) -> Table:
        table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
        table.add_column("partition\norder")
        for run in self.runs:
            table.add_column(f"order={run.order}\ndone worker commit", min_width=18)
        for place in range(len(KEYS)):
            table.add_row(_name(place), *(_cell(run, place) for run in self.runs))
        return table


def _cell(run: Run, place: int) -> Text:
    finished = list(run.finished)
    if place >= len(finished):
        return Text("·", style="dim")
    offset, worker = finished[place]
    early = " ◀" if offset > place else "  "
    return Text.assemble(_name(offset), early, f"   {worker}     ", (str(run.safe(place + 1)), "cyan"))


def _name(offset: int) -> Text:
    return Text(f"{offset + 1:>2} {KEYS[offset]}", style=COLOURS[KEYS[offset]])


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say(
        "Order holds only inside a partition, and only while one thread processes it. Below, two threads "
        "process ten records of one partition, with keys a, b and c; record 1 takes long. ◀ marks a record "
        "that has overtaken. The parallel consumer keeps the order of the partition, of each key (the "
        "default), or none. It commits only an offset below which everything is done."
    )
    screen.run(f"headrace topics create {TOPIC}")
    send_records(stage.bootstrap, TOPIC, [OutgoingRecord(key=key.encode(), value=b"job") for key in KEYS])
    runs = [Run(order) for order in ORDERS]
    with contextlib.ExitStack() as running:
        for run in runs:
            consumer = ParallelConsumer(
                stage.bootstrap, f"by-{run.order}", TOPIC, run.handle, workers=WORKERS, order=run.order
            )
            running.enter_context(consumer)
        with screen.live(OrderPicture(runs)):
            _await_end(runs)
    _check(stage, {run.order: run for run in runs})


def _await_end(runs: Sequence[Run]) -> None:
    deadline = time.monotonic() + TIME_LIMIT_S
    while time.monotonic() < deadline and any(len(run.finished) < len(KEYS) for run in runs):
        time.sleep(0.05)


def _check(stage: Stage, runs: dict[Order, Run]) -> None:
    everything = list(range(len(KEYS)))
    check = stage.screen.check
    complete = all(sorted(run.offsets) == everything for run in runs.values())
    check("every group has processed every record", complete)
    check("order=partition: as in the partition", runs["partition"].offsets == everything)
    by_key = runs["key"]
    overtakes = by_key.keeps_keys_in_order() and by_key.offsets != everything
    check("order=key: each key in its order; other keys overtake", overtakes)
    check("order=none: a record may overtake its own key", not runs["none"].keeps_keys_in_order())


SCENE = Scene(
    name="order",
    title="Partition order and processing order",
    play=play,
    varies=(r"(?m)^ *\d+ [abc] .*$",),
)
