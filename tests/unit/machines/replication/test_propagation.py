# SPDX-License-Identifier: Apache-2.0
"""When a wait for the other nodes' views ends: confirmed, late, gone, of an earlier release, out of time."""

from __future__ import annotations

import random

from headrace.machines.replication.propagation import Propagation, Question, Step

LIMIT_MS, RETRY_MS, LONG_MS = 5_000, 50, 60_000
LIVE = {2: 20, 3: 30}


def machine(live: dict[int, int] | None = None) -> Propagation:
    made = Propagation(limit_ms=LIMIT_MS, retry_ms=RETRY_MS)
    made.update_nodes(LIVE if live is None else live)
    return made


def question(node_id: int, version: int, epoch: int | None = None) -> Question:
    return Question(node_id=node_id, node_epoch=LIVE[node_id] if epoch is None else epoch, version=version)


def test_a_wait_ends_when_all_live_nodes_have_confirmed() -> None:
    waits = machine()
    wait = waits.begin(7, LONG_MS, 0)
    assert waits.step(0) == Step(questions=(question(2, 7), question(3, 7)), next_ms=LIMIT_MS)
    waits.confirmed(question(3, 7))
    assert waits.step(10).done == ()
    waits.confirmed(question(2, 7))
    assert waits.step(20) == Step(done=(wait,))
    assert not waits.waiting


def test_without_other_nodes_nothing_is_waited_for() -> None:
    waits = machine({})
    wait = waits.begin(7, LONG_MS, 0)
    assert waits.step(0) == Step(done=(wait,))


def test_what_was_confirmed_is_not_asked_again() -> None:
    waits = machine()
    waits.begin(7, LONG_MS, 0)
    for each in waits.step(0).questions:
        waits.confirmed(each)
    waits.step(1)
    wait = waits.begin(6, LONG_MS, 2)
    assert waits.step(2) == Step(done=(wait,))


def test_a_node_is_asked_once_at_a_time_and_then_for_the_newest_version() -> None:
    waits = machine({2: 20})
    first = waits.begin(7, LONG_MS, 0)
    assert waits.step(0).questions == (question(2, 7),)
    second, third = waits.begin(8, LONG_MS, 1), waits.begin(9, LONG_MS, 2)
    assert waits.step(2).questions == ()
    waits.confirmed(question(2, 7))
    step = waits.step(3)
    assert (step.done, step.questions) == ((first,), (question(2, 9),))
    waits.confirmed(question(2, 9))
    assert waits.step(4).done == (second, third)


def test_a_node_that_leaves_or_registers_again_is_judged_anew() -> None:
    waits = machine()
    wait = waits.begin(7, LONG_MS, 0)
    waits.step(0)
    waits.update_nodes({2: 21})
    step = waits.step(1)
    assert (step.done, step.questions) == ((), (question(2, 7, epoch=21),))
    waits.confirmed(question(2, 7))  # an answer of the registration before
    waits.confirmed(question(3, 7))  # of a node that is gone
    assert waits.step(2).done == ()
    waits.confirmed(question(2, 7, epoch=21))
    assert waits.step(3).done == (wait,)


def test_a_failed_question_is_repeated_after_a_pause_while_somebody_waits() -> None:
    waits = machine({2: 20})
    wait = waits.begin(7, LONG_MS, 0)
    waits.step(0)
    waits.failed(question(2, 7), 10)
    assert waits.step(10) == Step(next_ms=10 + RETRY_MS)
    assert waits.step(10 + RETRY_MS).questions == (question(2, 7),)
    waits.failed(question(2, 7), 100)
    waits.abandon(wait)
    assert waits.step(1_000) == Step()


def test_a_silent_node_delays_one_wait_by_the_limit_and_no_later_one() -> None:
    waits = machine()
    wait = waits.begin(7, LONG_MS, 0)
    waits.step(0)
    waits.confirmed(question(2, 7))
    assert waits.step(1).next_ms == LIMIT_MS
    overlapping = waits.begin(7, LONG_MS, 4_000)
    assert waits.step(LIMIT_MS) == Step(done=(wait, overlapping), late=(3,))
    later = waits.begin(8, LONG_MS, 6_000)
    assert waits.step(6_000).questions == (question(2, 8),)
    waits.confirmed(question(2, 8))
    assert waits.step(6_001).done == (later,)


def test_a_late_node_counts_again_once_it_confirms() -> None:
    waits = machine({2: 20})
    waits.begin(7, LONG_MS, 0)
    waits.step(0)
    assert waits.step(LIMIT_MS).late == (2,)
    waits.failed(question(2, 7), 8_000)  # its connection ended
    assert waits.step(8_000) == Step()
    passed_over = waits.begin(8, LONG_MS, 9_000)
    assert waits.step(9_000) == Step(questions=(question(2, 8),), done=(passed_over,))
    waits.confirmed(question(2, 8))
    waits.step(9_010)
    waits.begin(9, LONG_MS, 9_020)
    assert waits.step(9_020) == Step(questions=(question(2, 9),), next_ms=9_020 + LIMIT_MS)


def test_a_short_timeout_of_a_request_makes_no_node_late() -> None:
    waits = machine({2: 20})
    wait = waits.begin(7, 10, 0)
    assert waits.step(0).next_ms == 10
    assert waits.step(10) == Step(done=(wait,))
    waits.failed(question(2, 7), 20)
    waits.step(20)
    waits.begin(8, LONG_MS, LONG_MS)
    assert waits.step(LONG_MS) == Step(questions=(question(2, 8),), next_ms=LONG_MS + LIMIT_MS)


def test_a_node_of_an_earlier_release_is_never_waited_for() -> None:
    waits = machine({2: 20})
    wait = waits.begin(7, LONG_MS, 0)
    waits.step(0)
    waits.not_served(question(2, 7))
    assert waits.step(1).done == (wait,)
    wait = waits.begin(8, LONG_MS, 2)
    assert waits.step(2) == Step(done=(wait,))
    waits.update_nodes({2: 22})  # upgraded
    waits.begin(9, LONG_MS, 3)
    assert waits.step(3).questions == (question(2, 9, epoch=22),)


def test_any_order_of_events_ends_every_wait_in_time_and_none_early() -> None:
    for seed in range(200):
        _storm(random.Random(seed))


def _storm(random: random.Random) -> None:
    """Each wait ends within the limit; before that only if the nodes that count have its version."""
    waits, live, now = machine(), dict(LIVE), 0
    asked: list[Question] = []
    open_waits: dict[int, tuple[int, int]] = {}
    reached: dict[tuple[int, int], int] = {}
    ever_late: set[int] = set()
    for version in range(1, 120):
        now += random.choice((0, 1, 20, 400))
        match random.randrange(6):
            case 0 | 1:
                timeout_ms = random.choice((100, LONG_MS))
                open_waits[waits.begin(version, timeout_ms, now)] = version, now + min(timeout_ms, LIMIT_MS)
            case 2 | 3 if asked:
                answer = asked.pop(random.randrange(len(asked)))
                place = answer.node_id, answer.node_epoch
                reached[place] = max(reached.get(place, -1), answer.version)
                waits.confirmed(answer)
            case 4 if asked:
                waits.failed(asked.pop(random.randrange(len(asked))), now)
            case 5 if random.random() < 0.2:
                live[2] = version + 100
                waits.update_nodes(live)
        step = waits.step(now)
        asked += step.questions
        ever_late.update(step.late)
        for number in step.done:
            wanted, deadline = open_waits.pop(number)
            known = all(reached.get(each, -1) >= wanted for each in live.items() if each[0] not in ever_late)
            assert known or now >= deadline
        assert all(now < deadline for _, deadline in open_waits.values())
        assert (step.next_ms is not None) == waits.waiting
