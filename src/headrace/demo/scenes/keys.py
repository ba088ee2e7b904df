# SPDX-License-Identifier: Apache-2.0
"""Scene: who chooses the partition. The producer names it, a key decides, or records are spread."""

from __future__ import annotations

from collections import Counter

from rich.text import Text

from headrace.client.partitioning.partitioners import hash_partition
from headrace.client.tools.producer import OutgoingRecord
from headrace.demo.records import send_records
from headrace.demo.scene import Scene, Stage

TOPIC, PARTITIONS = "visits", 3
KEYS = ("ann", "bob", "gus", "dan", "ann", "joe", "bob", "ann", "gus")
SPREAD, PAUSE_S = 40, 0.015
"""Long enough for a producer, which stays with a partition for some ms, to use all of them."""


def partition_lines(keys: list[str], places: list[int], partitions: int) -> Text:
    """Each partition with the keys in it, in the order of their offsets."""
    lines = []
    for partition in range(partitions):
        held = [key for key, place in zip(keys, places, strict=True) if place == partition]
        cells = "".join(f"│ {key} " for key in held) + ("│" if held else "(empty)")
        lines.append(Text.assemble((f"partition {partition}  ", "bold"), cells))
    return Text("\n").join(lines)


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.run(f"headrace topics create {TOPIC} --partitions {PARTITIONS}")
    screen.say("The producer may name the partition:")
    screen.run(f"headrace produce {TOPIC} --partition 2 -v", typed="to partition 2")
    screen.say(
        "Without one, a key decides: the hash of the key modulo the number of partitions. The same key "
        "always goes to the same partition, so the records of one key stay in order."
    )
    places = _send(stage, [OutgoingRecord(key=key.encode(), value=b"hello") for key in KEYS])
    screen.show(partition_lines(list(KEYS), places, PARTITIONS))
    hashed = [hash_partition(key.encode(), PARTITIONS) for key in KEYS]
    screen.check("each key went to the partition of its hash (murmur2, as in Java)", places == hashed)
    screen.say("With neither, records are spread over the partitions, a batch at a time:")
    spread = Counter(_send(stage, [OutgoingRecord(value=b"hello")] * SPREAD, pause_s=PAUSE_S))
    bars = [f"partition {index}  {'█' * spread[index]}" for index in range(PARTITIONS)]
    screen.show(Text("\n".join(bars)))
    screen.check("each partition received some", all(spread[index] for index in range(PARTITIONS)))


def _send(stage: Stage, records: list[OutgoingRecord], *, pause_s: float = 0.0) -> list[int]:
    """The partition that each send returned; -1: none."""
    reports = send_records(stage.bootstrap, TOPIC, records, pause_s=pause_s)
    return [-1 if report.partition is None else report.partition for report in reports]


SCENE = Scene(
    name="keys",
    title="The producer, a key or nobody chooses the partition",
    play=play,
    varies=(r"(?m)^partition \d  █*$",),
)
