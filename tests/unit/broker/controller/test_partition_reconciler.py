# SPDX-License-Identifier: Apache-2.0
"""What the controller makes of a topic when nodes come, go and leave (R5, R19, R20, R22) and of moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from headrace.broker.controller.partition_reconciler import PartitionReconciler, TopicRules, awaits_recovery
from headrace.broker.metrics import ControllerCounters
from headrace.broker.reporting.cluster_families import health
from headrace.machines.replication.election import LogEnd
from headrace.types import NO_NODE, ClusterView, Move, Node, PartitionState, Topic

RULES = TopicRules(min_insync=None)
STATE = PartitionState(replicas=(0, 1, 2), leader=0, leader_epoch=4, isr=(0, 1, 2), partition_epoch=7)


def node(
    node_id: int, *, epoch: int = 1, lossless: bool = True, leaving: bool = False, new_disk: bool = False
) -> Node:
    return Node(
        node_id=node_id, epoch=epoch, host_id=f"h{node_id}", hostname="h", endpoints=(),
        lossless=lossless, leaving=leaving, new_disk=new_disk,
    )  # fmt: skip


def reconciler(live: Iterable[Node], joining: Iterable[Node] = ()) -> PartitionReconciler:
    return PartitionReconciler.of(
        ClusterView(
            version=1,
            cluster_id="c",
            controller_epoch=9,
            nodes={each.node_id: each for each in live},
            joining={each.node_id: each for each in joining},
        )
    )


def topic(*states: PartitionState, **fields: object) -> Topic:
    return replace(Topic(name="t", topic_id=UUID(int=1), partitions=states), **fields)  # type: ignore[arg-type]


def reconciled(given: PartitionReconciler, before: Topic, rules: TopicRules = RULES) -> Topic:
    return given.reconciled(before, lambda _: rules, Counter(s.leader for s in before.partitions))[0]


def test_a_topic_in_order_stays_the_same_object_and_its_rules_are_not_looked_up() -> None:
    def rules_of(_: Topic) -> TopicRules:
        raise AssertionError("nothing to decide")

    before = topic(STATE)
    after, changes = reconciler([node(0), node(1), node(2)]).reconciled(before, rules_of, Counter())
    assert after is before
    assert changes == []


def test_the_drawing_the_leader_dies_and_the_node_that_leads_least_takes_over() -> None:
    states = [
        PartitionState(replicas=(first, *others), leader=first, leader_epoch=0, isr=(first, *others))
        for first, others in ((0, (1, 2, 3, 4)), (1, (2, 3, 4, 0)))
    ]
    after = reconciled(reconciler([node(n) for n in (1, 2, 3, 4)]), topic(*states))
    assert [state.leader for state in after.partitions] == [2, 1]
    assert after.partitions[0].isr == (1, 2, 3, 4)
    assert after.partitions[1].isr == (1, 2, 3, 4)
    assert [state.leader_epoch for state in after.partitions] == [1, 1]
    assert all(state.controller_epoch == 9 for state in after.partitions)


def test_several_reasons_at_once_are_one_step() -> None:
    """A leader that returned before its death was noticed, while another is dead: epochs rise once (R5)."""
    after = reconciled(reconciler([node(1)], joining=[node(0, epoch=5)]), topic(STATE)).partitions[0]
    assert after.leader == 1
    assert after.isr == (1,)
    assert after.elr == (0, 2)
    assert (after.leader_epoch, after.partition_epoch) == (5, 8)


def test_a_node_that_returns_from_a_power_cut_is_in_no_isr() -> None:
    """R20, R21: unless every record was on disk before it was acknowledged."""
    returning = [node(0, epoch=5, lossless=False)]
    lost = reconciled(reconciler([node(1)], joining=returning), topic(STATE)).partitions[0]
    assert lost.isr == (1,)
    assert lost.elr == (2,)
    assert lost.last_known_elr == (0,)
    flushed = TopicRules(min_insync=None, flushes_before_ack=True)
    kept = reconciled(reconciler([node(1)], joining=returning), topic(STATE), flushed).partitions[0]
    assert kept.elr == (0, 2)


def test_a_node_whose_disk_was_replaced_is_neither_eligible_nor_asked_for_its_log_end() -> None:
    """R20: whatever the flush policy. Once the others' logs were known to be incomplete, too."""
    flushed = TopicRules(min_insync=None, flushes_before_ack=True)
    returning = [node(0, epoch=5, lossless=False, new_disk=True)]
    last = replace(STATE, leader=NO_NODE, isr=(0,), elr=(2,))
    for rules in (RULES, flushed):
        after = reconciled(reconciler([node(1)], joining=returning), topic(last), rules).partitions[0]
        assert (after.leader, after.isr, after.elr, after.last_known_elr) == (NO_NODE, (), (2,), ())
    waiting = replace(STATE, leader=NO_NODE, isr=(), last_known_elr=(0, 2))
    after = reconciled(reconciler([node(1)], joining=returning), topic(waiting)).partitions[0]
    assert after.last_known_elr == (2,)


def damaged_in(node_id: int, epoch: int) -> Node:
    """It fetched for the log in that leader epoch before it found the damage."""
    key = UUID(int=1), 0
    return replace(node(node_id), offline=frozenset({key}), offline_epochs=frozenset({(*key, epoch)}))


def test_a_damaged_log_out_of_sync_gets_a_later_leader_epoch_to_begin_anew_in() -> None:
    """R27: once, and under the same leader; a node of an earlier release does not say in which it fetched."""
    before = topic(replace(STATE, isr=(0, 1)))
    given = reconciler([node(0), node(1), damaged_in(2, 4)])
    after = reconciled(given, before)
    state = after.partitions[0]
    assert (state.leader, state.leader_epoch, state.isr, state.partition_epoch) == (0, 5, (0, 1), 8)
    assert reconciled(given, after) is after
    earlier = replace(damaged_in(2, 4), offline_epochs=frozenset())
    assert reconciled(reconciler([node(0), node(1), earlier]), before) is before


def test_a_damaged_log_that_leaves_the_isr_raises_the_leader_epoch_once() -> None:
    after = reconciled(reconciler([node(0), node(1), damaged_in(2, 4)]), topic(STATE)).partitions[0]
    assert (after.leader, after.leader_epoch, after.isr) == (0, 5, (0, 1))


def test_without_another_leader_a_damaged_log_raises_no_epoch() -> None:
    dead = topic(replace(STATE, leader=NO_NODE, isr=(), last_known_elr=(0,)))
    assert reconciled(reconciler([node(1), damaged_in(2, 4)]), dead) is dead
    alone = topic(PartitionState(replicas=(2,), leader=2, leader_epoch=4, isr=(2,)))
    assert reconciled(reconciler([damaged_in(2, 4)]), alone) is alone


def test_the_only_replica_may_lead_again_with_an_empty_disk() -> None:
    returning = [node(0, epoch=5, lossless=False, new_disk=True)]
    dead = topic(PartitionState(replicas=(0,), leader=NO_NODE, leader_epoch=3, isr=(0,)))
    assert awaits_recovery(reconciled(reconciler([], joining=returning), dead).partitions[0])


def test_a_replica_that_is_alone_goes_on_as_it_was() -> None:
    """One node restarts without a write for each of its partitions."""
    alone = topic(PartitionState(replicas=(0,), leader=0, leader_epoch=3, isr=(0,)))
    for lossless in (True, False):
        assert reconciled(reconciler([], joining=[node(0, epoch=5, lossless=lossless)]), alone) is alone


def test_a_whole_cluster_that_comes_back_one_by_one() -> None:
    first = reconciled(reconciler([], joining=[node(1, epoch=5)]), topic(STATE))
    state = first.partitions[0]
    assert state.leader == 1
    assert state.isr == (1,)
    assert state.elr == (0, 2)
    second = reconciled(reconciler([node(1, epoch=5)], joining=[node(0, epoch=6)]), first)
    assert second is first  # it joins the in-sync replicas by fetching


def test_nobody_left_then_the_longest_log() -> None:
    """R19b: everyone was cut off power; all that were in sync are asked, and the largest end leads."""
    lossy = [node(n, epoch=5, lossless=False) for n in (0, 1, 2)]
    state = reconciled(reconciler([], joining=lossy), topic(STATE)).partitions[0]
    assert state.leader == NO_NODE
    assert awaits_recovery(state)
    assert state.last_known_elr == (0, 1, 2)
    back = reconciler([node(n, epoch=5) for n in (0, 1, 2)])
    assert back.recovered(state, {0: LogEnd(3, 9), 1: LogEnd(4, 5)}) is None
    led = back.recovered(state, {0: LogEnd(3, 9), 1: LogEnd(4, 5), 2: LogEnd(4, 4)})
    assert led is not None
    assert led.leader == 1
    assert led.isr == (1,)
    assert led.controller_epoch == 9


def test_a_leaving_node_keeps_leading_without_a_successor() -> None:
    leaving = node(0, leaving=True)
    after = reconciled(reconciler([leaving, node(1), node(2)]), topic(STATE)).partitions[0]
    assert after.leader in (1, 2)
    assert after.isr == (1, 2)
    sole = topic(PartitionState(replicas=(0, 1), leader=0, leader_epoch=0, isr=(0,)))
    assert reconciled(reconciler([leaving, node(1)]), sole) is sole


def test_eligible_replicas_are_cleared_when_enough_are_in_sync() -> None:
    """A minimum that was lowered: the high watermark moves on past what they hold."""
    state = PartitionState(replicas=(0, 1, 2), leader=0, leader_epoch=1, isr=(0,), elr=(1,))
    nodes = reconciler([node(0), node(2)])
    assert reconciled(nodes, topic(state)).partitions[0].elr == (1,)
    assert reconciled(nodes, topic(state), TopicRules(min_insync=1)).partitions[0].elr == ()


def test_a_move_ends_when_its_new_replicas_are_in_sync() -> None:
    move = Move(original=(0, 1), target=(2, 1))
    waiting = PartitionState(replicas=(2, 1, 0), leader=0, leader_epoch=1, isr=(0, 1))
    nodes = reconciler([node(n) for n in (0, 1, 2)])
    before = topic(waiting, moves={0: move})
    assert reconciled(nodes, before) is before
    caught_up = topic(replace(waiting, isr=(2, 1, 0)), moves={0: move})
    after = reconciled(nodes, caught_up)
    assert after.moves == {}
    assert after.partitions[0].replicas == (2, 1)
    assert after.partitions[0].leader in (1, 2)
    assert after.partitions[0].isr == (2, 1)


def test_the_metrics_count_elections_isr_changes_and_problems() -> None:
    figures = ControllerCounters()
    after = replace(STATE, leader=1, isr=(1, 2))
    figures.count(STATE, after, lossy=False)
    figures.count(after, replace(after, leader=NO_NODE, isr=()), lossy=False)
    figures.count(after, replace(after, leader=0, isr=(0,)), lossy=True)
    assert (figures.elections, figures.unclean_elections) == (2, 1)
    assert (figures.isr_shrinks, figures.isr_expands) == (3, 1)
    move = Move(original=(0,), target=(1,))
    view = ClusterView(
        version=1,
        cluster_id="c",
        nodes={n: replace(node(n), host_id="one") for n in (0, 1, 2)},
        topics={"t": topic(STATE, replace(STATE, leader=NO_NODE, isr=()), moves={0: move})},
    )
    assert tuple(health(view)) == (1, 1, 1, 1)
