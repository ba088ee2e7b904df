# SPDX-License-Identifier: Apache-2.0
"""Members of both protocols in one group, in arbitrary histories: upgrades, downgrades, deaths, fail-overs.

The harness checks after every step that each request is answered or held, that a KIP-848 group holds nothing
twice and that a replay of the encoded records equals the live state. Here: what consumers themselves own
never overlaps, and once faults end every partition has exactly one owner.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.machines.groups.migration import MigrationPolicy
from tests.harness.groups.consumer_groups import Consumer, topic_id
from tests.harness.groups.mixed_groups import ClassicConsumer, KipSide, MixedHarness

COUNTS = {"t": 3, "u": 2}
subscriptions = st.sampled_from([("t",), ("t", "u"), ("t", "u"), ("u",)])
some = st.integers(0, 5)


class MixedHistory(RuleBasedStateMachine):
    @initialize(
        cooperative=st.booleans(),
        policy=st.sampled_from([MigrationPolicy.BIDIRECTIONAL] * 3 + [MigrationPolicy.UPGRADE]),
        interval_ms=st.sampled_from([0, 1_000]),
        classic=st.integers(0, 3),
        rounds=st.integers(0, 8),
    )
    def begin(
        self, cooperative: bool, policy: MigrationPolicy, interval_ms: int, classic: int, rounds: int
    ) -> None:
        """Some classic consumers, more or less far on their way to a first assignment."""
        self.group = MixedHarness(COUNTS, policy=policy, assignment_interval_ms=interval_ms)
        self.cooperative = cooperative
        self.classic: list[ClassicConsumer] = []
        self.kip: list[Consumer] = []
        self.names = 0
        for _ in range(classic):
            self.a_classic_consumer_comes(("t", "u"))
        for _ in range(rounds):
            self.everyone_polls()

    @property
    def size(self) -> int:
        return len(self.classic) + len(self.kip)

    # --- who comes and goes ------------------------------------------------------------------------------

    @precondition(lambda self: self.size < 5)
    @rule(topics=subscriptions)
    def a_classic_consumer_comes(self, topics: tuple[str, ...]) -> None:
        self.classic.append(ClassicConsumer(self.group, *topics, cooperative=self.cooperative))

    @precondition(lambda self: self.size < 5)
    @rule(topics=subscriptions)
    def a_kip_848_consumer_comes(self, topics: tuple[str, ...]) -> None:
        self.names += 1
        self.kip.append(Consumer(KipSide(self.group), f"k{self.names}", *topics))
        self.kip[-1].beat()

    @precondition(lambda self: self.classic)
    @rule(number=some, dies=st.booleans())
    def a_classic_consumer_goes(self, number: int, dies: bool) -> None:
        consumer = self.classic.pop(number % len(self.classic))
        if not dies and consumer.instance_id is None:
            consumer.leave()

    @precondition(lambda self: self.kip)
    @rule(number=some, dies=st.booleans())
    def a_kip_848_consumer_goes(self, number: int, dies: bool) -> None:
        consumer = self.kip.pop(number % len(self.kip))
        if not dies:
            consumer.leave()

    @precondition(lambda self: any(consumer.instance_id is None for consumer in self.classic))
    @rule(number=some)
    def a_consumer_is_restarted_with_the_new_protocol(self, number: int) -> None:
        """What an online upgrade is: leave with the old one, come with the new one."""
        dynamic = [consumer for consumer in self.classic if consumer.instance_id is None]
        consumer = dynamic[number % len(dynamic)]
        self.classic.remove(consumer)
        consumer.leave()
        self.a_kip_848_consumer_comes(consumer.topics)

    @precondition(lambda self: self.size < 5)
    @rule(topics=subscriptions, instance_id=st.sampled_from(["i1", "i2"]), speaks_kip=st.booleans())
    def a_static_consumer_comes(self, topics: tuple[str, ...], instance_id: str, speaks_kip: bool) -> None:
        """Or comes back, with whichever protocol: the one before it has died, or said it would be back."""
        for before in [c for c in self.classic if c.instance_id == instance_id]:
            self.classic.remove(before)
        for leaving in [c for c in self.kip if c.instance_id == instance_id]:
            self.kip.remove(leaving)
            leaving.leave(for_good=False)
        self.names += 1
        if speaks_kip:
            consumer = Consumer(KipSide(self.group), f"k{self.names}", *topics, instance_id=instance_id)
            self.kip.append(consumer)
            consumer.beat()
        else:
            self.classic.append(
                ClassicConsumer(self.group, *topics, cooperative=self.cooperative, instance_id=instance_id)
            )

    # --- what they do ------------------------------------------------------------------------------------

    @precondition(lambda self: self.classic)
    @rule(number=some, times=st.integers(1, 4))
    def a_classic_consumer_polls(self, number: int, times: int) -> None:
        for _ in range(times):
            self.classic[number % len(self.classic)].poll()

    @precondition(lambda self: self.kip)
    @rule(number=some, lose_reply=st.booleans())
    def a_kip_848_consumer_polls(self, number: int, lose_reply: bool) -> None:
        self.kip[number % len(self.kip)].beat(lose_reply=lose_reply)

    @precondition(lambda self: self.kip)
    @rule(number=some)
    def a_kip_848_consumer_gives_up_what_it_must(self, number: int) -> None:
        self.kip[number % len(self.kip)].process()

    @rule()
    def everyone_polls(self) -> None:
        for classic in self.classic:
            classic.poll()
        for consumer in self.kip:
            consumer.beat_and_process()

    @rule(rounds=st.integers(2, 12))
    def everyone_gets_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.everyone_polls()
            self.nothing_has_two_owners()

    # --- what happens around them ------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([500, 2_000, 5_000]))
    def time_passes(self, milliseconds: int) -> None:
        """Less than a session between two rounds: whoever lives is heard of, for one poll in two asks."""
        self.group.advance(milliseconds)
        for _ in range(3):
            self.everyone_polls()

    @rule(compacted=st.booleans(), tombstones=st.booleans())
    def another_coordinator_takes_over(self, compacted: bool, tombstones: bool) -> None:
        self.group.fail_over(compacted=compacted, tombstones=tombstones)

    @precondition(lambda self: self.group.counts["t"] < 5)
    @rule()
    def a_topic_grows(self) -> None:
        self.group.set_topics({**self.group.counts, "t": self.group.counts["t"] + 1})

    # --- what must hold ----------------------------------------------------------------------------------

    def owned(self) -> list[tuple[str, int]]:
        names = {topic_id(name): name for name in COUNTS}
        of_kip = [(names[t], p) for consumer in self.kip for t, ps in consumer.owned.items() for p in ps]
        return [*of_kip, *(partition for consumer in self.classic for partition in consumer.partitions)]

    @invariant()
    def nothing_has_two_owners(self) -> None:
        if hasattr(self, "group"):
            owned = self.owned()
            assert len(owned) == len(set(owned)), f"owned twice: {sorted(owned)}"

    def teardown(self) -> None:
        """Faults end: dead members time out, the others reconcile, every partition has exactly one owner."""
        if not hasattr(self, "group"):
            return
        for _ in range(60):
            self.time_passes(2_000)
            self.nothing_has_two_owners()
        wanted = {
            (topic, partition)
            for topic in {
                t for each in (self.classic, self.kip) for consumer in each for t in consumer.topics
            }
            for partition in range(self.group.counts[topic])
        }
        assert sorted(self.owned()) == sorted(wanted)
        if self.size:
            assert self.group.group.describe().state == "Stable"
            expected = "Consumer" if self.kip else "Classic"
            assert self.group.protocol in (expected, "Consumer")


MixedHistory.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMixedHistory = MixedHistory.TestCase


@pytest.mark.parametrize("seed", range(40))
def test_a_busy_group_keeps_its_invariants(seed: int) -> None:
    """Long histories by chance, where most of what happens matters: more upgrades than a search comes by."""
    chance, history = random.Random(seed), MixedHistory()
    history.begin(
        cooperative=chance.random() < 0.5,
        policy=chance.choice([MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE]),
        interval_ms=chance.choice([0, 1_000]),
        classic=chance.randrange(4),
        rounds=chance.randrange(9),
    )
    for _ in range(60):
        _something_happens(history, chance)
        history.nothing_has_two_owners()
    history.teardown()


def _something_happens(history: MixedHistory, chance: random.Random) -> None:
    topics, number = chance.choice([("t",), ("t", "u"), ("u",)]), chance.randrange(6)
    actions: dict[Callable[[], None], float] = {
        history.everyone_polls: 6,
        lambda: history.everyone_gets_on(chance.randrange(2, 12)): 4,
        lambda: history.time_passes(chance.choice([500, 2_000, 5_000])): 4,
        lambda: history.another_coordinator_takes_over(chance.random() < 0.5, chance.random() < 0.5): 1,
    }
    if history.size < 5:
        actions[lambda: history.a_classic_consumer_comes(topics)] = 4
        actions[lambda: history.a_kip_848_consumer_comes(topics)] = 4
        instance_id, speaks_kip = chance.choice(["i1", "i2"]), chance.random() < 0.5
        actions[lambda: history.a_static_consumer_comes(topics, instance_id, speaks_kip)] = 3
    if history.classic:
        actions[lambda: history.a_classic_consumer_goes(number, chance.random() < 0.4)] = 2
        actions[lambda: history.a_classic_consumer_polls(number, chance.randrange(1, 5))] = 6
    if history.kip:
        actions[lambda: history.a_kip_848_consumer_goes(number, chance.random() < 0.3)] = 4
        actions[lambda: history.a_kip_848_consumer_polls(number, chance.random() < 0.2)] = 6
        actions[lambda: history.a_kip_848_consumer_gives_up_what_it_must(number)] = 4
    if history.group.counts["t"] < 5:
        actions[history.a_topic_grows] = 0.5
    (happens,) = chance.choices(list(actions), list(actions.values()))
    happens()
