"""Which batches of a run of produce requests can be written together, without a closer look at any.

Read next: partition.py (`append_run`), produce_run.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.broker.deep_check import NeedsWorker, check_uncompressed
from headrace.broker.topic_settings import TopicSettings
from headrace.errors import ApiError
from headrace.log.producer_state import ProducerState
from headrace.wire.batch import CODEC_MASK, BatchHeader, read_sound_batch
from headrace.wire.produce_run import RunFrame


def plain_batches(
    view: memoryview,
    frames: Sequence[RunFrame],
    settings: TopicSettings,
    producers: ProducerState,
    now_ms: int,
) -> list[tuple[int, BatchHeader]]:
    """(position, header) of the first ones, up to the first that must be looked at alone."""
    batches: list[tuple[int, BatchHeader]] = []
    max_bytes = settings.log.max_message_bytes
    oldest = now_ms - settings.timestamp_before_max_ms
    newest = now_ms + settings.timestamp_after_max_ms
    odd_attributes = ~settings.plain_attributes
    validates = settings.validates_uncompressed
    before: BatchHeader | None = None
    for _, start, end, _ in frames:
        header = read_sound_batch(view, start, end, max_bytes)
        if (
            header is None
            or header.attributes & odd_attributes
            or not oldest <= header.max_timestamp <= newest
            or (header.producer_id >= 0 and not _continues(producers, before, header))
            or (validates and not header.attributes & CODEC_MASK and not _is_sound(view, start, header))
        ):
            break
        batches.append((start, header))
        before = header
    return batches


def _is_sound(view: memoryview, start: int, header: BatchHeader) -> bool:
    try:
        check_uncompressed(view, start, header)
    except (ApiError, NeedsWorker):
        return False  # told to the producer when it is looked at alone
    return True


def _continues(producers: ProducerState, before: BatchHeader | None, header: BatchHeader) -> bool:
    """Whether an idempotent producer's batch is new and in order, after one that is not written yet."""
    if before is None:
        return producers.check(header) is None
    return (
        header.producer_id == before.producer_id
        and header.producer_epoch == before.producer_epoch
        and header.base_sequence == before.base_sequence + before.record_count
    )
