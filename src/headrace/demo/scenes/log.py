# SPDX-License-Identifier: Apache-2.0
"""Scene: a topic is a log. One producer appends; consumers A and B stand at offsets of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Group
from rich.text import Text

from headrace.client.tools.admin import Admin
from headrace.client.tools.producer import Delivery, OutgoingRecord, RecordProducer
from headrace.client.tools.reader import ReadRecord, RecordReader
from headrace.demo.scene import Scene, Stage
from headrace.types import TopicPartition

TOPIC = "orders"
FIRST, RECORDS = 6, 12
"""Records that are there before the consumers start, and in the end."""
COLOURS = {"A": "cyan", "B": "magenta"}
TICKS = 14
TICK_S = 0.15
DELIVERY_S = 10


@dataclass
class LogPicture:
    """The log as cells, the positions of the consumers, and the producer at its end."""

    end: int = 0
    positions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COLOURS, 0))

    def __rich__(self) -> Group:
        cells = "".join(f"│{offset:^4}" for offset in range(self.end))
        lines = [
            Text("┌" + "────┬" * (self.end - 1) + "────┐"),
            Text.assemble(cells + "│", (" ◀ producer", "green")),
            Text("└" + "────┴" * (self.end - 1) + "────┘"),
        ]
        for name, colour in COLOURS.items():
            offset = self.positions[name]
            lines.append(Text(" " * (5 * offset + 2) + f"▲ consumer {name} at {offset}", colour))
        return Group(*lines)


class _Consumer:
    """Reads one record at a time, in offset order."""

    def __init__(self, bootstrap: str) -> None:
        self._reader = RecordReader(bootstrap, {TopicPartition(TOPIC, 0): 0})
        self._records: Iterator[ReadRecord] = iter(self._reader)
        self.read: list[int] = []

    @property
    def position(self) -> int:
        return len(self.read)

    def read_one(self) -> None:
        self.read.append(next(self._records).offset)

    def close(self) -> None:
        self._reader.close()


class _Producer:
    """Appends one record at a time and waits for its offset."""

    def __init__(self, bootstrap: str) -> None:
        self._arrived = threading.Event()
        self.offsets: list[int | None] = []
        self._producer = RecordProducer(
            bootstrap, TOPIC, partitions=1, linger_ms=0, on_delivery=self._delivered
        )

    def append(self) -> None:
        self._arrived.clear()
        self._producer.send(OutgoingRecord(value=b"order %d" % len(self.offsets)))
        self._arrived.wait(DELIVERY_S)

    def close(self) -> None:
        self._producer.close()

    def _delivered(self, delivery: Delivery) -> None:
        self.offsets.append(delivery.offset)
        self._arrived.set()


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say(
        "A topic is an append-only log. Each record gets the next offset: 0, 1, 2 … A producer appends at "
        "the end; a consumer reads from an offset of its own. Reading removes nothing."
    )
    screen.run(f"headrace topics create {TOPIC}")
    producer = _Producer(stage.bootstrap)
    for _ in range(FIRST):
        producer.append()
    consumers = {name: _Consumer(stage.bootstrap) for name in COLOURS}
    picture = LogPicture()
    _read(consumers, A=2, B=3)
    _update(picture, producer, consumers)
    screen.show(picture)
    apart = picture.positions["A"] != picture.positions["B"]
    screen.say("Producer and consumers go on, each at its own pace.")
    with screen.live(picture):
        for tick in range(TICKS):
            if len(producer.offsets) < RECORDS:
                producer.append()
            _read(consumers, A=tick % 3 == 0, B=consumers["B"].position < RECORDS)
            _update(picture, producer, consumers)
            time.sleep(TICK_S if screen.is_terminal else 0)
    screen.run(f"headrace consume {TOPIC} --from 10 --exit-at-end -v")
    appended = producer.offsets == [*range(RECORDS)]
    screen.check(f"the producer appended at offsets 0 to {RECORDS - 1}", appended)
    for name, consumer in consumers.items():
        in_order = consumer.read == [*range(consumer.position)]
        screen.check(f"consumer {name} has read offsets 0 to {consumer.position - 1} in order", in_order)
    screen.check("the two consumers stood at different offsets", apart)
    end = Admin(stage.bootstrap).offsets(TOPIC, [0], "latest")[0]
    screen.check(f"all {RECORDS} records are still in the log", end == RECORDS)
    producer.close()
    for consumer in consumers.values():
        consumer.close()


def _read(consumers: dict[str, _Consumer], **counts: int) -> None:
    for name, count in counts.items():
        for _ in range(count):
            consumers[name].read_one()


def _update(picture: LogPicture, producer: _Producer, consumers: dict[str, _Consumer]) -> None:
    picture.end = len(producer.offsets)
    picture.positions = {name: consumer.position for name, consumer in consumers.items()}


SCENE = Scene(
    name="log",
    title="A topic is a log",
    play=play,
)
