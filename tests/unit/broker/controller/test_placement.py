# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.controller.placement import Load, one_rack_of_one_host, place_replicas, share_one_host
from headrace.types import Node


def nodes(*racks: str | None, hosts: tuple[str, ...] | None = None) -> list[Node]:
    return [
        Node(
            node_id=n,
            epoch=1,
            host_id=hosts[n] if hosts else f"host-{n}",
            hostname="h",
            endpoints=(),
            rack=rack,
        )
        for n, rack in enumerate(racks)
    ]


@pytest.mark.row("D3")
def test_one_node_holds_everything() -> None:
    assert place_replicas(nodes(None), 3, 1, Load()) == [(0,), (0,), (0,)]


def test_the_drawn_cluster_five_nodes_two_partitions_five_replicas() -> None:
    placed = place_replicas(nodes(*[None] * 5), 2, 5, Load())
    assert [replicas[0] for replicas in placed] == [0, 1]
    assert all(sorted(replicas) == [0, 1, 2, 3, 4] for replicas in placed)


def test_more_replicas_than_nodes_do_not_fit() -> None:
    with pytest.raises(ValueError, match="3 replicas do not fit on 2 nodes"):
        place_replicas(nodes(None, None), 1, 3, Load())


def test_new_partitions_go_where_the_load_is_least() -> None:
    load = Load(leaders=Counter({0: 5, 1: 5}), replicas=Counter({0: 5, 1: 5}))
    assert [replicas[0] for replicas in place_replicas(nodes(None, None, None), 4, 1, load)] == [2] * 4


def test_one_host_gets_a_second_replica_only_when_every_other_host_has_one() -> None:
    on_hosts = nodes(None, None, None, None, hosts=("a", "a", "b", "b"))
    host = {node.node_id: node.host_id for node in on_hosts}
    for replicas in place_replicas(on_hosts, 20, 2, Load()):
        assert len({host[node] for node in replicas}) == 2
    for replicas in place_replicas(on_hosts, 20, 3, Load()):
        assert len({host[node] for node in replicas}) == 2


def test_a_named_rack_counts_instead_of_the_host() -> None:
    on_racks = nodes("east", "east", "west", hosts=("a", "b", "c"))
    for replicas in place_replicas(on_racks, 10, 2, Load()):
        assert 2 in replicas


@given(
    racks=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=7),
    partition_count=st.integers(1, 40),
    data=st.data(),
)
def test_replicas_are_distinct_spread_and_balanced(
    racks: list[str], partition_count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    placed = place_replicas(nodes(*racks), partition_count, factor, Load())
    assert len(placed) == partition_count
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({racks[node] for node in replicas}) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[node] for node in range(len(racks))) <= 1
    assert placed == place_replicas(nodes(*racks), partition_count, factor, Load())


def test_within_a_rack_no_host_gets_a_second_replica_while_others_have_room() -> None:
    on_racks = nodes("east", "east", "east", "west", hosts=("a", "a", "b", "c"))
    for replicas in place_replicas(on_racks, 20, 3, Load()):
        assert 2 in replicas
        assert 3 in replicas


@pytest.mark.row("D8")
@given(
    hosts=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12),
    partition_count=st.integers(1, 20),
    factor=st.integers(1, 5),
)
def test_replicas_take_as_many_hosts_as_there_are(
    hosts: list[str], partition_count: int, factor: int
) -> None:
    factor = min(factor, len(hosts))
    for replicas in place_replicas(
        nodes(*[None] * len(hosts), hosts=tuple(hosts)), partition_count, factor, Load()
    ):
        assert len(set(replicas)) == factor
        assert len({hosts[node] for node in replicas}) == min(factor, len(set(hosts)))


def test_in_sync_replicas_that_share_one_host_are_named() -> None:
    known = {node.node_id: node for node in nodes(None, None, None, hosts=("a", "a", "b"))}
    assert share_one_host((0, 1), known)
    assert share_one_host((0, 1, 9), known)
    assert not share_one_host((0, 2), known)
    assert not share_one_host((0,), known)


def test_nodes_of_one_host_fail_together_only_when_they_say_so_by_a_rack() -> None:
    on_one_host = ("a", "a")
    assert one_rack_of_one_host(nodes("r", "r", hosts=on_one_host))
    assert not one_rack_of_one_host(nodes(None, None, hosts=on_one_host))
    assert not one_rack_of_one_host(nodes("r", "s", hosts=on_one_host))
    assert not one_rack_of_one_host(nodes("r", "r", hosts=("a", "b")))
    assert not one_rack_of_one_host([])
