# SPDX-License-Identifier: Apache-2.0
"""Three nodes of either engine for one turn of a measure, and what all of them together cost.

Apache Kafka's nodes are controllers too, at its defaults; Headrace's share a SQLite store, or a ZooKeeper
that is started for them. The harness that judges failover in the tests. Knows nothing of what is measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from bench.cell import Cell
from bench.model import KAFKA
from bench.nodes import DELETE_SOON, HEADRACE_SETTINGS
from headrace.cluster.engines.process_stats import read_process_tree
from headrace.cluster.engines.zookeeper import prepare_zookeeper
from tests.harness.live.cluster import LiveCluster

NODES = 3


@contextmanager
def running_cluster(
    cell: Cell, settings: Mapping[str, str] | None = None, *, zookeeper: bool = False
) -> Iterator[LiveCluster]:
    """Fresh, and gone afterwards with all its files."""
    folder = cell.nodes.new_folder(f"cluster-{cell.variant}")
    own = HEADRACE_SETTINGS.get(cell.variant, {})
    try:
        with ExitStack() as stack:
            coordination = None
            if zookeeper and cell.variant != KAFKA:
                ensemble = stack.enter_context(prepare_zookeeper(folder / "zookeeper"))
                coordination = f"zk://{ensemble.hosts}/headrace"
            cluster = LiveCluster(
                folder / "cluster",
                nodes=NODES,
                engine="kafka" if cell.variant == KAFKA else "headrace",
                coordination=coordination,
                settings={**DELETE_SOON, **own, **(settings or {})},
            )
            yield stack.enter_context(cluster)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cpu_seconds(cluster: LiveCluster) -> float:
    return sum(read_process_tree(pid).cpu_seconds for pid in _pids(cluster))


def rss_mb(cluster: LiveCluster) -> float:
    return sum(read_process_tree(pid).rss_bytes for pid in _pids(cluster)) / 1e6


def _pids(cluster: LiveCluster) -> list[int]:
    return [pid for node_id in cluster.node_ids if (pid := cluster.pid(node_id)) is not None]
