# SPDX-License-Identifier: Apache-2.0
"""Loads machines from the log of a partition: applies every record in order, on a thread.

The machines are not shared until all is loaded, so the thread may change them. Records that cannot be decoded
are logged and skipped: one bad record must not make all groups of the partition unavailable. A record of a
later release is not bad but the newest state: without it an older one would be served, so the load fails.
Read next: machine_driver.py (drives the loaded machines).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from headrace.broker.coordinators.transaction_machines import TransactionMachines
from headrace.broker.partition.partition import ColdRead, Partition
from headrace.errors import DecodeError, NewerFormatError, NewerRecordError, StorageError
from headrace.log.segments.log_slice import LogSlice
from headrace.machines.machine import Machine
from headrace.wire.batch import BatchHeader, crc_ok, read_header
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.key_values import KeyValue, iter_key_values
from headrace.world import Thread

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
_MOST_LOGGED = 10

M = TypeVar("M", bound=Machine)

ReadRecord = Callable[[BatchHeader, bytes | None, bytes | None], tuple[str | None, CoordinatorRecord] | None]
"""Decodes a key and value of a batch with this header: the machine's name and the record; None for other
kinds of records. A transaction marker has no name: it concerns the machines that its transaction wrote to."""


class MachineLoading(Generic[M]):
    def __init__(self, name: object, make: Callable[[str], M], read: ReadRecord) -> None:
        self.machines: dict[str, M] = {}
        self.transactions = TransactionMachines()
        self.records = 0
        self._name = name
        self._make = make
        self._read = read
        self._undecodable = 0

    async def load(self, partition: Partition, thread: Thread) -> None:
        """Raises StorageError, OSError or ApiError when the log cannot be read.

        NewerFormatError: it has records of a later release.
        """
        offset = partition.log_start_offset
        while offset < (end := partition.log_end_offset):
            piece = await next_slice(partition, offset, end, thread)
            if piece is None:
                return
            try:
                await thread.run(self._apply_slice, piece)
            finally:
                offset = piece.next_offset
                piece.release()

    def _apply_slice(self, piece: LogSlice) -> None:
        view = memoryview(piece.bytes())
        position = 0
        while position < len(view):
            header = read_header(view, position)
            end = position + header.size
            if end > len(view) or not crc_ok(view, position, header.size):
                raise StorageError(f"{self._name}: the batch at offset {header.base_offset} is corrupt")
            self._apply_batch(header, view[position:end])
            position = end

    def _apply_batch(self, header: BatchHeader, batch: memoryview) -> None:
        read = self._read
        for offset, key, value in self._readable(header, batch):
            self.records += 1
            try:
                found = read(header, key, value)
            except NewerRecordError as problem:
                raise NewerFormatError(f"offset {offset}: {problem}") from problem
            except DecodeError as problem:
                self._log_undecodable(offset, problem)
                continue
            if found is not None:
                self._apply(header, *found)

    def _readable(self, header: BatchHeader, batch: memoryview) -> Iterator[KeyValue]:
        try:
            yield from iter_key_values(batch)
        except DecodeError as problem:
            self._log_undecodable(header.base_offset, problem)

    def _apply(self, header: BatchHeader, name: str | None, record: CoordinatorRecord) -> None:
        if name is None:
            for concerned in self.transactions.end(header.producer_id):
                self.machines[concerned].apply(record)
            return
        if name not in self.machines:
            self.machines[name] = self._make(name)
        if header.is_transactional:
            self.transactions.add(header.producer_id, name)
        self.machines[name].apply(record)

    def _log_undecodable(self, offset: int, problem: DecodeError) -> None:
        self._undecodable += 1
        if self._undecodable <= _MOST_LOGGED:
            logger.error("%s: the record at offset %d is skipped: %s", self._name, offset, problem)


async def next_slice(partition: Partition, offset: int, end: int, thread: Thread) -> LogSlice | None:
    """Batches from `offset` on, CHUNK_BYTES at most; to be released. What is not in the page cache is read by
    the thread first."""
    while True:
        try:
            return partition.log.read(offset, CHUNK_BYTES, end, at_least_one=True, wait=False)
        except ColdRead as cold:
            try:
                await thread.run(cold.warm)
            finally:
                cold.release()
