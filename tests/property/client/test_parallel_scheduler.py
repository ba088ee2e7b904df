# SPDX-License-Identifier: Apache-2.0
"""The scheduler of the parallel consumer under arbitrary histories of records, outcomes and rebalances.

The broker is a list of records per partition and a committed offset; members come and go between polls.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.parallel.commit_position import Prefix
from headrace.client.parallel.flow_control import Limits, Load, partitions_to_pause
from headrace.client.parallel.record import Order, Record
from headrace.client.parallel.scheduler import Entry, Scheduler
from headrace.types import TopicPartition

PARTITIONS = [TopicPartition("t", index) for index in range(2)]
KEYS = (None, b"a", b"b", b"c")
LIMITS = Limits(records=5, bytes=10_000)
orders = st.sampled_from(["key", "partition", "none"])


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_the_position_follows_the_finished_prefix_whatever_the_order_and_the_gaps(gaps, random):
    prefix = Prefix()
    offsets = [sum(gaps[: index + 1]) for index in range(len(gaps))]
    tickets = [prefix.receive(offset) for offset in offsets]
    unfinished = set(offsets)
    for ticket in random.sample(tickets, len(tickets)):
        prefix.finish(ticket)
        unfinished.discard(ticket.offset)
        finished_before = [offset for offset in offsets if offset < min(unfinished, default=10**9)]
        assert prefix.position == (finished_before[-1] + 1 if finished_before else None)
        assert len(prefix) == len(offsets) - len(finished_before)


@dataclass
class Story:
    """Several members of a group, each with a scheduler, over logs that never change."""

    order: Order
    logs: dict[TopicPartition, list[bytes | None]]
    members: list[Scheduler] = field(default_factory=list)
    owner: dict[TopicPartition, int] = field(default_factory=dict)
    next_offset: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    running: list[tuple[int, Entry]] = field(default_factory=list)
    handled: dict[TopicPartition, list[int]] = field(default_factory=lambda: defaultdict(list))
    ending: set[TopicPartition] = field(default_factory=set)
    now_ms: float = 0

    def __post_init__(self) -> None:
        self.members = [Scheduler(self.order, LIMITS) for _ in range(2)]
        self.committed = dict.fromkeys(self.logs, 0)
        for partition in self.logs:
            self.give(partition, 0)

    def give(self, partition: TopicPartition, member: int) -> None:
        self.owner[partition] = member
        self.next_offset[partition] = self.committed[partition]
        self.members[member].assign([partition])

    def poll(self, partition: TopicPartition) -> None:
        offset, scheduler = self.next_offset[partition], self.members[self.owner[partition]]
        if scheduler.full or offset >= len(self.logs[partition]):
            return
        key = self.logs[partition][offset]
        if scheduler.add(_record(partition, offset, key)):
            self.next_offset[partition] += 1
        else:
            assert partition in self.ending

    def take(self, member: int) -> None:
        entry = self.members[member].take(self.now_ms)
        if entry is None:
            return
        for other_member, other in self.running:
            same_lane = other_member == member and _lane(self.order, other) == _lane(self.order, entry)
            assert not same_lane, "two records of one lane run at the same time"
        self.running.append((member, entry))

    def finish(self, index: int, *, succeeds: bool) -> None:
        if not self.running:
            return
        member, entry = self.running.pop(index % len(self.running))
        partition, offset = entry.record.topic_partition, entry.record.offset
        if not succeeds:
            entry.failures += 1
            self.members[member].retry(entry, self.now_ms + 10)
            return
        current = not entry.tenure.over
        assert self.members[member].finish(entry) == current
        if current:
            self._check_order(partition, offset, entry)
        self.handled[partition].append(offset)

    def _check_order(self, partition: TopicPartition, offset: int, entry: Entry) -> None:
        """All before it in its lane were handled at least once."""
        log = self.logs[partition]
        for earlier in range(offset):
            if self.order == "partition" or (self.order == "key" and log[earlier] == log[offset] is not None):
                assert earlier in self.handled[partition] or earlier < self.committed[partition]

    def commit(self, member: int) -> None:
        for partition, position in self.members[member].positions().items():
            if self.owner[partition] == member:
                assert position >= self.committed[partition], "a commit went back"
                self.committed[partition] = position

    def revoke(self, partition: TopicPartition, *, fill_gaps: bool) -> None:
        """First nothing more is begun; at the second call the other member gets it."""
        member = self.owner[partition]
        if partition not in self.ending:
            self.ending.add(partition)
            self.members[member].begin_end([partition], fill_gaps=fill_gaps)
            return
        self.ending.discard(partition)
        self.commit(member)
        self.members[member].end([partition])
        self.give(partition, 1 - member)

    def lose(self, partition: TopicPartition) -> None:
        self.ending.discard(partition)
        self.members[self.owner[partition]].end([partition])
        self.give(partition, self.owner[partition])

    def check(self) -> None:
        for partition, position in self.committed.items():
            assert set(range(position)) <= set(self.handled[partition]), "committed, but never handled"
        for scheduler in self.members:
            assert scheduler.records <= LIMITS.records
            assert scheduler.running <= scheduler.records

    def run_to_the_end(self) -> None:
        for partition in list(self.ending):
            self.revoke(partition, fill_gaps=False)
        for _ in range(10_000):
            self.now_ms += 100
            for partition in self.logs:
                self.poll(partition)
            for member in range(2):
                self.take(member)
                self.commit(member)
            self.finish(0, succeeds=True)
            if all(self.committed[partition] == len(log) for partition, log in self.logs.items()):
                return
        raise AssertionError(f"never finished: {self.committed}")


def _record(partition: TopicPartition, offset: int, key: bytes | None) -> Record:
    return Record(
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        timestamp_ms=0,
        append_time=False,
        key=key,
        value=b"v",
        headers=(),
    )


def _lane(order: Order, entry: Entry) -> tuple[TopicPartition, bytes | int | None]:
    record = entry.record
    if order == "partition":
        return record.topic_partition, None
    return record.topic_partition, record.offset if order == "none" or record.key is None else record.key


moves = st.one_of(
    st.tuples(st.just("poll"), st.integers(0, 1)),
    st.tuples(st.just("poll"), st.integers(0, 1)),
    st.tuples(st.just("take"), st.integers(0, 1)),
    st.tuples(st.just("take"), st.integers(0, 1)),
    st.tuples(st.just("succeed"), st.integers(0, 9)),
    st.tuples(st.just("succeed"), st.integers(0, 9)),
    st.tuples(st.just("fail"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.integers(0, 20)),
    st.tuples(st.just("commit"), st.integers(0, 1)),
    st.tuples(st.just("revoke"), st.integers(0, 3)),
    st.tuples(st.just("lose"), st.integers(0, 1)),
)
keys = st.lists(st.sampled_from(KEYS), min_size=2, max_size=12)


@settings(max_examples=400, deadline=None)
@given(orders, keys, keys, st.lists(moves, min_size=10, max_size=80))
def test_nothing_is_lost_reordered_or_committed_early_whatever_happens(order, first, second, steps):
    story = Story(order, dict(zip(PARTITIONS, (first, second), strict=True)))
    for kind, number in steps:
        if kind == "poll":
            story.poll(PARTITIONS[number])
        elif kind == "take":
            story.take(number)
        elif kind in ("succeed", "fail"):
            story.finish(number, succeeds=kind == "succeed")
        elif kind == "wait":
            story.now_ms += number
        elif kind == "commit":
            story.commit(number)
        elif kind == "revoke":
            story.revoke(PARTITIONS[number % 2], fill_gaps=number > 1)
        else:
            story.lose(PARTITIONS[number])
        story.check()
    story.run_to_the_end()
    story.check()
    assert all(set(story.handled[part]) >= set(range(len(log))) for part, log in story.logs.items())


loads = st.builds(
    Load,
    records=st.integers(0, 12),
    bytes=st.integers(0, 1_200),
    ahead=st.integers(0, 30),
)


@given(
    st.dictionaries(st.sampled_from(PARTITIONS), loads), st.sets(st.sampled_from(PARTITIONS)), st.booleans()
)
def test_a_full_room_pauses_all_and_an_empty_one_none(loads, paused, full):
    limits = Limits(records=10, bytes=1_000, ahead=20)
    chosen = partitions_to_pause(loads, paused & loads.keys(), limits, full=full)
    assert chosen <= loads.keys()
    if full:
        assert chosen == loads.keys()
    else:
        empty = {part for part, load in loads.items() if not (load.records or load.bytes or load.ahead)}
        assert not chosen & empty, "an empty partition that stays paused would never come back"
        far_ahead = {part for part, load in loads.items() if load.ahead >= limits.ahead}
        assert far_ahead <= chosen
