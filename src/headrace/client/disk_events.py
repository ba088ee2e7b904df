"""Why a node does not take part as it should, from what Headrace wrote down of disks in `__headrace_events`.

The newest word on each log and each disk counts. Knows no console. Read next: group_events.py.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from headrace.client.admin import Admin
from headrace.client.reader import RecordReader
from headrace.types import EVENTS_TOPIC

_NEWEST = 5_000
"""Events looked at: what is older has been seen to, or is in the nodes' logs."""


class DiskEvents(NamedTuple):
    damaged: dict[tuple[str, int, int], str]
    """Topic, partition and node of a log that is offline, and why."""
    full: dict[int, str]
    """Nodes whose disk takes no records, and why."""


def disk_events(bootstrap: str) -> DiskEvents:
    """Raises ClientError when the cluster does not answer."""
    admin = Admin(bootstrap)
    told = DiskEvents({}, {})
    if admin.find_topic(EVENTS_TOPIC) is None:
        return told
    starts = admin.offsets(EVENTS_TOPIC, [0], "earliest")
    stops = admin.offsets(EVENTS_TOPIC, [0], "latest")
    starts = {0: max(starts[0], stops[0] - _NEWEST)}
    reader = RecordReader(bootstrap, EVENTS_TOPIC, starts, stops)
    try:
        for record in reader:
            _take(told, record.value)
    finally:
        reader.close()
    return told


def _take(told: DiskEvents, value: bytes | None) -> None:
    try:
        document: dict[str, Any] = json.loads(value or b"")
        kind, node = document["kind"], int(document["details"].get("node", -1))
        if kind in ("offline", "online"):
            told.damaged.pop(key := (str(document["topic"]), int(document["partition"]), node), None)
            if kind == "offline":
                told.damaged[key] = str(document["details"]["reason"])
        elif kind in ("disk_full", "disk_room"):
            told.full.pop(node, None)
            if kind == "disk_full":
                told.full[node] = str(document["details"]["reason"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return  # a newer program wrote it in another form
