# SPDX-License-Identifier: Apache-2.0
"""Scene: what a send returns. The partition and the offset of the record."""

from __future__ import annotations

from headrace.client.partitioning.partitioners import hash_partition
from headrace.demo.records import read_topic
from headrace.demo.scene import Scene, Stage

TOPIC = "test-topic"
DRAWING = """\
producer                                   broker
   │  topic test-topic, key user-1            │
   │ ───────────────────────────────────────▶ │  hash of the key → partition
   │                                          │  append to its log → next offset
   │ ◀─────────────────────────────────────── │
   │  partition 2, offset 0                   │"""


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say("Each send returns where the record is: its partition and its offset there.")
    screen.show(DRAWING)
    screen.run(f"headrace topics create {TOPIC} --partitions 3")
    screen.run(f"headrace produce {TOPIC} --key user-1 -v", typed="Hello")
    screen.run(f"headrace produce {TOPIC} --key user-1 -v", typed="Hello again")
    partition = hash_partition(b"user-1", 3)
    screen.say("That is also where a consumer finds it:")
    shown = screen.run(f"headrace consume {TOPIC} --partition {partition} --from 1 --max 1 -v")
    found = [(each.partition, each.offset, each.value) for each in read_topic(stage.bootstrap, TOPIC)]
    as_returned = found == [(partition, 0, b"Hello"), (partition, 1, b"Hello again")]
    screen.check("the records are at the returned partition and offsets", as_returned)
    screen.check("reading from that offset yields the record", "Hello again" in shown)


SCENE = Scene(name="send", title="What a send returns", play=play)
