# SPDX-License-Identifier: Apache-2.0
"""`headrace cluster up`: starts a cluster and runs its supervisor loop with a live view.

Read next: view.py, headrace/cluster/supervisor.py.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.cli.cluster.beside import console_beside
from headrace.cli.cluster.secure import next_commands, secure_plan
from headrace.cli.cluster.view import LiveView
from headrace.cli.console import need_console
from headrace.cli.output import Output
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import HOST, ClusterError, ClusterPlan
from headrace.cluster.supervisor import Supervisor, plan_cluster, sigterm_as_ctrl_c
from headrace.config.coordination_address import parse_coordination
from headrace.errors import ArgumentError, ConfigError, HeadraceError

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
    secure: bool
    detach: bool
    console_port: int | None = None
    """None: no console."""


def run_cluster(folder: ClusterFolder, options: UpOptions, output: Output) -> None:
    """Run the cluster until a signal or `cluster stop` stops it."""
    _check_console(options)
    plan = _plan(folder, options)
    with folder.supervised(), sigterm_as_ctrl_c(), contextlib.ExitStack() as beside:
        supervisor = Supervisor(folder, output.note)
        try:
            started = time.monotonic()
            supervisor.start([member.node_id for member in plan.members])
            took_s = time.monotonic() - started
            console = None
            if options.console_port is not None:
                console = beside.enter_context(console_beside(plan, folder, options.console_port))
            _print_ready(plan, folder, took_s, console, output)
        except (HeadraceError, KeyboardInterrupt):
            supervisor.stop_all()
            raise
        if not options.detach:
            _supervise(supervisor, output)


def _check_console(options: UpOptions) -> None:
    """Before the first node starts."""
    if options.console_port is None:
        return
    if options.detach:
        raise ClusterError(
            "--console ends with this command, which --detach ends at once",
            "leave one of them out, or run `headrace console`",
        )
    need_console()


def _plan(folder: ClusterFolder, options: UpOptions) -> ClusterPlan:
    """The plan of the existing cluster, or a new one."""
    if folder.exists:
        plan = folder.read()
        if plan.cores:
            raise ClusterError(
                f"{folder.path} has the cores of one host, not a cluster",
                f"start them: headrace serve --cores {len(plan.members)} --data {folder.path}",
            )
        _check_unchanged(plan, folder, options)
        return plan
    if options.coordination is not None:
        if options.engine == "kafka":
            raise ClusterError("Apache Kafka has its own controller quorum", "leave out --coordination")
        try:
            parse_coordination(options.coordination)
        except ConfigError as error:
            raise ArgumentError(f"--coordination: {error}") from None
    if options.secure and options.engine == "kafka":
        raise ClusterError("--secure starts nodes of Headrace only", "leave out --secure or --engine kafka")
    nodes = options.nodes or DEFAULT_NODES
    plan = plan_cluster(
        engine=options.engine,
        nodes=nodes,
        coordination=options.coordination,
        settings=options.settings,
        folder=folder,
        first_port=_first_port(options.port, nodes),
    )
    if options.secure:
        plan = secure_plan(plan, folder)
    folder.create(plan)
    return plan


def _check_unchanged(plan: ClusterPlan, folder: ClusterFolder, options: UpOptions) -> None:
    requested = {
        "--engine": (options.engine, plan.engine),
        "--nodes": (options.nodes or len(plan.members), len(plan.members)),
        "--coordination": (options.coordination or plan.coordination, plan.coordination),
        "--secure": (options.secure or plan.security is not None, plan.security is not None),
        "--set": ({**plan.settings, **options.settings}, dict(plan.settings)),
    }
    for option, (asked, found) in requested.items():
        if asked != found:
            raise ClusterError(
                f"{folder.path} has a cluster with {option[2:]} {found}, not {asked}",
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


def _print_ready(
    plan: ClusterPlan, folder: ClusterFolder, took_s: float, console: str | None, output: Output
) -> None:
    if output.as_json:
        output.json_line(
            {
                "ready": True,
                "engine": plan.engine,
                "bootstrap": plan.bootstrap,
                "nodes": [member.node_id for member in plan.members],
                "dir": str(folder.path),
                "security": plan.security,
                "console": console,
                "ready_after_ms": round(took_s * 1000),
            }
        )
    else:
        output.line(f"The cluster is ready at {plan.bootstrap} after {took_s:.1f} s, files in {folder.path}")
        for line in next_commands(plan):
            output.line(line)
        if console is not None:
            output.line(f"The console is ready at {console}")
    output.flush()


def _supervise(supervisor: Supervisor, output: Output) -> None:
    try:
        with LiveView(supervisor.folder, output) as view:
            while not supervisor.all_stopped():
                supervisor.restart_crashed()
                view.refresh()
                time.sleep(_ROUND_S)
        output.note("every node was stopped")
    except KeyboardInterrupt:
        output.note("stopping …")
        supervisor.stop_all()
