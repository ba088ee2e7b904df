# SPDX-License-Identifier: Apache-2.0
"""The plan of a cluster on this host: its engine, nodes and ports, as immutable values.

Read next: folder.py (stores it), supervisor.py (runs it).
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headrace.errors import HeadraceError

HOST = "127.0.0.1"
FORMAT = 3
"""2: plans with `security`, which an earlier Headrace would start without it; 3: plans of cores, which it
would start as nodes of a cluster."""

Wanted = Literal["up", "stopped", "killed"]
EngineName = Literal["headrace", "kafka"]


class ClusterError(HeadraceError):
    """An operation on a cluster failed; `next_step` is what the user can try."""

    def __init__(self, what: str, next_step: str | None = None) -> None:
        super().__init__(f"{what}; {next_step}" if next_step else what)
        self.what = what
        self.next_step = next_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node. `wanted` is the state the operator last asked for: a node that crashed is still "up"."""

    node_id: int
    port: int
    controller_port: int | None = None
    """Only for an Apache Kafka node that is also a controller."""
    wanted: Wanted = "up"
    host: str = HOST
    """Listen address; tests of the network between nodes use other loopback addresses. Of a core: the address
    that it tells clients."""
    data: str | None = None
    """Directory of a core's data, in that of all cores; None: beside the files of its process."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    engine: EngineName
    coordination: str
    """Coordination store of Headrace nodes: sqlite:DIRECTORY or zk://…"""
    cluster_id: str
    """Used by Apache Kafka only; a Headrace cluster generates its own."""
    settings: Mapping[str, str] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    next_id: int = 0
    """Node ids are never reused, so that a new node cannot be mistaken for a removed one."""
    security: str | None = None
    """Directory with the certificates and client files of a secure cluster; None: PLAINTEXT."""
    cores: bool = False
    """The nodes are the cores of one `headrace serve --cores`, which alone starts them."""

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
        """A plan in which this member replaces the one with its node id, or is added."""
        others = [each for each in self.members if each.node_id != changed.node_id]
        members = sorted([*others, changed], key=lambda each: each.node_id)
        return replace(self, members=tuple(members), next_id=max(self.next_id, changed.node_id + 1))

    def without(self, node_id: int) -> ClusterPlan:
        return replace(self, members=tuple(each for each in self.members if each.node_id != node_id))

    def document(self) -> dict[str, Any]:
        return {
            "format": self._format,
            "engine": self.engine,
            "coordination": self.coordination,
            "cluster_id": self.cluster_id,
            "settings": dict(self.settings),
            "next_id": self.next_id,
            "security": self.security,
            "cores": self.cores,
            "members": [
                {
                    "id": member.node_id,
                    "host": member.host,
                    "port": member.port,
                    "controller_port": member.controller_port,
                    "wanted": member.wanted,
                    "data": member.data,
                }
                for member in self.members
            ],
        }

    @property
    def _format(self) -> int:
        """The oldest that has all of this plan."""
        if self.cores:
            return 3
        return 1 if self.security is None else 2


def plan_of(document: Any) -> ClusterPlan:
    """Reads the result of `ClusterPlan.document`; raises ValueError, TypeError or LookupError otherwise."""
    if document["format"] > FORMAT:
        raise ClusterError(f"format {document['format']} was written by a newer Headrace", "use that version")
    return ClusterPlan(
        engine=document["engine"],
        coordination=document["coordination"],
        cluster_id=document["cluster_id"],
        settings=dict(document["settings"]),
        next_id=int(document["next_id"]),
        security=document.get("security"),
        cores=bool(document.get("cores")),
        members=tuple(
            Member(
                node_id=int(each["id"]),
                host=str(each.get("host", HOST)),
                port=int(each["port"]),
                controller_port=each["controller_port"],
                wanted=each["wanted"],
                data=each.get("data"),
            )
            for each in document["members"]
        ),
    )


def new_cluster_id() -> str:
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    return "A" + text[1:] if text.startswith("-") else text  # would be parsed as an option
