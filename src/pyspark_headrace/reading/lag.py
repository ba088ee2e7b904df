# SPDX-License-Identifier: Apache-2.0
"""How far offsets are behind the ends of their logs, by partition. Pure. Read next: planner.py."""

from __future__ import annotations

from pyspark_headrace.reading.offset_lookup import Snapshot
from pyspark_headrace.reading.offsets import Offsets

Lags = dict[str, dict[str, int]]
"""Offsets behind the latest by topic and partition, as in JSON."""


def behind_latest(offsets: Offsets, snapshot: Snapshot) -> Lags:
    """Of partitions without a position, and of topics that were created again, the whole log is left."""
    found: Lags = {}
    for topic, now in sorted(snapshot.items()):
        held = offsets.topics.get(topic)
        known = held.partitions if held is not None and held.topic_id == now.topic_id else {}
        found[topic] = {
            str(number): max(0, each.end - max(each.first, known[number].offset if number in known else 0))
            for number, each in sorted(now.partitions.items())
        }
    return found
