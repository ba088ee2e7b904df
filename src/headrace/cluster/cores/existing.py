# SPDX-License-Identifier: Apache-2.0
"""What a data directory holds before its cores start: a plan, a single node's data, partitions of each core.

Only looks. Read next: plan.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterPlan

_META = "meta.properties"
_NODE_ID = re.compile(r"^node\.id=(\d+)\s*$", re.MULTILINE)
_PARTITION = re.compile(r".+-\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    plan: ClusterPlan | None = None
    single_node_id: int | None = None
    """Of a node that ran here alone and is not in a plan yet."""
    partitions: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Names of the partitions of each node of the plan."""


def look_at(folder: ClusterFolder) -> Existing:
    if not folder.exists:
        return Existing(single_node_id=_node_id(folder.path / _META))
    plan = folder.read()
    partitions = {
        member.node_id: _partitions(member_data(folder, member.node_id, member.data))
        for member in plan.members
    }
    return Existing(plan=plan, partitions=partitions)


def member_data(folder: ClusterFolder, node_id: int, data: str | None) -> Path:
    """The data directory of a core."""
    return folder.node(node_id) / "data" if data is None else folder.path / data


def _node_id(path: Path) -> int | None:
    try:
        found = _NODE_ID.search(path.read_text(errors="replace"))
    except FileNotFoundError:
        return None
    return None if found is None else int(found[1])


def _partitions(directory: Path) -> tuple[str, ...]:
    try:
        names = sorted(each.name for each in directory.iterdir() if each.is_dir())
    except FileNotFoundError:
        return ()
    return tuple(name for name in names if _PARTITION.fullmatch(name))
