# SPDX-License-Identifier: Apache-2.0
"""What the machine can do, beside the Arrow client's figures: copies, checksums, loopback. No broker."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from crc32c import crc32c

from bench.cell import Cell
from bench.model import Figures

_PIECE = 1 << 20


def limits(cell: Cell) -> Figures:
    """One thread copies memory, or takes its CRC32C, by CPU time; two threads send it to each other."""
    pieces = cell.scaled(1000, least=50)
    source = bytearray(_PIECE)
    target = memoryview(bytearray(_PIECE))

    def copy() -> None:
        target[:] = source

    return {
        "memcpy_mb_per_s": _per_second(copy, pieces),
        "crc32c_mb_per_s": _per_second(lambda: crc32c(source), pieces),
        "loopback_mb_per_s": _loopback(pieces),
    }


def _per_second(work: Callable[[], object], pieces: int) -> float:
    started = time.process_time()
    for _ in range(pieces):
        work()
    return pieces * _PIECE / (time.process_time() - started) / 1e6


def _loopback(pieces: int) -> float:
    """From one TCP socket to another of this machine, thrown away there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=_send, args=(server.getsockname(), pieces))
        started = time.perf_counter()
        sender.start()
        with server.accept()[0] as receiver:
            room = bytearray(_PIECE)
            while receiver.recv_into(room):
                pass
        sender.join()
    return pieces * _PIECE / (time.perf_counter() - started) / 1e6


def _send(address: tuple[str, int], pieces: int) -> None:
    piece = bytes(_PIECE)
    with socket.create_connection(address) as connection:
        for _ in range(pieces):
            connection.sendall(piece)
