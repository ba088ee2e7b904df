# SPDX-License-Identifier: Apache-2.0
"""Scene: topics A and B, groups A and B. One group reads both topics; one topic is read by both groups."""

from __future__ import annotations

from rich.table import Table

from headrace.client.tools.groups import Groups
from headrace.client.tools.producer import OutgoingRecord
from headrace.demo.records import send_records
from headrace.demo.scene import Scene, Stage

RECORDS = {"topic-a": 4, "topic-b": 3}
READS = {"group-a": ("topic-a", "topic-b"), "group-b": ("topic-b",)}
DRAWING = """\
topic-a ─────────┬──▶ group-a
topic-b ──┬──────┘
          └─────────▶ group-b"""


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say("A group may read several topics, and a topic may be read by several groups:")
    screen.show(DRAWING)
    for topic, count in RECORDS.items():
        screen.run(f"headrace topics create {topic}")
        values = [f"{topic} {number}".encode() for number in range(count)]
        send_records(stage.bootstrap, topic, [OutgoingRecord(value=value) for value in values])
    for group, topics in READS.items():
        screen.run(f"headrace consume {' '.join(topics)} --group {group} --exit-at-end")
    committed = {group: _committed(stage, group) for group in READS}
    table = Table("committed offsets", *RECORDS, box=None, header_style="bold")
    for group, offsets in committed.items():
        table.add_row(group, *(str(offsets.get(topic, "-")) for topic in RECORDS))
    screen.show(table)
    screen.check("group-a has read both topics to their ends", committed["group-a"] == RECORDS)
    only_b = committed["group-b"] == {"topic-b": RECORDS["topic-b"]}
    screen.check("group-b has read topic-b to its end, and nothing of topic-a", only_b)


def _committed(stage: Stage, group: str) -> dict[str, int]:
    return {place.topic: offset for place, offset in Groups(stage.bootstrap).committed(group).items()}


SCENE = Scene(
    name="topics-and-groups",
    title="Several topics, several groups",
    play=play,
    varies=(r"(?m)^c1 .*$",),
)
