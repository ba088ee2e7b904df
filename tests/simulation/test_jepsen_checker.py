# SPDX-License-Identifier: Apache-2.0
"""Each anomaly of Jepsen's Kafka workload, planted in a minimal history, is reported as that one alone.

Beside each stands a sound history that differs from it in one point.
"""

from __future__ import annotations

from typing import Any

import pytest

from headrace.types import TopicPartition
from tests.harness.jepsen.checker import NORMAL, analyze, invalid
from tests.harness.jepsen.operations import Function, Operation, Outcome, Polled, Sent

X, Y = TopicPartition("topic", 0), TopicPartition("topic", 1)
VALUES = {b"a": 0, b"b": 1, b"c": 2, b"d": 3}
Steps = list[Sent | Polled]


def send(value: bytes, offset: int | None = None, key: TopicPartition = X) -> Sent:
    return Sent(key, value, offset)


def poll(*records: tuple[int, bytes], key: TopicPartition = X) -> Polled:
    return Polled({key: records})


def in_order(*values: bytes) -> Polled:
    """At the offsets at which they are in the log a, b, c, d."""
    return poll(*((VALUES[value], value) for value in values))


class Story:
    """Operations one after another, unless their times are given."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def add(self, process: str, *steps: Sent | Polled, type: Outcome = "ok", **more: Any) -> Story:
        kinds = {isinstance(step, Sent) for step in steps}
        f: Function = "txn" if len(kinds) == 2 else "send" if kinds == {True} else "poll"
        at = 10 * len(self.operations) + 10
        times = {"invoked_at": at, "completed_at": at + 5}
        self.operations.append(
            Operation(**{"process": process, "type": type, "f": f, "value": steps, **times, **more})
        )
        return self

    def assign(self, process: str, *keys: TopicPartition) -> Story:
        return self.add(process, f="assign", keys=keys)

    def kinds(self, *, ww_dependencies: bool = False) -> list[str]:
        return [each.kind for each in analyze(self.operations, ww_dependencies=ww_dependencies)]


def logged(*values: bytes) -> Story:
    """Sent one by one, each by its own producer, and read by one consumer."""
    story = Story()
    for value in values:
        story.add(f"p{value.decode()}", send(value, VALUES[value]))
    return story.add("reader", in_order(*values))


def at_once(story: Story) -> Story:
    """All operations overlap in time."""
    story.operations = [
        Operation(
            process=each.process, type=each.type, f=each.f, value=each.value, invoked_at=0, completed_at=99
        )
        for each in story.operations
    ]
    return story


PLANTED: dict[str, tuple[str, Story, Story]] = {
    "an acknowledged write below what was read": (
        "lost-write",
        Story().add("p", send(b"a", 0)).add("q", send(b"b", 1)).add("r", in_order(b"b")),
        Story().add("p", send(b"a", 0), type="info").add("q", send(b"b", 1)).add("r", in_order(b"b")),
    ),
    "a write with an unknown outcome, of which a part was read": (
        "lost-write",
        Story().add("p", send(b"a", 0), send(b"b", 0, Y), type="info").add("q", send(b"c", 2)).add(
            "r", poll((0, b"b"), key=Y), poll((2, b"c"))
        ),
        Story().add("p", send(b"a", 0), send(b"b", 0, Y), type="info").add("q", send(b"c", 2)).add(
            "r", poll((2, b"c"))
        ),
    ),
    "a failed write that was read": (
        "G1a",
        Story().add("p", send(b"a"), type="fail").add("r", in_order(b"a")),
        Story().add("p", send(b"a"), type="info").add("r", in_order(b"a")),
    ),
    "a transaction that reads what it sends": (
        "precommitted-read",
        Story().add("p", send(b"a"), in_order(b"a")),
        Story().add("p", send(b"a")).add("p", in_order(b"a")),
    ),
    "a value at two offsets": (
        "duplicate",
        Story().add("p", send(b"a", 0)).add("r", poll((0, b"a"), (1, b"a"))),
        Story().add("p", send(b"a", 0)).add("r", poll((0, b"a"))).add("s", poll((0, b"a"))),
    ),
    "two values at an offset": (
        "inconsistent-offsets",
        Story().add("p", send(b"a"), type="info").add("q", send(b"b"), type="info").add(
            "r", poll((0, b"a"))
        ).add("s", poll((0, b"b"))),
        Story().add("p", send(b"a"), type="info").add("q", send(b"b"), type="info").add(
            "r", poll((0, b"a"))
        ).add("s", poll((1, b"b"))),
    ),
    "a poll that leaves out a record": (
        "int-poll-skip",
        logged(b"a", b"b", b"c").add("s", in_order(b"a", b"c")),
        logged(b"a", b"b", b"c").add("s", in_order(b"a", b"c"), rebalanced=[X]),
    ),
    "two polls of one transaction that leave out a record": (
        "int-poll-skip",
        logged(b"a", b"b", b"c").add("s", in_order(b"a"), in_order(b"c")),
        logged(b"a", b"c").add("s", in_order(b"a"), in_order(b"c")),
    ),
    "a poll in the wrong order": (
        "int-nonmonotonic-poll",
        logged(b"a", b"b").add("s", in_order(b"b", b"a")),
        logged(b"a", b"b").add("s", in_order(b"a", b"b")),
    ),
    "a poll that answers a record twice": (
        "int-nonmonotonic-poll",
        logged(b"a", b"b").add("s", in_order(b"a", b"a", b"b")),
        logged(b"a", b"b").add("s", in_order(b"a", b"b")),
    ),
    "a process that leaves out a record between two polls": (
        "poll-skip",
        logged(b"a", b"b", b"c").add("s", in_order(b"a")).add("s", in_order(b"c")),
        logged(b"a", b"b", b"c").add("s", in_order(b"a")).assign("s", Y).assign("s", X).add(
            "s", in_order(b"c")
        ),
    ),
    "a process that reads a record again": (
        "nonmonotonic-poll",
        logged(b"a", b"b").add("s", in_order(b"a", b"b")).add("s", in_order(b"b")),
        logged(b"a", b"b").add("s", in_order(b"a", b"b"), type="info").add("s", in_order(b"b")),
    ),
    "an assignment that keeps the partition keeps its position": (
        "nonmonotonic-poll",
        logged(b"a", b"b").add("s", in_order(b"a", b"b")).assign("s", X).add("s", in_order(b"a")),
        logged(b"a", b"b").add("s", in_order(b"a", b"b")).assign("s", Y).add("s", in_order(b"a")),
    ),
    "a transaction between whose records another wrote": (
        "int-send-skip",
        Story().add("p", send(b"a", 0), send(b"c", 2)).add("q", send(b"b", 1)).add(
            "r", in_order(b"a", b"b", b"c")
        ),
        Story().add("p", send(b"a", 0), send(b"c", 2)).add("r", in_order(b"a", b"c")),
    ),
    "a transaction whose records are in the wrong order": (
        "int-nonmonotonic-send",
        Story().add("p", send(b"b", 1), send(b"a", 0)).add("r", in_order(b"a", b"b")),
        Story().add("p", send(b"b", 1), send(b"a", 0, Y)).add("r", poll((1, b"b")), poll((0, b"a"), key=Y)),
    ),
    "a process whose sends are in the wrong order": (
        "nonmonotonic-send",
        Story().add("p", send(b"b", 1)).add("p", send(b"a", 0)).add("r", in_order(b"a", b"b")),
        Story().add("p", send(b"b", 1)).add("q", send(b"a", 0)).add("r", in_order(b"a", b"b")),
    ),
    "a process whose sends with unknown outcomes are in the wrong order": (
        "nonmonotonic-send",
        Story().add("p", send(b"b"), type="info").add("p", send(b"a"), type="info").add(
            "r", in_order(b"a", b"b")
        ),
        Story().add("p", send(b"a"), type="info").add("p", send(b"b"), type="info").add(
            "r", in_order(b"a", b"b")
        ),
    ),
    "an acknowledged write above all that was read": (
        "unseen",
        Story().add("p", send(b"a", 0)).add("q", send(b"b", 1)).add("r", in_order(b"a")),
        Story().add("p", send(b"a", 0)).add("q", send(b"b", 1), type="info").add("r", in_order(b"a")),
    ),
    "two transactions that each read what the other sends": (
        "G1c",
        at_once(
            Story().add("p", send(b"a", 0), poll((0, b"b"), key=Y)).add(
                "q", send(b"b", 0, Y), poll((0, b"a"))
            )
        ),
        at_once(
            Story().add("p", send(b"a", 0), poll((0, b"b"), key=Y)).add("q", send(b"b", 0, Y)).add(
                "r", poll((0, b"a"))
            )
        ),
    ),
    "a process that reads what depends on its next transaction": (
        "G1c-process",
        Story().add("p", poll((0, b"b"), key=Y), invoked_at=1, completed_at=20).add(
            "p", send(b"a", 0), invoked_at=20, completed_at=60
        ).add("q", send(b"b", 0, Y), poll((0, b"a")), invoked_at=1, completed_at=60),
        Story().add("p", send(b"a", 0), invoked_at=20, completed_at=30).add(
            "p", poll((0, b"b"), key=Y), invoked_at=30, completed_at=70
        ).add("q", send(b"b", 0, Y), poll((0, b"a")), invoked_at=1, completed_at=60),
    ),
    "a transaction that is read although it depends on what is sent later": (
        "G1c-realtime",
        Story().add("p", send(b"a", 0), poll((0, b"b"), key=Y), invoked_at=1, completed_at=90).add(
            "r", poll((0, b"a")), invoked_at=10, completed_at=20
        ).add("q", send(b"b", 0, Y), invoked_at=30, completed_at=40),
        Story().add("p", send(b"a", 0), poll((0, b"b"), key=Y), invoked_at=1, completed_at=90).add(
            "r", poll((0, b"a")), invoked_at=10, completed_at=31
        ).add("q", send(b"b", 0, Y), invoked_at=30, completed_at=40),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_anomaly_is_reported_as_that_one_alone(name: str) -> None:
    kind, planted, _ = PLANTED[name]
    assert set(planted.kinds()) == {kind}


@pytest.mark.parametrize("name", PLANTED)
def test_its_sound_neighbour_is_not_reported(name: str) -> None:
    assert PLANTED[name][2].kinds() == []


def writes(first: tuple[int, int], second: tuple[int, int]) -> Story:
    """Two transactions, each with a record in both partitions, at these offsets."""
    return at_once(
        Story().add("p", send(b"a", first[0]), send(b"b", first[1], Y)).add(
            "q", send(b"c", second[0]), send(b"d", second[1], Y)
        ).add("r", poll(*sorted([(first[0], b"a"), (second[0], b"c")]))).add(
            "r", poll(*sorted([(first[1], b"b"), (second[1], b"d")]), key=Y)
        )
    )  # fmt: skip


def test_a_cycle_of_writes_is_g0_where_it_is_asked_for() -> None:
    assert writes((0, 1), (1, 0)).kinds(ww_dependencies=True) == ["G0"]
    assert writes((0, 1), (1, 0)).kinds() == []
    assert writes((0, 0), (1, 1)).kinds(ww_dependencies=True) == []


def test_a_cycle_of_writes_by_the_order_of_a_process_or_of_time_says_so() -> None:
    by_time = Story().add("p", send(b"b", 1)).add("q", send(b"a", 0)).add("r", in_order(b"a", b"b"))
    assert by_time.kinds(ww_dependencies=True) == ["G0-realtime"]
    by_process = Story().add("p", send(b"b", 1)).add("p", send(b"a", 0)).add("r", in_order(b"a", b"b"))
    assert by_process.kinds(ww_dependencies=True) == ["nonmonotonic-send", "G0-process"]
    assert at_once(by_time).kinds(ww_dependencies=True) == []


def test_what_jepsen_allows_is_not_invalid() -> None:
    skip = analyze(PLANTED["a transaction between whose records another wrote"][1].operations)
    cycle = analyze(writes((0, 1), (1, 0)).operations, ww_dependencies=True)
    assert {each.kind for each in (*skip, *cycle)} == {"int-send-skip", "G0"} <= NORMAL
    assert invalid([*skip, *cycle]) == []
    lost = analyze(PLANTED["an acknowledged write below what was read"][1].operations)
    assert [each.kind for each in invalid(lost)] == ["lost-write"]


def test_every_anomaly_of_the_workload_is_planted() -> None:
    assert {kind for kind, *_ in PLANTED.values()} == {
        "lost-write", "G1a", "precommitted-read", "duplicate", "inconsistent-offsets", "int-poll-skip",
        "int-nonmonotonic-poll", "poll-skip", "nonmonotonic-poll", "int-send-skip", "int-nonmonotonic-send",
        "nonmonotonic-send", "unseen", "G1c", "G1c-process", "G1c-realtime",
    }  # fmt: skip


def test_overlapping_sends_of_one_producer_are_ordered_in_each_partition_only() -> None:
    """p0 sends to X and then to Y; q sends to X when that to Y has completed, and before that to X has."""
    story = (
        Story()
        .add("p", send(b"b", 1), invoked_at=1, completed_at=50)
        .add("p", send(b"c", 0, Y), invoked_at=2, completed_at=10)
        .add("q", send(b"a", 0), invoked_at=20, completed_at=40)
        .add("r", in_order(b"a", b"b"), poll((0, b"c"), key=Y), invoked_at=60, completed_at=70)
    )
    assert story.kinds(ww_dependencies=True) == []
