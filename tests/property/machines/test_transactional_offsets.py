# SPDX-License-Identifier: Apache-2.0
"""Offsets of groups under arbitrary commits, transactions, markers, deletions, expiry and reloads.

What must always hold: the groups are what a plain model says; a load of the log, or of what compaction leaves
of it, makes the same groups (R33).
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace.machines.groups.events import (
    DeleteGroup,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchReply,
    OffsetToCommit,
    RetentionCheck,
    TopicsDeleted,
)
from headrace.types import NO_TOPIC_ID
from headrace.wire.coordinator.record import BatchProducer
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.driven_groups import RETENTION_MS, DrivenGroups

GROUPS = ("g", "h")
PARTITIONS = (("t", 0), ("u", 0))

PRODUCERS = tuple(BatchProducer(number, number + 5) for number in (1, 2, 3))
STEPS = 60

Where = tuple[str, str, int]
"""Group, topic, partition."""


class Model:
    """The history of the log, and what follows from it by definition."""

    def __init__(self) -> None:
        self.commits: list[tuple[int, Where, int, int, int | None]] = []
        """Place in the log, where, offset, time, producer."""
        self.tombstones: dict[Where, int] = {}
        self.markers: list[tuple[int, int, bool]] = []
        """Place, producer, committed."""
        self.end = 0

    def commit(self, where: Where, offset: int, time_ms: int, producer_id: int | None) -> None:
        self.commits.append((self._next(), where, offset, time_ms, producer_id))

    def mark(self, producer_id: int, *, committed: bool) -> None:
        self.markers.append((self._next(), producer_id, committed))

    def delete(self, where: Where) -> None:
        self.tombstones[where] = self._next()

    def _next(self) -> int:
        self.end += 1
        return self.end

    def _outcome(self, place: int, producer_id: int | None) -> bool | None:
        if producer_id is None:
            return True
        return next((done for at, who, done in self.markers if who == producer_id and at > place), None)

    def _since_tombstone(self, where: Where) -> list[tuple[int, int, int, int | None]]:
        after = self.tombstones.get(where, 0)
        return [(at, offset, ms, who) for at, w, offset, ms, who in self.commits if w == where and at > after]

    def committed(self, where: Where) -> tuple[int, int] | None:
        """The offset and its time: of the last record that counts."""
        counting = [each for each in self._since_tombstone(where) if self._outcome(each[0], each[3])]
        return None if not counting else (counting[-1][1], counting[-1][2])

    def pending(self, where: Where) -> bool:
        return any(self._outcome(at, who) is None for at, _, _, who in self._since_tombstone(where))

    def known(self, group: str) -> list[Where]:
        everywhere = [(group, *partition) for partition in PARTITIONS]
        return [where for where in everywhere if self.committed(where) is not None or self.pending(where)]


class History:
    """A random history, the same for the groups and for the model."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.groups = DrivenGroups()
        self.model = Model()
        self.offset = 0
        self.actions = {
            self.commit: 4,
            self.commit_in_transaction: 10,
            self.end_transaction: 6,
            self.delete_offset: 1,
            self.delete_group: 1,
            self.delete_topic: 1,
            self.expire: 2,
            self.reload: 1,
            self.fetch_stable: 2,
        }

    def run(self) -> None:
        actions, weights = list(self.actions), list(self.actions.values())
        for action in self.chance.choices(actions, weights, k=STEPS):
            action()
            self.check_model()
            self.check_load()

    @property
    def group(self) -> str:
        return self.chance.choice(GROUPS)

    def commit(self) -> None:
        self._commit(None)

    def commit_in_transaction(self) -> None:
        self._commit(self.chance.choice(PRODUCERS))

    def _commit(self, producer: BatchProducer | None) -> None:
        group, offsets = self.group, []
        for topic, partition in self.chance.sample(PARTITIONS, self.chance.randint(1, len(PARTITIONS))):
            self.offset += 1
            offsets.append(OffsetToCommit(topic, partition, self.offset))
            producer_id = None if producer is None else producer.producer_id
            self.model.commit((group, topic, partition), self.offset, self.groups.now_ms, producer_id)
        self.groups.commit(group, *offsets, producer=producer, wait=self.chance.random() < 0.5)

    def end_transaction(self) -> None:
        """Also of a producer without one, and again."""
        producer, committed = self.chance.choice(PRODUCERS), self.chance.random() < 0.7
        self.groups.end_transaction(producer, committed=committed)
        self.model.mark(producer.producer_id, committed=committed)

    def delete_offset(self) -> None:
        group, partition = self.group, self.chance.choice(PARTITIONS)
        self.groups.ask(group, OffsetDelete, partitions=(partition,))
        if (group, *partition) in self.model.known(group):
            self.model.delete((group, *partition))

    def delete_group(self) -> None:
        group = self.group
        self.groups.ask(group, DeleteGroup)
        for where in self.model.known(group):
            self.model.delete(where)

    def delete_topic(self) -> None:
        for group in GROUPS:
            self.groups.driver.notify(group, TopicsDeleted(topics={"u": NO_TOPIC_ID}))
            if (group, "u", 0) in self.model.known(group):
                self.model.delete((group, "u", 0))

    def expire(self) -> None:
        self.groups.now_ms += int(RETENTION_MS * self.chance.choice((0.3, 0.7, 1.0)))
        for group in GROUPS:
            self.groups.driver.notify(group, RetentionCheck())
            for where in self.model.known(group):
                found = self.model.committed(where)
                old = found is not None and self.groups.now_ms - found[1] >= RETENTION_MS
                if old and not self.model.pending(where):
                    self.model.delete(where)

    def reload(self) -> None:
        self.groups.reload()

    def fetch_stable(self) -> None:
        group = self.group
        reply: Any = self.groups.ask(group, OffsetFetch, partitions=PARTITIONS, require_stable=True)
        assert isinstance(reply, OffsetFetchReply)
        for found in reply.offsets:
            pending = self.model.pending((group, found.topic, found.partition))
            assert found.error is (ErrorCode.unstable_offset_commit if pending else ErrorCode.none)
            assert found.committed is None or not pending

    def check_model(self) -> None:
        for group in GROUPS:
            machine = self.groups.driver.get(group)
            assert (machine is not None) == bool(self.model.known(group)), "it lasts while it has offsets"
            for topic, partition in PARTITIONS:
                where = (group, topic, partition)
                found = None if machine is None else machine.offsets.get(topic, partition)
                held = None if found is None else (found.offset, found.commit_timestamp)
                assert held == self.model.committed(where), where

    def check_load(self) -> None:
        if self.groups.all_written:
            live = self.groups.snapshots()
            assert self.groups.replayed_snapshots() == live
            assert self.groups.compacted_snapshots() == live


@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 2**32))
def test_groups_are_what_the_model_says_and_what_a_load_makes(seed: int) -> None:
    History(random.Random(seed)).run()
