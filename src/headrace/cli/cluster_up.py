"""`headrace cluster up`: from options to a running cluster, and its supervisor's loop with the live view.

Read next: cluster_view.py (what is painted), cluster/supervisor.py (what is done).
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from headrace.cli.cluster_view import LiveView
from headrace.cli.output import Output
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import HOST, ClusterError, ClusterPlan
from headrace.cluster.supervisor import Supervisor, plan_cluster
from headrace.config.coordination_address import parse_coordination
from headrace.errors import HeadraceError

DEFAULT_NODES = 3
USUAL_PORT = 9092
_ROUND_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    nodes: int | None
    engine: Literal["headrace", "kafka"]
    coordination: str | None
    port: int | None
    settings: Mapping[str, str]
    detach: bool


def run_cluster(folder: ClusterFolder, options: UpOptions, output: Output) -> None:
    """Returns when the cluster was told to stop, by a signal or by `cluster stop`."""
    plan = _plan(folder, options)
    with folder.supervised(), _sigterm_as_ctrl_c():
        supervisor = Supervisor(folder, output.note)
        try:
            started = time.monotonic()
            supervisor.start([member.node_id for member in plan.members])
            _print_ready(plan, folder, time.monotonic() - started, output)
        except (HeadraceError, KeyboardInterrupt):
            supervisor.stop_all()
            raise
        if not options.detach:
            _look_after(supervisor, output)


def _plan(folder: ClusterFolder, options: UpOptions) -> ClusterPlan:
    """The plan of a cluster that is there, or a new one."""
    if folder.exists:
        plan = folder.read()
        _check_unchanged(plan, folder, options)
        return plan
    if options.coordination is not None:
        if options.engine == "kafka":
            raise ClusterError("Apache Kafka's nodes have their own quorum", "leave out --coordination")
        parse_coordination(options.coordination)
    nodes = options.nodes or DEFAULT_NODES
    plan = plan_cluster(
        engine=options.engine,
        nodes=nodes,
        coordination=options.coordination,
        settings=options.settings,
        folder=folder,
        first_port=_first_port(options.port, nodes),
    )
    folder.create(plan)
    return plan


def _check_unchanged(plan: ClusterPlan, folder: ClusterFolder, options: UpOptions) -> None:
    told = {
        "--engine": (options.engine, plan.engine),
        "--nodes": (options.nodes or len(plan.members), len(plan.members)),
        "--coordination": (options.coordination or plan.coordination, plan.coordination),
        "--set": ({**plan.settings, **options.settings}, dict(plan.settings)),
    }
    for option, (asked, found) in told.items():
        if asked != found:
            raise ClusterError(
                f"{folder.path} holds a cluster with {option[2:]} {found}, not {asked}",
                f"leave out {option}, use `headrace cluster add` for more nodes, or name another --dir",
            )


def _first_port(asked: int | None, nodes: int) -> int | None:
    if asked is not None:
        return asked or None
    return USUAL_PORT if all(_is_free(USUAL_PORT + index) for index in range(nodes)) else None


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_ready(plan: ClusterPlan, folder: ClusterFolder, took_s: float, output: Output) -> None:
    if output.as_json:
        output.json_line(
            {
                "ready": True,
                "engine": plan.engine,
                "bootstrap": plan.bootstrap,
                "nodes": [member.node_id for member in plan.members],
                "dir": str(folder.path),
                "ready_after_ms": round(took_s * 1000),
            }
        )
    else:
        output.line(f"The cluster serves at {plan.bootstrap} after {took_s:.1f} s, files in {folder.path}")
    output.flush()


def _look_after(supervisor: Supervisor, output: Output) -> None:
    try:
        with LiveView(supervisor.folder, output) as view:
            while not _all_stopped(supervisor):
                supervisor.look_after()
                view.refresh()
                time.sleep(_ROUND_S)
        output.note("every node was stopped")
    except KeyboardInterrupt:
        output.note("stopping …")
        supervisor.stop_all()


def _all_stopped(supervisor: Supervisor) -> bool:
    members = supervisor.folder.read().members
    return all(each.wanted == "stopped" and supervisor.process(each.node_id) is None for each in members)
