# SPDX-License-Identifier: Apache-2.0
"""The cost of record validation on produce: broker CPU with it, against CPU without.

The two are taken in turns on one node, so that what the machine does meanwhile hits both.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.cell import Cell
from bench.loads import produce_records
from bench.measures.arrow import prebuilt
from bench.model import Figures
from bench.raw_client import produce_check, produce_pipelined
from bench.raw_requests import produce_request
from headrace.wire.compression import Codec

_BYTES = 160_000_000
_TURNS = 4
_LARGE, _SMALL = 8_000, 140
"""Rows of a batch: 900 kB, as our writer makes them, and 16 kB, as the Java client does by default."""


def uncompressed(cell: Cell) -> Figures:
    """Uncompressed batches, large, small and confluent-kafka's: what `record.validation=auto` looks into."""
    bootstrap, records = cell.node.bootstrap, cell.scaled(_BYTES) // _TURNS // 100
    large = _cost(cell, _raw(cell, prebuilt(Codec.NONE, _LARGE)), ("header", "auto"))
    small = _cost(cell, _raw(cell, prebuilt(Codec.NONE, _SMALL)), ("header", "auto"))
    client = _cost(
        cell, lambda topic: _ignore(produce_records(bootstrap, topic, records, 100)), ("header", "auto")
    )
    return {
        "cpu_times_large": large[1] / large[0],
        "cpu_times_small": small[1] / small[0],
        "cpu_times_client": client[1] / client[0],
    }


def compressed(cell: Cell) -> Figures:
    """Batches that must be decompressed first."""
    figures = {}
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        header, auto = _cost(cell, _raw(cell, prebuilt(codec, _LARGE)), ("header", "auto"))
        figures[f"cpu_times_{codec.name.lower()}"] = auto / header
    return figures


def _raw(cell: Cell, batch: bytes) -> Callable[[str], None]:
    """Sends the batch over and over to a topic."""
    count = max(5, cell.scaled(_BYTES) // _TURNS // len(batch))

    def send(topic: str) -> None:
        request = produce_request(topic, {0: batch}, acks=1)
        with cell.connect() as connection:
            produce_pipelined(connection, request, produce_check(topic), in_flight=5, count=count)

    return send


def _cost(cell: Cell, load: Callable[[str], None], validations: tuple[str, str]) -> list[float]:
    """CPU seconds of the node for the same load, with each of two kinds of validation."""
    seconds = [0.0, 0.0]
    with (
        cell.topic(record_validation=validations[0]) as one,
        cell.topic(record_validation=validations[1]) as other,
    ):
        for turn in range(_TURNS):
            for place in (0, 1) if turn % 2 else (1, 0):
                with cell.cpu_clock() as cpu:
                    load((one, other)[place])
                seconds[place] += cpu.seconds
    return seconds


def _ignore(_: object) -> None:
    return None
