# SPDX-License-Identifier: Apache-2.0
"""Scene: a topic with one partition or three, what each is good for, and a partition added later."""

from __future__ import annotations

from rich.table import Table

from headrace.client.partitioning.partitioners import hash_partition
from headrace.client.tools.admin import Admin
from headrace.client.tools.producer import OutgoingRecord
from headrace.demo.records import read_topic, send_records
from headrace.demo.scene import Scene, Stage
from headrace.demo.scenes.keys import partition_lines

ONE, THREE = "single", "triple"
USERS = [f"user-{number}" for number in (1, 2, 4, 5, 8)]


def play(stage: Stage) -> None:
    screen = stage.screen
    admin = Admin(stage.bootstrap)
    screen.say("A topic has one partition unless you say otherwise. All keys share it, in one order:")
    screen.run(f"headrace topics create {ONE}")
    _send_and_draw(stage, ONE)
    screen.check("without a number there is one partition", len(admin.describe_topic(ONE).partitions) == 1)
    screen.say("With three partitions each key has its own place:")
    screen.run(f"headrace topics create {THREE} --partitions 3")
    _send_and_draw(stage, THREE)
    used = {record.partition for record in read_topic(stage.bootstrap, THREE)}
    screen.check("the keys are spread over three partitions", used == {0, 1, 2})
    screen.show(_comparison())
    screen.say("Partitions can be added later. Records stay where they are, but keys may change partition:")
    screen.run(f"headrace topics alter {THREE} --partitions 4")
    before = read_topic(stage.bootstrap, THREE)
    _send_and_draw(stage, THREE)
    after = read_topic(stage.bootstrap, THREE)
    screen.check("records that were there have kept partition and offset", set(before) <= set(after))
    moved = [user for user in USERS if hash_partition(user.encode(), 3) != hash_partition(user.encode(), 4)]
    screen.check(f"{len(moved)} of {len(USERS)} keys go to another partition from now on", bool(moved))


def _send_and_draw(stage: Stage, topic: str) -> None:
    greetings = [OutgoingRecord(key=user.encode(), value=b"hello") for user in USERS]
    send_records(stage.bootstrap, topic, greetings)
    records = read_topic(stage.bootstrap, topic)
    count = len(Admin(stage.bootstrap).describe_topic(topic).partitions)
    keys = [(record.key or b"").decode() for record in records]
    stage.screen.show(partition_lines(keys, [record.partition for record in records], count))


def _comparison() -> Table:
    table = Table("", "one partition", "three partitions", box=None, header_style="bold")
    table.add_row("order", "of all records", "within each partition")
    table.add_row("consumers of a group", "one works", "up to three work")
    table.add_row("throughput", "of one log", "of three logs")
    return table


SCENE = Scene(name="partitions", title="One partition or three", play=play)
