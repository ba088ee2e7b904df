"""How much a read would read: offsets by partition, without fetching any record.

Read next: bounds.py, selection.py.
"""

from __future__ import annotations

from typing import NamedTuple, Unpack

from headrace.client.arrow.cluster import Cluster
from headrace.client.arrow.io_thread import IoThread
from headrace.client.arrow.reader import ReadOptions, ReadRequest


class PartitionExtent(NamedTuple):
    """Of offsets from `start` to before `end`; some of them may hold nothing (compaction, transactions)."""

    partition: int
    start: int
    end: int


def extent_of(topic: str, **options: Unpack[ReadOptions]) -> list[PartitionExtent]:
    """Takes the options of `read`. ClientError when the broker or the topic is not there."""
    request = ReadRequest(topic, **options)
    cluster = Cluster(request.bootstrap, security=request.security, timeout_ms=request.timeout_ms)
    io = IoThread(f"headrace-extent-{topic}", cluster.close)
    try:
        ranges = io.call(request.ranges(cluster))
    finally:
        io.close()
    return [PartitionExtent(partition, *ranges[partition]) for partition in sorted(ranges)]
