"""Headrace as an engine: one `headrace serve` process of this installation.

Knows only the command line, as any user does: nothing of the broker is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from headrace.cluster.engines.engine import PreparedNode, RunningNode, command_environment, free_ports
from headrace.cluster.plan import HOST, ClusterPlan, Member


class HeadraceEngine:
    name = "headrace"

    @property
    def version(self) -> str:
        return version("headrace")

    def prepare(self, data_dir: Path, settings: Mapping[str, str]) -> PreparedNode:
        (port,) = free_ports(1)
        return self._prepared(data_dir, (HOST, port), (), settings)

    def prepare_member(self, plan: ClusterPlan, member: Member, folder: Path) -> PreparedNode:
        """One node of a cluster, ready to be launched again and again."""
        place = ("--node-id", str(member.node_id), "--coordination", plan.coordination)
        return self._prepared(folder, (member.host, member.port), place, plan.settings)

    def _prepared(
        self, data_dir: Path, address: tuple[str, int], place: tuple[str, ...], settings: Mapping[str, str]
    ) -> PreparedNode:
        host, port = address
        command = [sys.executable, "-m", "headrace.cli.main", "serve", *place]
        command += ["--data", str(data_dir / "data"), "--listener", f"main={host}:{port}"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        return PreparedNode(
            engine=self.name,
            command=tuple(command),
            environment=_as_installed(),
            data_dir=data_dir / "data",
            log_path=data_dir / "serve.log",
            host=host,
            port=port,
        )

    def start(self, data_dir: Path, settings: Mapping[str, str]) -> RunningNode:
        return self.prepare(data_dir, settings).launch()


def _as_installed() -> dict[str, str]:
    """An installed package has its bytecode beside it; in a source tree the first start writes it."""
    environment = command_environment({})
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment
