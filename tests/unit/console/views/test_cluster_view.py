# SPDX-License-Identifier: Apache-2.0
"""The view `cluster` of planted snapshots: nodes, tiles, changes and alarms."""

from __future__ import annotations

import json
from dataclasses import replace

from headrace.console.state.model import NodeState, Snapshot
from headrace.console.views.cluster.tiles import MOST_TILES, tiles_by_node
from tests.unit.console.views.planted import NOW, event, partition, planted, show, topic


def test_a_healthy_cluster_is_counted_and_drawn() -> None:
    document = show("cluster", planted())
    json.dumps(document)
    assert (document["live"], document["engine"], document["problem"], document["alarms"]) == (
        True, "headrace", None, [],
    )  # fmt: skip
    assert (document["partitions"], document["under_replicated"], document["without_leader"]) == (2, 0, 0)
    assert document["rate_in"] == 20.0
    one, two, three = document["nodes"]
    assert [each["leaders"] for each in (one, two, three)] == [1, 1, 0]
    assert [each["records_in"] for each in (one, two, three)] == [10.0, 10.0, None]
    assert (two["controller"], one["controller"]) == (True, False)
    assert [(each["partition"], each["role"]) for each in one["tiles"]] == [(0, "leader"), (1, "replica")]


def dead() -> Snapshot:
    before = planted()
    return replace(
        before,
        nodes={**before.nodes, 1: replace(before.nodes[1], up=False, since_ms=NOW - 5_000)},
        topics={"orders": topic("orders", partition(0, 2, isr=(2, 3)), partition(1, 2, isr=(2, 3)))},
        events=(
            event(NOW - 5_000, "node_down", node=1, details={"node": 1, "orderly": False}),
            event(
                NOW - 4_900,
                "leader",
                topic="orders",
                partition=0,
                details={
                    "leader": 2,
                    "leader_before": 1,
                    "took_ms": 120,
                    "isr": [2, 3],
                    "isr_before": [1, 2, 3],
                },
            ),
        ),
    )


def test_a_dead_nodes_tile_is_in_the_box_of_the_new_leader() -> None:
    document = show("cluster", dead())
    one, two, _ = document["nodes"]
    assert (one["state"], one["since"], one["out_of_sync"]) == ("down", NOW - 5_000, 2)
    assert [(each["role"], each["in_sync"]) for each in one["tiles"]] == [("replica", False)] * 2
    assert [(each["partition"], each["role"]) for each in two["tiles"]] == [(0, "leader"), (1, "leader")]


def test_changes_say_who_took_over_and_how_long_it_took_newest_first() -> None:
    leader, down = show("cluster", dead())["changes"]
    assert (leader["kind"], leader["from"], leader["to"], leader["took"]) == ("leader", 1, 2, 120)
    assert leader["text"] == "Node 2 leads orders 0 in place of node 1, 120 ms after that was found dead"
    assert (down["kind"], down["text"]) == ("node_down", "Node 1 is down")


def test_every_alarm_says_what_to_do_and_the_worst_is_first() -> None:
    lost = dead()
    topics = {"orders": topic("orders", partition(0, None, isr=()), partition(1, 2, isr=(2,)))}
    full = {**lost.nodes, 3: replace(lost.nodes[3], disk_problem="its disk is full: no space left")}
    alarms = show("cluster", replace(lost, topics=topics, nodes=full))["alarms"]
    assert [each["level"] for each in alarms] == ["error", "error", "error", "warning"]
    assert all(each["next"] for each in alarms)
    texts = " | ".join(each["text"] for each in alarms)
    for words in ("Node 1 (127.0.0.1:9091) is down", "disk is full", "without a leader", "orders 1"):
        assert words in texts
    assert alarms[0]["command"] == "headrace cluster start 1"


def test_a_node_that_nothing_is_known_of_is_drawn_as_down() -> None:
    before = planted()
    nodes = {**before.nodes, 4: NodeState(node_id=4, host="", port=0, up=False)}
    document = show("cluster", replace(before, nodes=nodes))
    assert document["nodes"][3]["state"] == "down"
    assert any(each["text"] == "Node 4 is down" for each in document["alarms"])


def test_of_many_partitions_those_with_problems_are_drawn_and_the_rest_counted() -> None:
    topics = {
        f"topic-{number:04}": topic(f"topic-{number:04}", *(partition(index) for index in range(10)))
        for number in range(1_000)
    }
    topics["topic-0999"] = topic("topic-0999", partition(0, 2, isr=(2,)))
    tiles = tiles_by_node(replace(planted(), topics=topics))
    shown = [tile for each in tiles.values() for tile in each.shown]
    assert MOST_TILES - 3 < len(shown) <= MOST_TILES
    assert sum(each.more for each in tiles.values()) + len(shown) == 3 * (999 * 10 + 1)
    assert {"topic-0999"} <= {tile["topic"] for tile in shown}
    by_partition: dict[tuple[str, int], int] = {}
    for tile in shown:
        key = tile["topic"], tile["partition"]
        by_partition[key] = by_partition.get(key, 0) + 1
    assert set(by_partition.values()) == {3}


def test_an_unreachable_cluster_shows_what_was_known_with_the_reason() -> None:
    document = show("cluster", replace(planted(), problem="no broker can be reached. Start one."))
    assert document["problem"] == "no broker can be reached. Start one."
    assert len(document["nodes"]) == 3


def test_nothing_known_is_an_empty_document_and_not_a_failure() -> None:
    document = show("cluster", Snapshot(at_ms=NOW))
    assert (document["nodes"], document["rate_in"], document["controller"]) == ([], None, None)


def test_changes_of_every_kind_and_malformed_ones_have_a_text() -> None:
    kinds = (
        "leader", "isr", "node_up", "node_down", "controller", "disk_full", "disk_room", "topic_created",
        "topic_deleted", "partitions_added", "unclean", "given_up", "offline", "online", "what is new",
    )  # fmt: skip
    snapshot = replace(planted(), events=tuple(event(NOW, kind, topic="<b>t</b>") for kind in kinds))
    assert all(each["text"] for each in show("cluster", snapshot)["changes"])
