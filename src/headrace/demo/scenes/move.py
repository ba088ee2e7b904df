# SPDX-License-Identifier: Apache-2.0
"""Scene, on Apache Kafka only: MirrorMaker 2 moves a topic and a group's offsets there from a Headrace node.

docs/scaling.md describes the same move.
"""

from __future__ import annotations

from headrace.client.errors import ClientError
from headrace.client.tools.admin import Admin
from headrace.client.tools.groups import Groups
from headrace.client.tools.producer import OutgoingRecord
from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.headrace import HeadraceEngine
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.engines.kafka_jars import mirror_maker_class_path
from headrace.cluster.engines.mirror_maker import mirror_settings, running_mirror_maker
from headrace.demo.records import read_topic, send_records
from headrace.demo.scene import Requirement, Scene, Stage

TOPIC, GROUP, PARTITIONS = "shipments", "billing", 3
READ_BEFORE, SENT_AFTER = 6, 3
MOVE_S = 240
DRAWING = "producers ──▶ Headrace ──▶ MirrorMaker 2 ──▶ Apache Kafka ──▶ consumers"


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say(
        "Programs that outgrow one machine move to an Apache Kafka cluster. MirrorMaker 2 copies topics and "
        "the offsets of groups; then the programs get another address:"
    )
    screen.show(DRAWING)
    with HeadraceEngine().start(stage.folder / "headrace", {}) as node:
        source = node.bootstrap
        screen.run(f"headrace topics create {TOPIC} --partitions {PARTITIONS} --bootstrap {source}")
        _send(source, range(READ_BEFORE))
        screen.run(f"headrace consume {TOPIC} --group {GROUP} --exit-at-end --bootstrap {source}")
        _send(source, range(READ_BEFORE, READ_BEFORE + SENT_AFTER))
        screen.note("MirrorMaker 2 copies; it takes about a minute …")
        settings = mirror_settings(source, stage.bootstrap, replication_factor=1)
        with running_mirror_maker(KafkaEngine(), stage.folder / "mirror-maker", settings):
            stage.wait("topic and offsets are copied", lambda: _is_copied(stage.bootstrap), timeout_s=MOVE_S)
        same = _contents(source) == _contents(stage.bootstrap)
    screen.check("Apache Kafka has the same records in the same partitions, at the same offsets", same)
    screen.say("The group continues on Apache Kafka. It may read some records again, and misses none:")
    output = screen.run(f"headrace consume {TOPIC} --group {GROUP} --exit-at-end")
    unread = [f"shipment {number}\n" for number in range(READ_BEFORE, READ_BEFORE + SENT_AFTER)]
    screen.check("it received what it had not read before the move", all(each in output for each in unread))


def _send(bootstrap: str, numbers: range) -> None:
    records = [OutgoingRecord(key=b"order-%d" % each, value=b"shipment %d" % each) for each in numbers]
    send_records(bootstrap, TOPIC, records)


def _is_copied(bootstrap: str) -> bool:
    """The topic has all records, and the group has offsets in each of the partitions that it read."""
    try:
        ends = Admin(bootstrap).offsets(TOPIC, range(PARTITIONS), "latest")
        return sum(ends.values()) == READ_BEFORE + SENT_AFTER and bool(Groups(bootstrap).committed(GROUP))
    except ClientError:  # the topic is not there yet
        return False


def _contents(bootstrap: str) -> list[tuple[object, ...]]:
    return [(each.partition, each.offset, each.key, each.value) for each in read_topic(bootstrap, TOPIC)]


def _missing_mirror_maker() -> str | None:
    try:
        mirror_maker_class_path(KafkaEngine().jars)
    except EngineError as error:
        return str(error)
    return None


SCENE = Scene(
    name="move",
    title="From Headrace to Apache Kafka",
    play=play,
    needs=(Requirement(name="MirrorMaker 2", missing=_missing_mirror_maker),),
)
