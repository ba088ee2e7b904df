# SPDX-License-Identifier: Apache-2.0
"""Scene: current position and committed position. A consumer is killed and resumes at the committed one."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition
from rich.text import Text

from headrace.client.tools.groups import Groups
from headrace.client.tools.producer import OutgoingRecord
from headrace.demo.programs import Program
from headrace.demo.records import send_records
from headrace.demo.scene import Scene, Stage

TOPIC, GROUP = "letters", "readers"
LETTERS = "ABCDEFGH"
CRASH_S = 60
VARIES = r"(?ms)^\$ headrace groups describe .*?\n(?=  0   1)"


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say(
        "A consumer has two positions in a partition. The current one is where it reads next. The committed "
        "one is stored by the group, and is where the next consumer begins. This consumer commits after "
        "every third record:"
    )
    screen.run(f"headrace topics create {TOPIC}")
    send_records(stage.bootstrap, TOPIC, [OutgoingRecord(value=letter.encode()) for letter in LETTERS])
    first = Program("headrace.demo.slow_consumer", stage.bootstrap, TOPIC, GROUP)
    stage.wait("the consumer has processed all", lambda: _processed(first)[-1:] == [7], timeout_s=CRASH_S)
    screen.run(f"headrace groups describe {GROUP} --over 0s")
    screen.show(_positions(current=8, committed=_committed(stage)))
    screen.check("it has processed 8 records and committed 6", _committed(stage) == 6)
    first.kill()
    screen.say("The consumer is killed (SIGKILL) and started again. It resumes at the committed position:")
    second = Program("headrace.demo.slow_consumer", stage.bootstrap, TOPIC, GROUP)
    stage.wait("it has caught up", lambda: _processed(second)[-1:] == [7], timeout_s=CRASH_S)
    screen.show(Text("\n".join(second.lines)))
    twice = sorted(set(_processed(first)) & set(_processed(second)))
    screen.check("records 6 and 7 were processed twice: at least once", twice == [6, 7])
    every = set(_processed(first)) | set(_processed(second))
    screen.check("no record was left out", every == set(range(len(LETTERS))))
    second.kill()
    _seek_back(stage)


def _seek_back(stage: Stage) -> None:
    screen = stage.screen
    screen.say("A consumer may also step back and read again; the committed position stays where it is:")
    consumer = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": GROUP, "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, 2)])
    message = consumer.poll(CRASH_S)
    (place,) = consumer.position([TopicPartition(TOPIC, 0)])
    consumer.close()
    screen.show(_positions(current=place.offset, committed=_committed(stage)))
    again = message is not None and message.value() == b"C"
    screen.check("it read C again, behind the committed position", again and place.offset < _committed(stage))


def _processed(program: Program) -> list[int]:
    return [int(line.split()[1]) for line in list(program.lines) if line.startswith("processed ")]


def _committed(stage: Stage) -> int:
    return next(iter(Groups(stage.bootstrap).committed(GROUP).values()), 0)


def _positions(*, current: int, committed: int) -> Text:
    """The log with an arrow for each position."""
    cells = "".join(f"│ {letter} " for letter in LETTERS) + "│"
    numbers = "".join(f"  {offset} " for offset in range(len(LETTERS) + 1))
    arrows = [(committed, "committed position", "green"), (current, "current position", "cyan")]
    lines = [Text(numbers), Text(cells)]
    lines += [Text(f"{' ' * (4 * offset + 2)}▲ {label} {offset}", colour) for offset, label, colour in arrows]
    return Text("\n").join(lines)


SCENE = Scene(name="positions", title="Current and committed position", play=play, varies=(VARIES,))
