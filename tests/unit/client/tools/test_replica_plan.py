# SPDX-License-Identifier: Apache-2.0
"""Where replicas go: what is there stays, hosts are spread over, nobody is given more than others."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.errors import ClientError
from headrace.client.tools.replica_plan import balanced, with_replication_factor, without_node

ONE_EACH = {0: "a", 1: "b", 2: "c"}


def test_more_replicas_are_added_behind_those_there_are_and_evenly():
    partitions = {("t", index): (index % 2,) for index in range(6)}
    load = {node: sum(node in each for each in partitions.values()) for node in ONE_EACH}
    targets = with_replication_factor(partitions, 2, ONE_EACH, load)
    assert all(target[0] == partitions[name][0] for name, target in targets.items())
    held = [sum(node in target for target in targets.values()) for node in ONE_EACH]
    assert sorted(held) == [4, 4, 4]


def test_a_host_without_a_replica_comes_before_a_node_with_little_to_do():
    hosts = {0: "a", 1: "a", 2: "b"}
    targets = with_replication_factor({("t", 0): (0,)}, 2, hosts, {0: 1, 1: 0, 2: 9})
    assert targets == {("t", 0): (0, 2)}


def test_fewer_replicas_drop_the_last_and_what_is_right_is_left_out():
    partitions = {("t", 0): (2, 0, 1), ("t", 1): (0, 1)}
    assert with_replication_factor(partitions, 2, ONE_EACH, {}) == {("t", 0): (2, 0)}


def test_more_replicas_than_nodes_are_refused():
    with pytest.raises(ClientError, match="replication factor 4 needs as many nodes; the cluster has 3"):
        with_replication_factor({("t", 0): (0,)}, 4, ONE_EACH, {})


def test_a_leaving_node_is_replaced_in_its_place():
    hosts = {**ONE_EACH, 3: "d"}
    partitions = {("t", 0): (1, 0), ("t", 1): (0, 1), ("t", 2): (2, 3), ("u", 0): (1,)}
    targets = without_node(partitions, 1, hosts)
    assert targets.keys() == {("t", 0), ("t", 1), ("u", 0)}
    assert targets["t", 0][1] == 0
    assert targets["t", 1][0] == 0
    assert all(1 not in target and len(set(target)) == len(target) for target in targets.values())


def test_a_node_that_cannot_be_replaced_does_not_leave():
    with pytest.raises(ClientError) as caught:
        without_node({("t", 0): (0, 1, 2)}, 2, ONE_EACH)
    assert "topic 't' has 3 replicas, and without node 2 there are 2 nodes" in str(caught.value)
    assert "--replication-factor 2" in str(caught.value.next_step)


def test_a_new_node_gets_its_share_of_each_topic():
    partitions = {(topic, index): (1,) for topic in ("a", "b") for index in range(4)}
    targets = balanced(partitions, [1, 2])
    assert Counter(topic for topic, _ in targets) == {"a": 2, "b": 2}
    assert set(targets.values()) == {(2,)}


def test_topics_of_one_partition_are_spread_over_the_nodes():
    assert len(balanced({(f"t{index}", 0): (1,) for index in range(6)}, [1, 2, 3])) == 4


def test_a_follower_that_becomes_leader_swaps_its_place():
    assert balanced({("t", index): (1, 2) for index in range(2)}, [1, 2]) == {("t", 1): (2, 1)}


def test_what_is_even_stays_and_nodes_that_are_down_keep_what_they_lead():
    assert balanced({("t", 0): (1,), ("t", 1): (2,), ("t", 2): (9,), ("t", 3): (9,)}, [1, 2]) == {}
    assert balanced({("t", 0): (1,)}, []) == {}


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("abcde"), st.integers(0, 9)),
        st.permutations(range(4)).map(lambda all: (*all[:2],)),
    ),
    st.integers(1, 5),
)
def test_no_node_leads_two_more_than_another_neither_of_a_topic_nor_in_all(partitions, count):
    partitions = {name: tuple(node % count for node in nodes) for name, nodes in partitions.items()}
    partitions = {name: nodes if len(set(nodes)) == 2 else nodes[:1] for name, nodes in partitions.items()}
    after = {**partitions, **balanced(partitions, range(count))}
    assert all(len(set(nodes)) == len(partitions[name]) for name, nodes in after.items())
    for topic in (None, *"abcde"):
        led = Counter(nodes[0] for name, nodes in after.items() if topic in (None, name[0]))
        assert max(led[node] for node in range(count)) - min(led[node] for node in range(count)) < 2
