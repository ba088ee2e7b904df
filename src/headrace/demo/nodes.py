# SPDX-License-Identifier: Apache-2.0
"""Clusters of a scene's own: started, used and stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterPlan
from headrace.cluster.supervisor import Supervisor, plan_cluster
from headrace.demo.scene import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCluster:
    plan: ClusterPlan
    supervisor: Supervisor

    @property
    def bootstrap(self) -> str:
        return self.plan.bootstrap


@contextmanager
def running_cluster(
    stage: Stage, *, nodes: int, coordination: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[DemoCluster]:
    """A cluster of this many nodes; commands of the scene use it."""
    folder = ClusterFolder(stage.folder / "cluster")
    plan = plan_cluster(
        engine=stage.engine,
        nodes=nodes,
        coordination=coordination,
        settings=settings or {},
        folder=folder,
        first_port=None,
    )
    folder.create(plan)
    cluster = DemoCluster(plan=plan, supervisor=Supervisor(folder))
    started = time.monotonic()
    try:
        cluster.supervisor.start(range(nodes))
        stage.screen.note(f"{nodes} nodes are ready after {time.monotonic() - started:.1f} s.")
        os.environ["HEADRACE_BOOTSTRAP"] = cluster.bootstrap
        with nullcontext() if stage.console is None else stage.console.watching(cluster.bootstrap):
            yield cluster
    finally:
        cluster.supervisor.stop_all()
