# SPDX-License-Identifier: Apache-2.0
"""The judge of group storms: it passes what a right broker does, and names each wrong thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from tests.harness.groups.history import Commit, GroupHistory, Owned, Start, check

RECORDS = 200
PARTITIONS = 3


def right_history(seed: int) -> tuple[GroupHistory, dict[int, int]]:
    """What members of a right broker see: owners change, die before they commit, are refused when late."""
    random, history = Random(seed), GroupHistory()
    for partition in range(PARTITIONS):
        committed, epoch, done = -1, 0, 0
        while done < RECORDS:
            epoch += random.randint(1, 3)
            member = f"m{partition}-{epoch}"
            history.owned.append(Owned(member=member, partition=partition, epoch=epoch))
            begin(history, member, partition, epoch, committed)
            position = max(committed, 0)
            for _ in range(random.randint(1, 4)):
                if position >= RECORDS:
                    break
                last = min(position + random.randint(0, 30), RECORDS - 1)
                history.take(member, partition, position, last)
                position = last + 1
                committed = try_to_commit(history, random, (member, partition, epoch, position), committed)
            if committed >= RECORDS:
                done = RECORDS
            if random.random() < 0.3 and epoch > 2:
                late = history.commit("late", partition, epoch - 2, position)
                history.record_outcome(late, "fail")
    return history, dict.fromkeys(range(PARTITIONS), RECORDS)


def begin(history: GroupHistory, member: str, partition: int, epoch: int, offset: int) -> None:
    asked = history.tick()
    history.starts.append(
        Start(
            member=member,
            partition=partition,
            epoch=epoch,
            offset=offset,
            asked=asked,
            answered=history.tick(),
        )
    )


def try_to_commit(
    history: GroupHistory, random: Random, wanted: tuple[str, int, int, int], committed: int
) -> int:
    """What is committed afterwards: an answer that is lost leaves both possible."""
    commit = history.commit(*wanted)
    fate = random.random()
    if fate < 0.7:
        history.record_outcome(commit, "ok")
        return wanted[3]
    if fate < 0.85:
        history.record_outcome(commit, "fail")
        return committed
    return random.choice((wanted[3], committed))


@pytest.mark.parametrize("seed", range(50))
def test_a_correct_history_passes(seed: int) -> None:
    history, ends = right_history(seed)
    assert check(history, ends) == []


def second_start(history: GroupHistory) -> int:
    """Of an owner that was told a committed offset, and is not the first of its partition."""
    return next(place for place, start in enumerate(history.starts) if start.offset > 0)


def two_owners(history: GroupHistory) -> None:
    history.owned.append(replace(history.owned[0], member="thief"))


def lose_a_record(history: GroupHistory) -> None:
    """The one after a partition's last: nobody ever came so far."""
    done = max((one for one in history.processed if one.partition == 0), key=lambda one: one.last)
    for place, one in enumerate(history.processed):
        if one.partition == 0 and one.last == done.last:
            history.processed[place] = replace(one, last=one.last - 1)


def skip_a_record(history: GroupHistory) -> None:
    place = next(place for place, one in enumerate(history.processed) if one.last > one.first)
    one = history.processed[place]
    history.processed[place] = replace(one, first=one.first + 1)


def start_too_far(history: GroupHistory) -> None:
    place = second_start(history)
    history.starts[place] = replace(history.starts[place], offset=RECORDS)


def start_too_early(history: GroupHistory) -> None:
    place = next(
        place
        for place, start in enumerate(history.starts)
        if any(
            commit.partition == start.partition
            and commit.outcome == "ok"
            and commit.answered is not None
            and commit.answered < start.asked
            for commit in history.commits
        )
    )
    history.starts[place] = replace(history.starts[place], offset=0)


def accept_a_former_owner(history: GroupHistory) -> None:
    start = history.starts[second_start(history)]
    position = max(one.last for one in history.processed if one.partition == start.partition) + 1
    history.commits.append(
        Commit(
            member="former",
            partition=start.partition,
            epoch=start.epoch - 1,
            offset=position,
            asked=history.tick(),
            answered=history.tick(),
            outcome="ok",
        )
    )


def accept_a_step_back(history: GroupHistory) -> None:
    last = max((one for one in history.commits if one.outcome == "ok"), key=lambda one: one.answered or 0)
    history.commits.append(
        replace(last, offset=last.offset - 1, asked=history.tick(), answered=history.tick())
    )


def tell_what_nobody_committed(history: GroupHistory) -> None:
    history.starts.append(
        Start(
            member="new",
            partition=0,
            epoch=10_000,
            offset=10_000,
            asked=history.tick(),
            answered=history.tick(),
        )
    )


WRONG = {
    two_owners: "two-owners",
    lose_a_record: "unprocessed",
    skip_a_record: "skipped",
    start_too_far: "skipped",
    start_too_early: "went-back",
    accept_a_former_owner: "former-owner-committed",
    accept_a_step_back: "went-back",
    tell_what_nobody_committed: "invented",
}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("make_wrong", WRONG, ids=lambda make: make.__name__)
def test_each_wrong_history_is_caught(make_wrong: Callable[[GroupHistory], None], seed: int) -> None:
    history, ends = right_history(seed)
    make_wrong(history)
    kinds = {anomaly.kind for anomaly in check(history, ends)}
    assert WRONG[make_wrong] in kinds


def test_a_late_commit_of_the_same_member_in_an_older_epoch_is_its_own_business() -> None:
    history = GroupHistory()
    begin(history, "a", 0, 1, -1)
    history.take("a", 0, 0, 4)
    begin(history, "a", 0, 2, -1)
    history.take("a", 0, 0, 4)
    history.record_outcome(history.commit("a", 0, 1, 5), "ok")
    assert check(history, {0: 5}) == []


def test_an_anomaly_names_partition_and_kind() -> None:
    history, ends = right_history(0)
    two_owners(history)
    assert str(check(history, ends)[0]).startswith("two-owners in partition 0: m0-")
