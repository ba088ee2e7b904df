# SPDX-License-Identifier: Apache-2.0
"""Scene: an inner and an outer listener. Each client is told an address that it can reach."""

from __future__ import annotations

import os

from confluent_kafka.admin import AdminClient

from headrace.cluster.engines.engine import answers, free_ports
from headrace.demo.programs import Program
from headrace.demo.scene import Scene, Stage

TOPIC = "news"
DRAWING = """\
on the host                                      in the container network
client ──▶ outer listener ──▶  node  ◀── inner listener ◀── client
           localhost:9092                kafka:29092"""


def play(stage: Stage) -> None:
    screen = stage.screen
    outer, inner = free_ports(2)
    screen.say(
        "A node tells each client where to find the partitions. A client in a container network needs "
        "another address than one on the host, so a node has several listeners, each with its own:"
    )
    screen.show(DRAWING)
    arguments = (
        "serve",
        "--data",
        str(stage.folder / "data"),
        "--listener",
        f"outer=127.0.0.1:{outer},advertise=localhost:{outer}",
        "--listener",
        f"inner=127.0.0.1:{inner},advertise=127.0.0.1:{inner}",
    )
    screen.show("$ headrace serve --data DIR \\")
    screen.show(f"    --listener outer={arguments[4].removeprefix('outer=')} \\")
    screen.show(f"    --listener inner={arguments[6].removeprefix('inner=')}")
    node = Program("headrace.cli.main", *arguments)
    try:
        stage.wait("the node answers", lambda: answers("127.0.0.1", outer) and answers("127.0.0.1", inner))
        _play(stage, {"outer": f"localhost:{outer}", "inner": f"127.0.0.1:{inner}"})
    finally:
        node.stop()


def _play(stage: Stage, addresses: dict[str, str]) -> None:
    screen = stage.screen
    named = {name: _named_to_clients(address) for name, address in addresses.items()}
    for name, address in named.items():
        screen.show(f"a client of the {name} listener is sent to {address}")
    screen.check("each client is told the address of its own side", named == addresses)
    os.environ["HEADRACE_BOOTSTRAP"] = addresses["outer"]
    screen.say("What is written outside is read inside:")
    screen.run(f"headrace topics create {TOPIC} --bootstrap {addresses['outer']}")
    screen.run(f"headrace produce {TOPIC} --bootstrap {addresses['outer']}", typed="hello")
    read = screen.run(f"headrace consume {TOPIC} --exit-at-end --bootstrap {addresses['inner']}")
    screen.check("the record went through both", "hello" in read)


def _named_to_clients(bootstrap: str) -> str:
    brokers = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=20).brokers
    return ",".join(f"{broker.host}:{broker.port}" for broker in brokers.values())


SCENE = Scene(
    name="listeners",
    title="An outer and an inner listener",
    play=play,
    own_nodes=True,
    on_kafka=False,
    varies=(r"localhost:\d+",),
)
