# SPDX-License-Identifier: Apache-2.0
"""What has to hold on all nodes of a simulated cluster once all has healed: each check names what does not.

Read next: cluster.py (which waits until they find nothing).
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.broker.partition.partition import Partition
from headrace.log.directory_names import STRAY_SUFFIX
from headrace.testing.simworld import DATA_DIRECTORY
from tests.harness.simulation.cluster import SimCluster
from tests.harness.simulation.mixed.changes import SHORT_LIVED, RuleWriter

_READ_BYTES = 1 << 20


def difference(cluster: SimCluster, topics: Collection[str]) -> str:
    """Between replicas of logs whose batches stay as they are; empty when there is none."""
    for name in topics:
        state = cluster.invariants.view.topics[name].partitions[0]
        found: list[Partition] = []
        for node_id in state.replicas:
            broker = cluster.nodes[node_id].broker
            replica = None if broker is None else broker.partitions.get(name, 0)
            if replica is None or not replica.online:
                return f"{name} on node {node_id} is not there"
            found.append(replica)
        ends = {(each.log_end_offset, each.high_watermark) for each in found}
        start = max(each.log_start_offset for each in found)
        if len(ends) > 1 or len({_bytes_from(each, start) for each in found}) > 1:
            return f"{name}: {ends}, {[each.log_start_offset for each in found]}"
    return ""


def _bytes_from(replica: Partition, offset: int) -> bytes:
    """All batches up to the high watermark, or what can be read of them."""
    data = b""
    try:
        while (found := replica.log.read(offset, _READ_BYTES, replica.high_watermark)) is not None:
            data += found.bytes()
            offset = found.next_offset
            found.release()
    except OSError as error:
        return f"{error}".encode()
    return data


def ignorant(cluster: SimCluster, rules: RuleWriter) -> list[str]:
    """Nodes that do not know all ACLs and quotas, or know others."""
    return [
        node.machine.name
        for node in cluster.nodes
        if node.broker is not None and not rules.knows_all(node.broker.cluster.view)
    ]


def leftovers(cluster: SimCluster) -> list[str]:
    """Folders of logs that no node should have any more."""
    topics = cluster.invariants.view.topics
    return [
        f"{name} on {node.machine.name}"
        for node in cluster.nodes
        if node.broker is not None
        for name in node.machine.files.listdir(DATA_DIRECTORY)
        if name.startswith(SHORT_LIVED)
        and not name.endswith(STRAY_SUFFIX)
        and name.rpartition("-")[0] not in topics
    ]
