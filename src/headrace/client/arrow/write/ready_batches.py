# SPDX-License-Identifier: Apache-2.0
"""Record batches encoded elsewhere: checked, and given a producer id, epoch and sequence numbers.

Only headers are changed. Read next: ../../wire/batch.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping

from headrace.client.arrow.write.encode import Producer
from headrace.client.arrow.write.sender import Outgoing
from headrace.client.errors import ClientError
from headrace.errors import ApiError
from headrace.wire.batch import BatchHeader, assign, sign, split_batches

_SEQUENCES = 1 << 31

Run = bytes | bytearray | memoryview


def ready_batches(
    runs: Iterable[tuple[int, Run]], producer: Producer, sequences: MutableMapping[int, int]
) -> Iterator[Outgoing]:
    """One Outgoing for every batch of every run, with the producer's next sequence numbers.

    A run is one or several whole batches, and comes with its partition.
    """
    row = 0
    for place, (partition, run) in enumerate(runs):
        view = memoryview(run)
        for position, header in _checked(view, place):
            batch = bytearray(view[position : position + header.size])
            with memoryview(batch) as signed:
                assign(signed, 0, 0, header.batch_length, -1)
                sequence = sequences.get(partition, 0)
                sign(
                    signed,
                    0,
                    producer.producer_id,
                    producer.epoch,
                    sequence,
                    is_transactional=producer.is_transactional,
                )
            sequences[partition] = (sequence + header.record_count) % _SEQUENCES
            yield Outgoing(partition=partition, batch=batch, rows=range(row, row + header.record_count))
            row += header.record_count


def _checked(view: memoryview, place: int) -> list[tuple[int, BatchHeader]]:
    try:
        return split_batches(view, 0, len(view), max_batch_bytes=None)
    except ApiError as error:
        raise ClientError(
            f"batch {place} cannot be appended: {error}", code=error.code.name.upper()
        ) from error
