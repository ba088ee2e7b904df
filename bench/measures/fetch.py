# SPDX-License-Identifier: Apache-2.0
"""Reading back what is in the page cache."""

from __future__ import annotations

from bench.cell import Cell
from bench.model import Figures
from bench.payloads import plain_batch
from bench.raw_client import fetch_each, produce_check, produce_pipelined
from bench.raw_requests import produce_request

_RECORDS_PER_BATCH = 100
_VALUE_BYTES = 1000
_PASSES = 3
"""Each turn reads the topic so often: half a gigabyte alone is over too soon to be measured well."""


def _filled_topic(cell: Cell) -> tuple[str, int]:
    """A topic of 100 KB batches, filled on a node's first turn and read in all its turns; (name, batches)."""
    batches = max(400, int(5000 * cell.suite_scale))

    def fill(topic: str) -> None:
        request = produce_request(topic, {0: plain_batch(_RECORDS_PER_BATCH, _VALUE_BYTES)}, acks=1)
        with cell.connect() as connection:
            produce_pipelined(connection, request, produce_check(topic), in_flight=5, count=batches)

    return cell.shared_topic(fill), batches


def _fetch(cell: Cell, response_bytes: int) -> Figures:
    topic, batches = _filled_topic(cell)
    batches_per_response = response_bytes // len(plain_batch(_RECORDS_PER_BATCH, _VALUE_BYTES))
    offsets = [
        first * _RECORDS_PER_BATCH
        for first in range(0, batches - batches_per_response + 1, batches_per_response)
    ]
    offsets *= _PASSES
    with cell.connect(buffer_bytes=response_bytes + (1 << 20)) as connection, cell.cpu_clock() as cpu:
        received, seconds = fetch_each(connection, topic, offsets, max_bytes=response_bytes)
    expected = len(offsets) * batches_per_response * len(plain_batch(_RECORDS_PER_BATCH, _VALUE_BYTES))
    if received < expected:
        raise RuntimeError(f"asked for {expected} bytes of records and got {received}")
    return {"mb_per_s": received / seconds / 1e6, "cpu_s_per_gb": cpu.per_gb(received)}


def fetch_1mb(cell: Cell) -> Figures:
    """Catching up with responses of 1 MB, the default of most consumers."""
    return _fetch(cell, 1 << 20)


def fetch_10mb(cell: Cell) -> Figures:
    """Catching up with responses of 10 MB: batch jobs, replays."""
    return _fetch(cell, 10 << 20)
