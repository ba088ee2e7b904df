# SPDX-License-Identifier: Apache-2.0
"""Scene: ZooKeeper holds what nodes share. Three nodes use it; the controller dies and another takes over."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from headrace.client.tools.admin import Admin
from headrace.cluster.engines.zookeeper import start_zookeeper
from headrace.demo.nodes import DemoCluster, running_cluster
from headrace.demo.requirements import SIGNALS, ZOOKEEPER
from headrace.demo.scene import Scene, Stage

TOPIC = "ledger"
ENTRIES, SESSIONS = "/headrace/entries", "/headrace/sessions"
MEANINGS = {
    "admissions": "a node's right to join",
    "cluster": "the cluster's id",
    "controller": "the node that elects leaders",
    "controller_epoch": "how often it changed",
    "nodes": "a node's addresses",
    "topics": "partitions, leaders, in-sync replicas",
}
"""What the entries hold, by the first part of their names."""
DRAWING = """\
node 0 ──┐
node 1 ──┼──▶ ZooKeeper: which nodes live, who is controller,
node 2 ──┘               topics, leaders, in-sync replicas, settings"""


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say("Several hosts agree through ZooKeeper; it stores metadata, never records:")
    screen.show(DRAWING)
    with start_zookeeper(stage.folder / "zookeeper") as server:
        url = f"zk://{server.address}/headrace"
        screen.show(f"$ headrace cluster up --nodes 3 --coordination {url}")
        with running_cluster(stage, nodes=3, coordination=url) as cluster:
            screen.run(f"headrace topics create {TOPIC} --partitions 3 --replication-factor 3")
            _show_tree(stage, server.address)
            _elect(stage, cluster)


def _show_tree(stage: Stage, address: str) -> None:
    from kazoo.client import KazooClient

    client: Any = KazooClient(hosts=address)
    client.start(timeout=20)
    try:
        entries = sorted(client.get_children(ENTRIES))
        sessions = len(client.get_children(SESSIONS))
    finally:
        client.stop()
        client.close()
    lines = [f"{ENTRIES}/{entry:<20} {_meaning(entry)}".rstrip() for entry in entries]
    lines.append(f"{SESSIONS} ({sessions})".ljust(len(ENTRIES) + 22) + "one of each live node; ends with it")
    stage.screen.show(Text("\n".join(lines)))


def _meaning(entry: str) -> str:
    return MEANINGS.get(entry.partition(":")[0], "")


def _elect(stage: Stage, cluster: DemoCluster) -> None:
    screen = stage.screen
    before = Admin(cluster.bootstrap).describe_cluster()
    screen.check("three nodes have registered", sorted(node.node_id for node in before.nodes) == [0, 1, 2])
    victim = before.controller
    assert victim is not None
    screen.say(f"The controller, node {victim}, is killed. Another node takes over and elects new leaders:")
    cluster.supervisor.kill(victim)
    alive = ",".join(each.address for each in cluster.plan.members if each.node_id != victim)
    stage.wait("another controller is elected", lambda: _controller(alive) not in (None, victim))
    stage.wait("every partition has a leader that lives", lambda: victim not in _leaders(alive))
    screen.run(f"headrace topics describe {TOPIC} --bootstrap {alive}")
    screen.check("another node is the controller", _controller(alive) not in (None, victim))
    screen.check("every partition has a leader that lives", not {victim, None} & _leaders(alive))


def _controller(bootstrap: str) -> int | None:
    return Admin(bootstrap).describe_cluster().controller


def _leaders(bootstrap: str) -> set[int | None]:
    return {each.leader for each in Admin(bootstrap).describe_topic(TOPIC).partitions}


SCENE = Scene(
    name="zookeeper",
    title="ZooKeeper holds what nodes share",
    play=play,
    needs=(ZOOKEEPER, SIGNALS),
    own_nodes=True,
    on_kafka=False,
    varies=(
        r"node \d, is killed",
        r"(?m)^id +\S+$",
        r"(?m)^ *[012] +[012] +.*$",
        r"(?m)(^/headrace/.*\n)+",
        r"(127\S+,)+127\S+",
    ),
)
