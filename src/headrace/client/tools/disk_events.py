# SPDX-License-Identifier: Apache-2.0
"""Offline logs and full disks of nodes, from the events in `__headrace_events`.

The newest event of each log and each disk counts. Read next: cli/groups/events.py.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.tools.admin import Admin
from headrace.client.tools.reader import topic_reader
from headrace.types import EVENTS_TOPIC

_NEWEST = 5_000
"""How many events are read: older ones are in the nodes' log files."""


class DiskEvents(NamedTuple):
    damaged: dict[tuple[str, int, int], str]
    """Topic, partition and node of a log that is offline, and why."""
    full: dict[int, str]
    """Nodes whose disk is full, and why."""


def disk_events(bootstrap: str | Cluster) -> DiskEvents:
    """Raises ClientError when the cluster does not answer."""
    admin = Admin(bootstrap)
    found = DiskEvents({}, {})
    if admin.find_topic(EVENTS_TOPIC) is None:
        return found
    starts = admin.offsets(EVENTS_TOPIC, [0], "earliest")
    stops = admin.offsets(EVENTS_TOPIC, [0], "latest")
    starts = {0: max(starts[0], stops[0] - _NEWEST)}
    reader = topic_reader(bootstrap, EVENTS_TOPIC, starts, stops)
    try:
        for record in reader:
            _take(found, record.value)
    finally:
        reader.close()
    return found


def _take(found: DiskEvents, value: bytes | None) -> None:
    try:
        document: dict[str, Any] = json.loads(value or b"")
        kind, node = document["kind"], int(document["details"].get("node", -1))
        if kind in ("offline", "online"):
            found.damaged.pop(key := (str(document["topic"]), int(document["partition"]), node), None)
            if kind == "offline":
                found.damaged[key] = str(document["details"]["reason"])
        elif kind in ("disk_full", "disk_room"):
            found.full.pop(node, None)
            if kind == "disk_full":
                found.full[node] = str(document["details"]["reason"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return  # written by a newer release in another format
