# SPDX-License-Identifier: Apache-2.0
"""Scene: `headrace serve --cores 2`: two nodes on one host as one; one of them dies and returns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from headrace.client.tools.admin import Admin
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.processes import find_process
from headrace.demo.requirements import SIGNALS
from headrace.demo.scene import Scene, SceneFailed, Stage

TOPIC = "deliveries"
DRAWING = """\
                          ┌─▶ core 0: node 1 at …:9092 ─▶ partitions 0, 2
client ─▶ bootstrap list ─┤
                          └─▶ core 1: node 2 at …:9093 ─▶ partitions 1, 3"""
_STOP_S = 60


def play(stage: Stage) -> None:
    screen = stage.screen
    screen.say("A node serves its partitions on one core. With --cores a host runs one node on each, as one:")
    screen.show(DRAWING)
    screen.show("$ headrace serve --cores 2 --data DIR")
    with _serving(stage) as (bootstrap, metrics):
        admin = Admin(bootstrap)
        screen.run(f"headrace topics create {TOPIC} --partitions 4")
        screen.run(f"headrace topics describe {TOPIC}")
        leaders = [each.leader for each in admin.describe_topic(TOPIC).partitions]
        screen.check("each core leads two partitions", sorted(leaders, key=str) == [1, 1, 2, 2])
        screen.run(f"headrace produce {TOPIC}", typed="one\ntwo\nthree\nfour\n")
        _restart_one(stage, metrics)
        read = screen.run(f"headrace consume {TOPIC} --exit-at-end")
        screen.check("every record is there", all(word in read for word in ("one", "two", "three", "four")))
        screen.say(
            "Cores protect from nothing that the host does not survive. A second replica is warned of:"
        )
        warned = screen.run("headrace topics create twice --replication-factor 2")
        screen.check("the command warns of replicas that are lost together", "are lost together" in warned)


def _restart_one(stage: Stage, metrics: str) -> None:
    screen, folder = stage.screen, ClusterFolder(stage.folder / "cores")
    screen.say("A core that dies is restarted alone. Meanwhile the other serves, and /readyz tells:")
    victim, other = (find_process(folder.node(node)) for node in (2, 1))
    if victim is None or other is None:
        raise SceneFailed("a core does not run")
    victim.signal(signal.SIGKILL)
    stage.wait("the endpoint tells of it", lambda: "core 1 (node 2)" in _ready(metrics))
    screen.show("not ready: core 1 (node 2): it is starting, or is restarted")
    stage.wait("it has returned", lambda: _ready(metrics) == "ready")
    screen.check("it returned, and the other core was not restarted", find_process(folder.node(1)) == other)


def _ready(metrics: str) -> str:
    try:
        with urllib.request.urlopen(metrics.replace("/metrics", "/readyz"), timeout=15) as reply:
            return str(reply.read().decode().strip())
    except urllib.error.HTTPError as error:
        return str(error.read().decode().strip())


@contextmanager
def _serving(stage: Stage) -> Iterator[tuple[str, str]]:
    """The bootstrap list and the address of the metrics."""
    command = [sys.executable, "-m", "headrace.cli.main", "serve", "--cores", "2", "--json", "--port", "0"]
    command += ["--data", str(stage.folder / "cores"), "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise SceneFailed("the cores did not start")
            ready = json.loads(line)
            os.environ["HEADRACE_BOOTSTRAP"] = ready["bootstrap"]
            watching = nullcontext() if stage.console is None else stage.console.watching(ready["bootstrap"])
            with watching:
                yield ready["bootstrap"], ready["metrics"]
        finally:
            process.terminate()
            process.wait(_STOP_S)


SCENE = Scene(
    name="cores",
    title="All cores of a host",
    play=play,
    needs=(SIGNALS,),
    own_nodes=True,
    on_kafka=False,
    varies=(r"(?m)^id +\S+$", r"(?m)^ *[0-3] +[12] +.*$", r"in rack \S+", r"(?m)^(one|two|three|four)$"),
)
