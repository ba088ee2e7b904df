# SPDX-License-Identifier: Apache-2.0
"""Scene: consumers share the partitions of a topic and rebalance three times.

Real consumers of the cooperative protocol (only partitions that must move are revoked) while a producer runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from confluent_kafka import Producer
from rich.text import Text

from headrace.demo.chart import Chart, Mark, Point, Series
from headrace.demo.members import QUIET, Member
from headrace.demo.scene import Scene, Stage

TOPIC, GROUP = "clicks", "A"
PRODUCER_PAUSE_S = 0.02
LOOK_S = 0.8
QUIET_S = 0.6
TIMEOUT_S = 20
COLOURS = ("cyan", "magenta", "yellow", "blue")

Shares = dict[str, set[int]]


class GroupPicture:
    """Draws each consumer with its assigned partitions; new ones are marked."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.before: Shares = {}

    def shares(self) -> Shares:
        return {name: {index for _, index in member.owned} for name, member in self.members.items()}

    def __rich__(self) -> Text:
        return Text("\n").join(map(self._line, range(len(self.members)), list(self.members.values())))

    def _line(self, place: int, member: Member) -> Text:
        line = Text(f"consumer {member.name}", style=COLOURS[place % len(COLOURS)])
        for _, partition in sorted(member.owned):
            is_new = bool(self.before) and partition not in self.before.get(member.name, set())
            drum = f"  ()=({TOPIC}#{partition}(@=()"
            line.append(f"{drum} ◀ new" if is_new else drum, style="bold green" if is_new else "")
        return line


class _Group:
    """The running group, its producer, and the steps of the scene."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._screen = stage.screen
        self._picture = GroupPicture()
        self._members: list[Member] = []
        """All that ever joined."""
        self._sent: list[bytes] = []
        self._partitions = 4
        self._over = threading.Event()
        self._lag: list[Point] = []
        """When a record was sent, and how many were not received then."""
        self._events: list[Mark] = []
        self._producer = threading.Thread(target=self._produce, daemon=True)

    def play(self) -> None:
        self._screen.run(f"headrace topics create {TOPIC} --partitions {self._partitions}")
        self._producer.start()
        try:
            self._first_assignment()
            self._partition_is_added()
            self._consumer_joins()
            self._consumer_leaves()
            self._everything_arrived()
            self._stage.draw("rebalances", self._lag_chart())
        finally:
            self._over.set()
            for member in self._picture.members.values():
                member.leave()

    # -- the four pictures ---------------------------------------------------------------------------------

    def _first_assignment(self) -> None:
        with self._step("Three consumers share four partitions; one of them has two:", "three join"):
            for name in ("A#0", "A#1", "A#2"):
                self._join(name)
        sizes = sorted(map(len, self._picture.shares().values()))
        self._screen.check("4 partitions over 3 consumers: 2, 1 and 1", sizes == [1, 1, 2])
        self._screen.run(f"headrace groups describe {GROUP} --over 0s")

    def _partition_is_added(self) -> None:
        before = self._picture.shares()
        prose = "A partition is added. It goes to one of the least loaded consumers:"
        with self._step(prose, "a partition is added"):
            self._partitions += 1
            self._screen.run(f"headrace topics alter {TOPIC} --partitions {self._partitions}")
        after = self._picture.shares()
        taker = next((name for name, owned in after.items() if 4 in owned), "")
        held = len(before.get(taker, "..")) == 1 and _moved(before, after) == set()
        self._screen.check("it went to a consumer with one partition; nothing else moved", held)

    def _consumer_joins(self) -> None:
        before = self._picture.shares()
        with self._step("A consumer joins. It takes from the most loaded:", "one joins"):
            self._join("A#3")
        after = self._picture.shares()
        moved = _moved(before, after)
        from_most_loaded = any(moved <= owned and len(owned) == 2 for owned in before.values())
        held = len(moved) == 1 and after["A#3"] == moved and from_most_loaded
        self._screen.check("it took one partition from a consumer with two; nothing else moved", held)

    def _consumer_leaves(self) -> None:
        before = self._picture.shares()
        leaver = max(before, key=lambda name: len(before[name]))
        with self._step(f"Consumer {leaver} leaves. Its partitions are shared out:", "one leaves"):
            self._picture.members.pop(leaver).leave()
        after = self._picture.shares()
        shared_out = set().union(*after.values()) == set(range(self._partitions))
        held = shared_out and _moved(before, after) == set()
        self._screen.check("its partitions have new owners; the other consumers kept theirs", held)

    def _everything_arrived(self) -> None:
        self._over.set()
        self._producer.join(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while not (complete := self._received() == set(self._sent)) and time.monotonic() < deadline:
            time.sleep(0.05)
        promise = f"the group received all {len(self._sent)} records that were sent meanwhile"
        self._screen.check(promise, complete)

    def _received(self) -> set[bytes]:
        return {value for member in self._members for *_, value in list(member.received)}

    def _lag_chart(self) -> Chart:
        begin = min(self._lag[0][0], self._events[0].x)
        return Chart(
            title="Lag of the group through its rebalances",
            x_label="seconds",
            y_label="records sent and not yet received",
            series=[Series(name="all partitions", points=[(at - begin, lag) for at, lag in self._lag])],
            marks=[Mark(at - begin, label) for at, label in self._events],
        )

    # -- how -----------------------------------------------------------------------------------------------

    def _join(self, name: str) -> None:
        member = Member(self._stage.bootstrap, group=GROUP, topics=[TOPIC], name=name)
        self._picture.members[name] = member
        self._members.append(member)

    def _produce(self) -> None:
        settings = {"linger.ms": 0, "topic.metadata.refresh.interval.ms": 300, **QUIET}
        producer = Producer({"bootstrap.servers": self._stage.bootstrap, **settings})
        for number in count():
            if self._over.wait(PRODUCER_PAUSE_S):
                break
            self._sent.append(b"click %d" % number)
            self._lag.append((time.monotonic(), len(self._sent) - len(self._received())))
            producer.produce(TOPIC, self._sent[-1])
            producer.poll(0)
        producer.flush(TIMEOUT_S)

    @contextmanager
    def _step(self, prose: str, event: str) -> Iterator[None]:
        """Show the group while and after it changes."""
        self._screen.say(prose)
        self._events.append(Mark(time.monotonic(), event))
        self._picture.before = self._picture.shares()
        yield
        with self._screen.live(self._picture):
            took_ms = self._await_balance()
            time.sleep(LOOK_S if self._screen.is_terminal else 0)
        self._screen.show(Text(f"rebalanced after {took_ms:.0f} ms", style="dim"))

    def _await_balance(self) -> float:
        """Wait until all partitions are assigned evenly and nothing changes; how long the rebalance took."""
        started = changed = time.monotonic()
        last: Shares = {}
        while time.monotonic() < started + TIMEOUT_S:
            shares = self._picture.shares()
            if shares != last:
                last, changed = shares, time.monotonic()
            if self._is_fair(shares) and time.monotonic() - changed > QUIET_S:
                break
            time.sleep(0.01)
        return (changed - started) * 1000

    def _is_fair(self, shares: Shares) -> bool:
        sizes = [len(owned) for owned in shares.values()]
        complete = sorted(p for owned in shares.values() for p in owned) == list(range(self._partitions))
        return complete and max(sizes) - min(sizes) <= 1


def _moved(before: Shares, after: Shares) -> set[int]:
    """Partitions revoked from members that are still in the group."""
    return set().union(*(owned - after[name] for name, owned in before.items() if name in after))


def play(stage: Stage) -> None:
    _Group(stage).play()


SCENE = Scene(
    name="group",
    title="A group shares the partitions and rebalances",
    play=play,
    varies=(
        r"all \d+ records",
        r"(?m)^consumer A#\d.*$",
        r"Consumer A#\d leaves",
        r"(?ms)^\$ headrace groups describe A .*?\n(?=```)",
    ),
)
