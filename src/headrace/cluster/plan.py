"""What a cluster on this host consists of: its engine, its nodes and their ports. Values only, no process.

Read next: folder.py (where it is kept), supervisor.py (who runs it).
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headrace.errors import HeadraceError

HOST = "127.0.0.1"
FORMAT = 1

Wanted = Literal["up", "stopped", "killed"]
EngineName = Literal["headrace", "kafka"]


class ClusterError(HeadraceError):
    """The cluster cannot do what was asked; `next_step` is what to try."""

    def __init__(self, what: str, next_step: str | None = None) -> None:
        super().__init__(f"{what}; {next_step}" if next_step else what)
        self.what = what
        self.next_step = next_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node. `wanted` is what its operator last asked for: a node that died by itself is still wanted."""

    node_id: int
    port: int
    controller_port: int | None = None
    """Of an Apache Kafka node that is a controller too."""
    wanted: Wanted = "up"
    host: str = HOST
    """Where it listens: another address of this machine where the network between nodes is under test."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    engine: EngineName
    coordination: str
    """Of Headrace nodes: sqlite:DIRECTORY or zk://…"""
    cluster_id: str
    """Of Apache Kafka, which is told; a Headrace cluster makes its own."""
    settings: Mapping[str, str] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    next_id: int = 0
    """Ids are not given twice, so that a node that was removed is never taken for a new one."""

    @property
    def bootstrap(self) -> str:
        return ",".join(member.address for member in self.members)

    def member(self, node_id: int) -> Member:
        for member in self.members:
            if member.node_id == node_id:
                return member
        known = ", ".join(str(member.node_id) for member in self.members) or "none"
        raise ClusterError(f"node {node_id} is not in this cluster; its nodes are {known}")

    def with_member(self, changed: Member) -> ClusterPlan:
        """The same plan with this member in the place of the one of its id, or behind all others."""
        others = [each for each in self.members if each.node_id != changed.node_id]
        members = sorted([*others, changed], key=lambda each: each.node_id)
        return replace(self, members=tuple(members), next_id=max(self.next_id, changed.node_id + 1))

    def without(self, node_id: int) -> ClusterPlan:
        return replace(self, members=tuple(each for each in self.members if each.node_id != node_id))

    def document(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "engine": self.engine,
            "coordination": self.coordination,
            "cluster_id": self.cluster_id,
            "settings": dict(self.settings),
            "next_id": self.next_id,
            "members": [
                {
                    "id": member.node_id,
                    "host": member.host,
                    "port": member.port,
                    "controller_port": member.controller_port,
                    "wanted": member.wanted,
                }
                for member in self.members
            ],
        }


def plan_of(document: Any) -> ClusterPlan:
    """Raises ValueError, TypeError or LookupError for what `document()` never wrote."""
    if document["format"] > FORMAT:
        raise ClusterError(f"format {document['format']} was written by a newer Headrace", "use that version")
    return ClusterPlan(
        engine=document["engine"],
        coordination=document["coordination"],
        cluster_id=document["cluster_id"],
        settings=dict(document["settings"]),
        next_id=int(document["next_id"]),
        members=tuple(
            Member(
                node_id=int(each["id"]),
                host=str(each.get("host", HOST)),
                port=int(each["port"]),
                controller_port=each["controller_port"],
                wanted=each["wanted"],
            )
            for each in document["members"]
        ),
    )


def new_cluster_id() -> str:
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    return "A" + text[1:] if text.startswith("-") else text  # would be read as an option
