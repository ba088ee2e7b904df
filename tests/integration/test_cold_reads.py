# SPDX-License-Identifier: Apache-2.0
"""What is on disk only is read by a thread: all of it arrives, and nobody else waits for the disk."""

from __future__ import annotations

import os

import pytest

from headrace.wire.records import Record, build_batch
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient

NOW_MS = 1_700_000_000_000
BATCHES = 60


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="needs a way to empty the page cache")
@pytest.mark.parametrize("max_bytes", [1, 300_000, 1 << 20, 50 << 20])
def test_a_log_that_left_the_page_cache_is_read_whole(max_bytes: int, node: NodeProcess) -> None:
    values = [os.urandom(200_000) for _ in range(BATCHES)]
    with RawClient(node.bootstrap) as client:
        client.create_topic("cold", segment_bytes="4000000")
        for number, value in enumerate(values):
            client.produce("cold", bytes(build_batch([Record(0, NOW_MS + number, None, value)])), acks=1)
        hot = _read_all(client, max_bytes)
        for path in (node.data / "cold-0").iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert _read_all(client, max_bytes) == hot
    assert all(value in hot for value in values)


def _read_all(client: RawClient, max_bytes: int) -> bytes:
    data, offset = bytearray(), 0
    while offset < BATCHES:
        piece = client.fetch("cold", offset, max_bytes=max_bytes)
        assert piece
        offset += len(piece) // 200_000  # one record in each batch
        data += piece
    return bytes(data)
