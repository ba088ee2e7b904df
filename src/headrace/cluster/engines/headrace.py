# SPDX-License-Identifier: Apache-2.0
"""Headrace as an engine: one `headrace serve` process of this installation.

Uses only the command line; imports nothing of the broker.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from headrace.cluster.engines.engine import (
    PreparedNode,
    RunningNode,
    command_environment,
    free_ports,
    write_private,
)
from headrace.cluster.plan import HOST, ClusterPlan, Member
from headrace.cluster.security import SecurityFolder, plan_security


class HeadraceEngine:
    name = "headrace"

    @property
    def version(self) -> str:
        return version("headrace")

    def prepare(self, data_dir: Path, settings: Mapping[str, str]) -> PreparedNode:
        (port,) = free_ports(1)
        return self._prepared(data_dir, (HOST, port), (), settings)

    def prepare_member(self, plan: ClusterPlan, member: Member, folder: Path) -> PreparedNode:
        """Prepare one node of a cluster."""
        place = ("--node-id", str(member.node_id), "--coordination", plan.coordination)
        address = (member.host, member.port)
        if plan.security is None:
            return self._prepared(folder, address, place, plan.settings)
        settings = {**SecurityFolder(Path(plan.security)).node_settings(), **plan.settings}
        file = folder / "server.properties"
        write_private(file, properties_text(settings))
        prepared = self._prepared(folder, address, (*place, "--config", str(file)), {}, "SASL_SSL")
        return replace(prepared, security=plan_security(plan))

    def _prepared(
        self,
        data_dir: Path,
        address: tuple[str, int],
        place: tuple[str, ...],
        settings: Mapping[str, str],
        protocol: str = "PLAINTEXT",
    ) -> PreparedNode:
        host, port = address
        listener = f"main={host}:{port}" + ("" if protocol == "PLAINTEXT" else f",protocol={protocol}")
        command = [sys.executable, "-m", "headrace.cli.main", "serve", *place]
        command += ["--data", str(data_dir / "data"), "--listener", listener]
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


def properties_text(settings: Mapping[str, str]) -> str:
    """A properties file; a value may be PEM text of several lines."""
    escapes = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r"})
    return "".join(f"{key}={value.translate(escapes)}\n" for key, value in settings.items())


def _as_installed() -> dict[str, str]:
    """Write bytecode in a source tree, so that the first start is as fast as installed."""
    environment = command_environment({})
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment
