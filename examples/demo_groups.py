"""The demo's last part: a group shares a topic's partitions, and shares them anew three times, live.

Real consumers (KIP-848, so only what must move is taken from anybody) while a producer goes on producing.
Run by demo.py.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from rich.console import Console
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from headrace.client.admin import Admin

TOPIC, GROUP = "clicks", "A"
NODE_SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
}
"""Consumers hear of a change with their next heartbeat: 5 s would be long to look at."""
QUIET = {"log_level": 4}
"""librdkafka tells of new partitions by itself."""
PRODUCER_PAUSE_S = 0.02
LOOK_S = 0.8
QUIET_S = 0.6
PATIENCE_S = 10
COLOURS = ("cyan", "magenta", "yellow", "blue")

Shares = dict[str, set[int]]
Check = Callable[[str, str, bool], None]


class Member:
    """One consumer of the group, in a thread of its own."""

    def __init__(self, bootstrap: str, name: str, received: Counter[bytes]) -> None:
        self.name = name
        self.owned: set[int] = set()
        self.handled = 0
        self._received = received
        self._leaving = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "group.protocol": "consumer",
                "client.id": name,
                "auto.offset.reset": "earliest",
                **QUIET,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while not self._leaving.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self._handle(message)
        self._consumer.close()

    def _handle(self, message: Message) -> None:
        self.handled += 1
        self._received[message.value() or b""] += 1

    def _assigned(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.owned |= {place.partition for place in places}

    def _revoked(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.owned -= {place.partition for place in places}


class GroupPicture:
    """The drawing of D10: each consumer beside the partitions that it reads; what came new is marked."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.before: Shares = {}

    def shares(self) -> Shares:
        return {name: set(member.owned) for name, member in self.members.items()}

    def __rich__(self) -> Text:
        return Text("\n").join(map(self._line, range(len(self.members)), self.members.values()))

    def _line(self, place: int, member: Member) -> Text:
        line = Text(f"consumer {member.name}", style=COLOURS[place % len(COLOURS)])
        line.append(f"  {member.handled:>4} records", style="dim")
        for partition in sorted(member.owned):
            is_new = bool(self.before) and partition not in self.before.get(member.name, set())
            drum = f"  ()=({TOPIC}#{partition}(@=()"
            line.append(f"{drum} ◀ new" if is_new else drum, style="bold green" if is_new else "")
        return line


class GroupScene:
    def __init__(self, bootstrap: str, console: Console, check: Check) -> None:
        self._bootstrap, self._console, self._check = bootstrap, console, check
        self._admin = Admin(bootstrap)
        self._picture = GroupPicture()
        self._received: Counter[bytes] = Counter()
        self._sent: list[bytes] = []
        self._partitions = 4
        self._over = threading.Event()

    def play(self) -> None:
        self._console.print(Rule("4  A group shares the partitions, and shares them anew"))
        self._admin.create_topic(TOPIC, partitions=self._partitions)
        producer = threading.Thread(target=self._produce, daemon=True)
        producer.start()
        self._first_assignment()
        self._partition_is_added()
        self._consumer_joins()
        self._consumer_leaves()
        self._over.set()
        producer.join(PATIENCE_S)
        self._everything_arrived()
        for member in self._picture.members.values():
            member.leave()

    # -- the four pictures ---------------------------------------------------------------------------------

    def _first_assignment(self) -> None:
        with self._step("Three consumers, four partitions: one has two"):
            for name in ("A#0", "A#1", "A#2"):
                self._join(name)
        sizes = sorted(map(len, self._picture.shares().values()))
        self._check("D10", "4 partitions over 3 consumers: 2, 1 and 1", sizes == [1, 1, 2])

    def _partition_is_added(self) -> None:
        before = self._picture.shares()
        with self._step("A partition is added: it goes to one of the least loaded"):
            self._partitions += 1
            self._admin.add_partitions(TOPIC, self._partitions)
        after = self._picture.shares()
        taker = next((name for name, owned in after.items() if 4 in owned), "")
        held = len(before.get(taker, "..")) == 1 and _moved(before, after) == set()
        self._check("D11", "the added partition went to a least loaded one, nothing else moved", held)

    def _consumer_joins(self) -> None:
        before = self._picture.shares()
        with self._step("A consumer joins: it takes from the most loaded"):
            self._join("A#3")
        after = self._picture.shares()
        moved = _moved(before, after)
        from_most_loaded = any(moved <= owned and len(owned) == 2 for owned in before.values())
        held = len(moved) == 1 and after["A#3"] == moved and from_most_loaded
        self._check("D11", "the new consumer took one partition from a most loaded one", held)

    def _consumer_leaves(self) -> None:
        before = self._picture.shares()
        leaver = max(before, key=lambda name: len(before[name]))
        with self._step(f"Consumer {leaver} leaves: what it had is shared out"):
            self._picture.members.pop(leaver).leave()
        after = self._picture.shares()
        shared_out = set().union(*after.values()) == set(range(self._partitions))
        held = shared_out and _moved(before, after) == set()
        self._check("D11", "what the one that left had was shared out, nobody else lost any", held)

    def _everything_arrived(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while set(self._received) != set(self._sent) and time.monotonic() < deadline:
            time.sleep(0.05)
        promise = f"the group received all {len(self._sent)} records meanwhile"
        self._check("D11", promise, set(self._received) == set(self._sent))

    # -- how -----------------------------------------------------------------------------------------------

    def _join(self, name: str) -> None:
        self._picture.members[name] = Member(self._bootstrap, name, self._received)

    def _produce(self) -> None:
        settings = {"linger.ms": 0, "topic.metadata.refresh.interval.ms": 300, **QUIET}
        producer = Producer({"bootstrap.servers": self._bootstrap, **settings})
        for number in count():
            if self._over.wait(PRODUCER_PAUSE_S):
                break
            self._sent.append(b"click %d" % number)
            producer.produce(TOPIC, self._sent[-1])
            producer.poll(0)
        producer.flush(PATIENCE_S)

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        """Shows the group before, while and after it changes; in a pipe only how it is in the end."""
        self._console.print(Text(f"\n{title}", style="bold"))
        self._picture.before = self._picture.shares()
        if not self._console.is_terminal:
            yield
            took_ms = self._settle()
            self._console.print(self._picture)
        else:
            with Live(self._picture, console=self._console, refresh_per_second=15):
                time.sleep(LOOK_S if self._picture.members else 0)
                yield
                took_ms = self._settle()
                time.sleep(LOOK_S)
        self._console.print(Text(f"settled after {took_ms:.0f} ms", style="dim"))

    def _settle(self) -> float:
        """Until everything is owned, in fair shares, and nothing changes; how long the changes took."""
        started = changed = time.monotonic()
        last: Shares = {}
        while time.monotonic() < started + PATIENCE_S:
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
    """What was taken from those who are still there."""
    return set().union(*(owned - after[name] for name, owned in before.items() if name in after))
