# SPDX-License-Identifier: Apache-2.0
"""Scene: two groups on one topic each receive all records; the consumers of a group share them."""

from __future__ import annotations

from collections import Counter

from rich.text import Text

from headrace.client.tools.producer import OutgoingRecord
from headrace.demo.members import Member
from headrace.demo.records import send_records
from headrace.demo.scene import Scene, Stage

TOPIC, PARTITIONS, RECORDS = "payments", 3, 30
GROUPS = ("analytics", "storage")
WIDE = 15


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say(
        "Groups are independent. Two groups that read the same topic each receive all its records, for "
        "example one to analyse and one to store. Within a group the consumers share them."
    )
    screen.run(f"headrace topics create {TOPIC} --partitions {PARTITIONS}")
    records = [OutgoingRecord(key=b"user-%d" % number, value=b"%d" % number) for number in range(RECORDS)]
    send_records(stage.bootstrap, TOPIC, records)
    groups = {
        group: [
            Member(stage.bootstrap, group=group, topics=[TOPIC], name=f"{group}-{number}")
            for number in (1, 2)
        ]
        for group in GROUPS
    }
    try:
        stage.wait("both groups have read everything", lambda: _have_read_everything(groups))
        screen.show(_picture(groups))
    finally:
        for member in (member for members in groups.values() for member in members):
            member.leave()
    screen.run("headrace groups list")
    for group, members in groups.items():
        once = Counter(value for member in members for *_, value in member.received)
        screen.check(f"group {group} received all {RECORDS} records, each once", set(once.values()) == {1})


def _have_read_everything(groups: dict[str, list[Member]]) -> bool:
    return all(len(_values(members)) == RECORDS for members in groups.values())


def _values(members: list[Member]) -> set[bytes]:
    return {value for member in members for *_, value in list(member.received)}


def _picture(groups: dict[str, list[Member]]) -> Text:
    lines = [f"topic {TOPIC} ({PARTITIONS} partitions, {RECORDS} records)"]
    for group, members in groups.items():
        branch = "└" if group == GROUPS[-1] else "├"
        stem = " " if group == GROUPS[-1] else "│"
        lines.append(f"  {branch}─▶ group {group}: {len(_values(members))} records")
        for member in members:
            owned = ", ".join(str(index) for _, index in sorted(member.owned)) or "none"
            count = len(member.received)
            lines.append(f"  {stem}     {member.name:<{WIDE}} partitions {owned}: {count} records")
    return Text("\n".join(lines))


SCENE = Scene(
    name="two-groups",
    title="Two groups each receive everything",
    play=play,
    varies=(r"(?m)^.*partitions [\d, none]+: \d+ records$", r"(?ms)^\$ headrace groups list\n.*?\n(?=✓)"),
)
