# SPDX-License-Identifier: Apache-2.0
"""Who sent a request: a user, or another node of the cluster. Shared by all layers.

Read next: broker/security/ (logins), broker/network/request_context.py.
"""

from __future__ import annotations

from typing import NamedTuple

USER, NODE = "User", "Node"


class Principal(NamedTuple):
    """Kafka's principal. Only a node that has proved its identity has the kind `Node` (S3)."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def node_id(self) -> int | None:
        """Of the node that this principal is; None for a user."""
        return int(self.name) if self.kind == NODE else None


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Of a connection without a login."""


def user(name: str) -> Principal:
    return Principal(USER, name)


def node(node_id: int) -> Principal:
    return Principal(NODE, str(node_id))
