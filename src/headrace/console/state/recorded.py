# SPDX-License-Identifier: Apache-2.0
"""Records of `__headrace_events` as events (docs/groups.md, docs/cluster.md); which are about what.

Records come from the cluster, but names in them from strangers: what has another form is left out.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.console.state.model import Event
from headrace.types import EVENTS_VERSION

STATE_KINDS = frozenset({"log_ends", "snapshot", "group_snapshot"})
"""They say how things are, not that something happened: no page lists them."""
NODE_KINDS = frozenset({"node_up", "node_down", "controller", "disk_full", "disk_room"})
TOPIC_KINDS = frozenset({"topic_created", "topic_deleted", "partitions_added"})
PARTITION_KINDS = frozenset({"leader", "isr", "unclean", "given_up", "offline", "online"})
CLUSTER_KINDS = NODE_KINDS | TOPIC_KINDS | PARTITION_KINDS


def read_recorded(value: bytes | None) -> Event | None:
    """None for what another program wrote, or a newer release in another form."""
    try:
        document = json.loads(value or b"")
        if int(document.get("version", 1)) > EVENTS_VERSION:
            return None
        details = dict(document.get("details") or {})
        return Event(
            at_ms=int(document["at"]),
            kind=str(document["kind"]),
            group=_text(document.get("group")),
            topic=_text(document.get("topic")),
            partition=_number(document.get("partition")),
            node=_number(details.get("node")),
            details=details,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
