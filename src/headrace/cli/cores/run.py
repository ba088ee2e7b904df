# SPDX-License-Identifier: Apache-2.0
"""`headrace serve --cores N`: a node on each core, under this process as their supervisor.

The supervisor is that of `headrace cluster up`; what is particular to cores is in headrace/cluster/cores.
Read next: as_core.py, headrace/cluster/cores/plan.py, docs/decisions/0048-all-cores-of-a-host.md.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.broker.cores_app import cores_endpoint
from headrace.broker.logging_setup import set_up_logging
from headrace.broker.reporting.cores_endpoint import Core
from headrace.cli.errors import UsageError
from headrace.cli.output import Output
from headrace.cli.ready_line import print_cores_ready
from headrace.cli.serve_options import ServeOptions
from headrace.cluster.cores.engine import CoreEngine
from headrace.cluster.cores.existing import Existing, look_at, member_data
from headrace.cluster.cores.plan import CoreLayout, core_settings, lay_out
from headrace.cluster.engines.engine import free_ports
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterError, Member
from headrace.cluster.processes import read_ready
from headrace.cluster.supervisor import Supervisor, sigterm_as_ctrl_c
from headrace.config import NodeConfig
from headrace.realworld import RealFiles
from headrace.secret import Secret

logger = logging.getLogger(__name__)

_ROUND_S = 0.25
_TOKEN_BYTES = 32
_OF_EACH_CORE = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "headrace.coordination",
        "headrace.metrics.host",
        "headrace.metrics.port",
        "headrace.metrics.security.protocol",
        "headrace.metrics.ssl.client.auth",
        "headrace.metrics.ssl.keystore.location",
        "headrace.metrics.ssl.truststore.location",
        "headrace.metrics.token.file",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "node.id",
    }
)
"""Settings that the supervisor uses itself, or sets for each core."""


def run_cores(options: ServeOptions, config: NodeConfig, count: int, defaults: Mapping[str, str]) -> int:
    """Serves until a signal, or until a command has stopped all cores. Returns the exit code.

    Raises HeadraceError when the cores cannot start.
    """
    if os.name != "posix":
        raise UsageError("--cores needs signals of POSIX", "start one `headrace serve` for each node")
    set_up_logging(config["headrace.log.format"], config["headrace.log.level"])
    folder = ClusterFolder(config.data_directory)
    folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with folder.supervised(), sigterm_as_ctrl_c():
        existing = look_at(folder)
        layout = lay_out(config, count, existing, free_ports)
        _check_not_running(folder, existing)
        token = Secret(secrets.token_urlsafe(_TOKEN_BYTES))
        launch = _Launch(options=options, config=config, defaults=defaults, layout=layout, folder=folder)
        supervisor = Supervisor(folder, logger.warning, engine=CoreEngine(launch.command_of, token))
        with cores_endpoint(config, lambda: _cores(supervisor), token) as metrics:
            _write_plan(folder, existing, layout, supervisor)
            return _run(supervisor, layout, config, metrics, Output(as_json=options.as_json))


def _check_not_running(folder: ClusterFolder, existing: Existing) -> None:
    """Before anything is written: a single node may use the directory."""
    try:
        RealFiles().lock(folder.path / ".lock").release()
    except BlockingIOError:
        if existing.plan is None:
            raise ClusterError(
                f"the data directory {folder.path} is in use by a node",
                "stop that node, or name another directory with --data",
            ) from None


def _write_plan(
    folder: ClusterFolder, existing: Existing, layout: CoreLayout, supervisor: Supervisor
) -> None:
    if existing.plan is None:
        folder.create(layout.plan)
        if existing.single_node_id is not None:
            logger.info(
                "%s is now that of %d cores; the topics that it has stay on core 0 until they are moved: "
                "headrace cluster balance", folder.path, len(layout.plan.members),
            )  # fmt: skip
        return
    supervisor.stop_all()  # cores of a supervisor that was killed may still be stopping
    folder.change(lambda plan: layout.plan)


def _run(
    supervisor: Supervisor,
    layout: CoreLayout,
    config: NodeConfig,
    metrics: tuple[str, int] | None,
    output: Output,
) -> int:
    try:
        supervisor.start([member.node_id for member in layout.plan.members])
        print_cores_ready(layout, config, metrics, output)
        while not supervisor.all_stopped():
            supervisor.restart_crashed()
            time.sleep(_ROUND_S)
    except KeyboardInterrupt:
        supervisor.stop_all()
    except BaseException:
        supervisor.stop_all()
        raise
    return 0


def _cores(supervisor: Supervisor) -> list[Core]:
    """As the endpoint shows them; called in its thread."""
    found: list[Core] = []
    folder = supervisor.folder
    if not folder.exists:
        return found  # before the first start
    for index, member in enumerate(folder.read().members):
        ready = read_ready(folder.node(member.node_id))
        port = None if ready is None else int(str(ready["metrics"]).split(":")[2].partition("/")[0])
        why_not = "it is starting, or is restarted" if member.wanted == "up" else f"it was {member.wanted}"
        found.append(
            Core(
                index=index,
                node_id=member.node_id,
                port=port,
                why_not=why_not,
                restarts=supervisor.restarts(member.node_id),
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """The command line of each core: that of the user, with what differs."""

    options: ServeOptions
    config: NodeConfig
    defaults: Mapping[str, str]
    layout: CoreLayout
    folder: ClusterFolder

    def command_of(self, member: Member) -> tuple[str, ...]:
        options, index = self.options, self.layout.index_of(member.node_id)
        command = [sys.executable, "-m", "headrace.cli.main", "serve", "--as-core", str(index), "--json"]
        command += ["--node-id", str(member.node_id), "--coordination", self.layout.plan.coordination]
        command += ["--data", str(member_data(self.folder, member.node_id, member.data))]
        if options.config is not None:
            command += ["--config", str(options.config)]
        command += ["--from-env"] * options.from_env + ["--allow-anonymous"] * options.allow_anonymous
        if options.log_format is not None:
            command += ["--log-format", options.log_format]
        if options.log_level is not None:
            command += ["--log-level", options.log_level]
        given = {**self.defaults, **options.settings}
        settings = {key: value for key, value in given.items() if key not in _OF_EACH_CORE}
        settings |= core_settings(self.config, self.layout.listeners[index], socket.gethostname())
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        return tuple(command)
