# SPDX-License-Identifier: Apache-2.0
"""Scene: partitions by key range. The boundaries are stored with the topic."""

from __future__ import annotations

from headrace.demo.records import read_topic
from headrace.demo.scene import Scene, Stage
from headrace.demo.scenes.keys import partition_lines

TOPIC = "people"
RANGES = "AAAA..MZZZ,NAAA..ZZZZ"
KEYS = ["YOLO", "HELLO", "MZZZ", "NAAA"]


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say(
        "Instead of a hash, ranges of keys can choose the partition, so that neighbouring keys are stored "
        "together. Partition 0 takes AAAA to MZZZ, partition 1 takes NAAA to ZZZZ:"
    )
    screen.run(f"headrace topics create {TOPIC} --partitions 2 --ranges {RANGES}")
    for key in KEYS:
        screen.run(f"headrace produce {TOPIC} --key-separator : -v", typed=f"{key}:foo")
    records = read_topic(stage.bootstrap, TOPIC)
    found = [((record.key or b"").decode(), record.partition) for record in records]
    screen.show(partition_lines([key for key, _ in found], [place for _, place in found], 2))
    as_drawn = sorted(found) == [("HELLO", 0), ("MZZZ", 0), ("NAAA", 1), ("YOLO", 1)]
    screen.check("HELLO and MZZZ are in partition 0, YOLO and NAAA in partition 1", as_drawn)


SCENE = Scene(
    name="ranges",
    title="Partitions by key range",
    play=play,
)
