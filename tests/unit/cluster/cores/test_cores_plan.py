# SPDX-License-Identifier: Apache-2.0
"""Ids, ports and data directories of cores, and what a folder refuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.cluster.cores.existing import Existing, look_at
from headrace.cluster.cores.plan import CoreLayout, core_settings, lay_out
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterError, ClusterPlan, Member, plan_of
from headrace.config import load_config

OUTSIDE_AND_INSIDE = {
    "listeners": "OUTSIDE://0.0.0.0:9092,INSIDE://127.0.0.1:29092",
    "advertised.listeners": "OUTSIDE://broker.example:19092,INSIDE://127.0.0.1:29092",
    "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
    "listeners.allow.anonymous": "true",
}

TOO_CLOSE = {**OUTSIDE_AND_INSIDE, "listeners": "OUTSIDE://0.0.0.0:9092,INSIDE://127.0.0.1:9093"}


def free_ports(count: int) -> list[int]:
    return list(range(50_000, 50_000 + count))


def laid_out(
    count: int = 2, settings: Mapping[str, str] | None = None, existing: Existing | None = None
) -> CoreLayout:
    config = load_config(None, {"log.dirs": "/data", **(settings or {})}, None)
    return lay_out(config, count, existing or Existing(), free_ports)


def plan_with(*node_ids: int, next_id: int = 0) -> ClusterPlan:
    members = tuple(Member(node_id=node_id, port=1) for node_id in node_ids)
    return ClusterPlan(
        engine="headrace", coordination="", cluster_id="c", members=members, next_id=next_id, cores=True
    )


def test_cores_have_consecutive_ids_and_ports_and_the_store_is_in_the_folder() -> None:
    plan = laid_out(3).plan
    assert [(each.node_id, each.address) for each in plan.members] == [
        (1, "127.0.0.1:9092"),
        (2, "127.0.0.1:9093"),
        (3, "127.0.0.1:9094"),
    ]
    assert plan.coordination == "sqlite:/data/coordination"
    assert plan.cores
    assert plan_of(plan.document()) == plan


def test_a_given_node_id_is_that_of_the_first_core() -> None:
    plan = laid_out(settings={"node.id": "7"}).plan
    assert [each.node_id for each in plan.members] == [7, 8]
    assert plan.next_id == 9


def test_each_listener_takes_a_port_for_each_core_and_advertises_as_far_behind() -> None:
    layout = laid_out(settings=OUTSIDE_AND_INSIDE)
    found = [
        [(each.name, each.port, each.advertised_host, each.advertised_port) for each in own]
        for own in layout.listeners
    ]
    assert found == [
        [("OUTSIDE", 9092, "broker.example", 19092), ("INSIDE", 29092, "127.0.0.1", 29092)],
        [("OUTSIDE", 9093, "broker.example", 19093), ("INSIDE", 29093, "127.0.0.1", 29093)],
    ]
    assert layout.plan.bootstrap == "broker.example:19092,broker.example:19093"


def test_port_0_gives_each_core_a_free_port() -> None:
    layout = laid_out(settings={"listeners": "PLAINTEXT://127.0.0.1:0"})
    assert layout.plan.bootstrap == "127.0.0.1:50000,127.0.0.1:50001"


def test_each_core_is_started_with_its_listeners_and_the_host_as_its_rack() -> None:
    config = load_config(None, {"log.dirs": "/data", **OUTSIDE_AND_INSIDE}, None)
    layout = lay_out(config, 2, Existing(), free_ports)
    assert core_settings(config, layout.listeners[1], "h1") == {
        "listeners": "OUTSIDE://0.0.0.0:9093,INSIDE://127.0.0.1:29093",
        "advertised.listeners": "OUTSIDE://broker.example:19093,INSIDE://127.0.0.1:29093",
        "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
        "broker.rack": "h1",
        "group.initial.rebalance.delay.ms": "0",
    }


def test_a_rack_and_a_delay_that_are_set_stay() -> None:
    given = {"broker.rack": "a", "group.initial.rebalance.delay.ms": "100"}
    config = load_config(None, {"log.dirs": "/data", **given}, None)
    layout = lay_out(config, 2, Existing(), free_ports)
    assert not given.keys() & core_settings(config, layout.listeners[0], "h1").keys()


def test_a_single_node_becomes_core_0_where_it_is() -> None:
    plan = laid_out(existing=Existing(single_node_id=5)).plan
    assert [(each.node_id, each.data) for each in plan.members] == [(5, "."), (6, None)]


def test_more_cores_are_added_with_ids_that_no_core_had() -> None:
    plan = laid_out(3, existing=Existing(plan=plan_with(1, 3, next_id=5))).plan
    assert [each.node_id for each in plan.members] == [1, 3, 5]
    assert [each.port for each in plan.members] == [9092, 9093, 9094]


def test_fewer_cores_are_refused_with_what_they_hold_and_the_commands_that_move_it() -> None:
    held = {2: ("orders-1",), 3: ("orders-0", "orders-2")}
    existing = Existing(plan=plan_with(1, 2, 3), partitions=held)
    with pytest.raises(ClusterError) as refused:
        laid_out(1, existing=existing)
    assert refused.value.what == (
        "/data has 3 cores, not 1: core 1 (node 2) holds 1 partition (orders-1); "
        "core 2 (node 3) holds 2 partitions (orders-0, orders-2)"
    )
    assert refused.value.next_step == (
        "start it with --cores 3, move them while it runs: headrace cluster remove 3 --dir /data; "
        "headrace cluster remove 2 --dir /data; then start it with --cores 1"
    )


def test_a_core_that_holds_nothing_is_left_out() -> None:
    plan = laid_out(1, existing=Existing(plan=plan_with(1, 2), partitions={1: ("orders-0",)})).plan
    assert [each.node_id for each in plan.members] == [1]
    assert plan.next_id == 2


@pytest.mark.parametrize(
    ("settings", "existing", "message"),
    [
        ({"headrace.coordination": "zk://h1:2181/headrace"}, Existing(), "--cores keeps the store"),
        ({"headrace.coordination": "sqlite:/elsewhere"}, Existing(), "--cores keeps the store"),
        ({"node.id": "4"}, Existing(single_node_id=1), "the first core of /data is node 1"),
        ({"node.id": "4"}, Existing(plan=plan_with(1, 2)), "the first core of /data is node 1"),
        ({"listeners": "PLAINTEXT://127.0.0.1:65535"}, Existing(), "65535 is the last"),
        ({"headrace.metrics.port": "9093"}, Existing(), "the metrics endpoint has port 9093"),
        (TOO_CLOSE, Existing(), "INSIDE takes the ports 9093 to 9094, .* listener OUTSIDE has port 9093"),
    ],
)
def test_what_does_not_go_together_is_refused(
    settings: dict[str, str], existing: Existing, message: str
) -> None:
    with pytest.raises(ClusterError, match=message):
        laid_out(settings=settings, existing=existing)


def test_the_folder_of_a_cluster_is_refused_with_the_command_that_starts_it() -> None:
    cluster = ClusterPlan(
        engine="headrace", coordination="", cluster_id="c", members=(Member(node_id=0, port=1),)
    )
    with pytest.raises(ClusterError, match="headrace cluster up --dir /data"):
        laid_out(existing=Existing(plan=cluster))


def test_a_folder_tells_of_a_single_node_of_nothing_and_of_each_cores_partitions(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    assert look_at(folder) == Existing()
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=5\ncluster.id=x\n")
    assert look_at(folder) == Existing(single_node_id=5)
    for name in ("orders-0", "orders-1.abc-delete", "coordination", "cores/6/data/orders-1", "node-1"):
        (tmp_path / name).mkdir(parents=True)
    plan = laid_out(existing=Existing(single_node_id=5)).plan
    folder.create(plan)
    found = look_at(folder)
    assert found.plan == plan
    assert found.partitions == {5: ("node-1", "orders-0"), 6: ("orders-1",)}
