# SPDX-License-Identifier: Apache-2.0
"""Scene: the life of a consumer from its start to its end, step by step, and as the group's events."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Message
from rich.text import Text

from headrace.client.tools.group_events import recorded_events
from headrace.client.tools.groups import Groups
from headrace.client.tools.producer import OutgoingRecord
from headrace.demo.members import SETTINGS, Member
from headrace.demo.records import send_records
from headrace.demo.scene import Scene, SceneFailed, Stage

TOPIC, GROUP = "messages", "life"
TIMEOUT_S = 30


class _Life:
    """One consumer, whose every step is printed."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._screen = stage.screen
        self._assigned = False
        settings = {"bootstrap.servers": stage.bootstrap, "group.id": GROUP, "client.id": "c1", **SETTINGS}
        self._consumer = Consumer({**settings, "enable.auto.commit": False})

    def start(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign)
        self._until(lambda: self._assigned)
        self._line("t0", "starts", "", "joins the group, gets partition 0")

    def send_and_process(self, moment: str, number: int, user: str) -> None:
        record = OutgoingRecord(key=user.encode(), value=b"msg%d" % number)
        (report,) = send_records(self._stage.bootstrap, TOPIC, [record])
        message = self._next()
        sent, stored = f"sends msg{number} ({user})", f"offset {report.offset}"
        value, offset = (message.value() or b"").decode(), message.offset()
        self._line(moment, sent, stored, f"fetches {value} at {offset}, processes it")

    def commit(self) -> None:
        places = self._consumer.commit(asynchronous=False)
        self._line("t3", "", "", f"commits offset {', '.join(str(place.offset) for place in places)}")

    def close(self) -> None:
        self._consumer.close()
        self._line("t5", "ends", "rebalance", "closes: leaves the group")

    def _on_assign(self, *_: object) -> None:
        self._assigned = True

    def _next(self) -> Message:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                return message
        raise SceneFailed("the consumer received nothing")

    def _until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not true() and time.monotonic() < deadline:
            self._consumer.poll(0.1)

    def _line(self, moment: str, producer: str, broker: str, consumer: str) -> None:
        self._screen.show(Text.assemble((f"{moment}  ", "bold"), f"{producer:<21}{broker:<11}{consumer}"))


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say("A producer, a topic with one partition, and the life of a consumer in six moments:")
    screen.run(f"headrace topics create {TOPIC}")
    screen.show(Text("    producer             broker     consumer", "bold"))
    life = _Life(stage)
    life.start()
    other = Member(stage.bootstrap, group=GROUP, topics=[TOPIC], name="c2")
    life.send_and_process("t1", 1, "user-1")
    life.send_and_process("t2", 2, "user-2")
    life.commit()
    life.send_and_process("t4", 3, "user-3")
    life.close()
    stage.wait("the other consumer has the partition", lambda: (TOPIC, 0) in other.owned)
    stage.wait("it has what was not committed", lambda: [offset for _, _, offset, _ in other.received] == [2])
    other.leave()
    stage.wait("the group's events are recorded", lambda: _departures(stage) == 2)
    screen.say(
        "A second consumer waited, took the partition over, and received what was not committed. The group "
        "has recorded all of it:"
    )
    events = screen.run(f"headrace groups events {GROUP}")
    kinds = ("join", "assigned", "first_fetch", "commit", "leave", "rebalance")
    found = [kind for kind in kinds if re.search(rf"\b{kind}\b", events)]
    screen.check("the events show join, assignment, fetch, commit, leave and rebalance", found == list(kinds))
    screen.check("msg3 was not committed and was received again", [o for _, _, o, _ in other.received] == [2])


def _departures(stage: Stage) -> int:
    """How many members have left, by the group's recorded events."""
    groups = Groups(stage.bootstrap)
    events = recorded_events(stage.bootstrap, groups, GROUP, since_ms=0, follow=False) or ()
    return sum(event.kind == "leave" for event in events)


SCENE = Scene(
    name="timeline",
    title="The life of a consumer",
    play=play,
    on_kafka=False,
    varies=(r"(?ms)^\$ headrace groups events life\n.*?\n(?=✓)",),
)
