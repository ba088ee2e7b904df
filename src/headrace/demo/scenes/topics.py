# SPDX-License-Identifier: Apache-2.0
"""Scene: topics from the command line, with partitions and replicas, on three nodes."""

from __future__ import annotations

from headrace.client.tools.admin import Admin
from headrace.demo.nodes import running_cluster
from headrace.demo.requirements import SIGNALS
from headrace.demo.scene import Scene, Stage

TOPIC = "multi-topic"


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say("Topics are made on the command line. On three nodes each partition can have three replicas:")
    with running_cluster(stage, nodes=3) as cluster:
        admin = Admin(cluster.bootstrap)
        screen.run(f"headrace topics create {TOPIC} --partitions 3 --replication-factor 3")
        stage.wait("all replicas are in sync", lambda: _in_sync(admin) == [3, 3, 3])
        screen.run("headrace topics list")
        screen.run(f"headrace topics describe {TOPIC}")
        described = admin.describe_topic(TOPIC)
        on_all = [sorted(each.replicas) for each in described.partitions] == [[0, 1, 2]] * 3
        screen.check("three partitions, each with a replica on each node", on_all)
        leaders = sorted(each.leader for each in described.partitions if each.leader is not None)
        screen.check("each node leads one partition", leaders == [0, 1, 2])
        screen.run(f"headrace configs set --topic {TOPIC} retention.ms=86400000")
        screen.run(f"headrace topics delete {TOPIC} --yes")
        names = {topic.name for topic in admin.list_topics()}
        screen.check("a deleted topic is gone", TOPIC not in names)


def _in_sync(admin: Admin) -> list[int]:
    return [len(each.isr) for each in admin.describe_topic(TOPIC).partitions]


SCENE = Scene(
    name="topics",
    title="Topics from the command line",
    play=play,
    needs=(SIGNALS,),
    own_nodes=True,
    varies=(r"(?m)^id +\S+$", r"(?m)^ *[012] +[012] +.*$"),
)
