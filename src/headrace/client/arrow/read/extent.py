# SPDX-License-Identifier: Apache-2.0
"""The offset ranges that a read would cover, without fetching records.

Read next: bounds.py, selection.py.
"""

from __future__ import annotations

from typing import NamedTuple, Unpack

from headrace.client.arrow.io_thread import IoThread
from headrace.client.arrow.read.reader import ReadOptions, ReadRequest
from headrace.client.network_client import NetworkClient


class PartitionExtent(NamedTuple):
    """Of offsets from `start` to before `end`; some of them may hold nothing (compaction, transactions)."""

    partition: int
    start: int
    end: int


def extent_of(topic: str, **options: Unpack[ReadOptions]) -> list[PartitionExtent]:
    """Takes the options of `read`. ClientError when no broker answers or the topic does not exist."""
    request = ReadRequest(topic, **options)
    client = NetworkClient(request.bootstrap, security=request.security, timeout_ms=request.timeout_ms)
    io = IoThread(f"headrace-extent-{topic}", client.close)
    try:
        ranges = io.call(request.ranges(client))
    finally:
        io.close()
    return [PartitionExtent(partition, *ranges[partition]) for partition in sorted(ranges)]
